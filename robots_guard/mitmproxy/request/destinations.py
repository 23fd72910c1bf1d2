"""Destination policy: which addresses and ports the operator lets clients reach.

Clients of a proxy are foreign to its network: private, loopback and link-local addresses are
refused, for pages and robots.txt alike, unless the operator has allowed them (`allow_private`).
Invariant: a name is checked with the verdict, so that a refusal can be explained, and again in the
very resolution that a connection uses, so that a name that changed in between leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from cachetools import TTLCache
from mitmproxy import connection, optmanager
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.core.addresses import BAD_PORTS, Address, literal, networks
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Verdict
from robots_guard.errors import MalformedURL
from robots_guard.fetch.destinations import Destinations
from robots_guard.mitmproxy.patches.name_resolution import addresses_of, check_resolution
from robots_guard.origin import Origin, parse_authority
from robots_guard.settings import CLOCKS, ProxySettings

PREFIX = "robots_guard: "
ITSELF = ("robots_guard", 0)  # the peer name of the proxy's own fetches; no socket has such a name
_CACHED_NAMES = 4096  # names
_LOOKUP_TIMEOUT = 5.0  # seconds
_CACHE_SECONDS = 30.0  # for which the result of a name is cached; connecting checks again

Addresses = Iterable[tuple[Any, ...]]  # socket addresses: host and port first
Client = tuple[object, float | None]


def client_of(client: connection.Client) -> Client:
    """A client connection's identity. It is not the id: a replay works on a copy, which has a new one."""
    return (client.peername and client.peername[:2], client.timestamp_start)


class DestinationPolicy:
    """The destinations that an operator allows.

    `reverse_targets` are the destinations of reverse modes. They are open to the clients of that
    mode, and to the proxy itself for their robots.txt. `listening` returns the proxy's own
    addresses and ports.
    """

    reverse_targets: frozenset[tuple[str, int]] = frozenset()

    def __init__(self, settings: ProxySettings, listening: Callable[[], Addresses] = tuple) -> None:
        self._listening = listening
        self._destinations = Destinations(allowed=networks(settings.allow_private))
        self._ports = settings.connectable()
        self._lookups: TTLCache[tuple[str, bool], str | None] = TTLCache(
            _CACHED_NAMES, _CACHE_SECONDS, timer=CLOCKS.monotonic
        )
        self._tunnels: set[Client] = set()

    # -- tunnels ------------------------------------------------------------------------------------------

    def open_tunnel(self, client: connection.Client) -> None:
        """Note that a client has opened a tunnel. It stays in it until it disconnects."""
        self._tunnels.add(client_of(client))

    def close_tunnel(self, client: connection.Client) -> None:
        """Forget the tunnel of a client that has disconnected."""
        self._tunnels.discard(client_of(client))

    # -- before a verdict ---------------------------------------------------------------------------------

    async def verdict(self, client: connection.Client, origin: Origin) -> Verdict | None:
        """The refusal of a request to this origin, or None."""
        objection = self._port_objection(origin.port, in_tunnel=client_of(client) in self._tunnels)
        if objection is None and not self._is_chosen_by_operator(client, origin.host, origin.port):
            objection = await self._host_objection(origin.host, isinstance(client.proxy_mode, mode_specs.UpstreamMode))
        if objection is None:
            return None
        return Verdict(action=Action.DROP, reason=Reason.DESTINATION_REFUSED, detail=objection)

    def _is_chosen_by_operator(self, client: connection.Client, host: str, port: int) -> bool:
        """Whether the operator has chosen the destination for this client, or the proxy itself fetches from it."""
        mode = client.proxy_mode
        if isinstance(mode, mode_specs.ReverseMode):
            return _canonical(mode) == (host, port)
        return client.peername == ITSELF and (host, port) in self.reverse_targets

    def objection_to_hop(self, origin: Origin) -> str | None:
        """Why a redirect of a robots.txt may not lead to the port of this origin, or None.

        An https origin is checked like a tunnel, because a client would need one.
        """
        if (origin.host, origin.port) in self.reverse_targets:
            return None
        return self._port_objection(origin.port, in_tunnel=origin.scheme == "https")

    def _port_objection(self, port: int, *, in_tunnel: bool) -> str | None:
        if any(port in ports for ports in self._ports):
            return None
        if port in BAD_PORTS:
            return f"port {port} is not a web port: connect_ports names the ports that may be reached"
        if in_tunnel:
            return f"a tunnel to port {port}: connect_ports names the ports that may be reached"
        return None

    async def _host_objection(self, host: str, has_parent: bool) -> str | None:
        try:
            return self._lookups[host, has_parent]
        except KeyError:
            pass
        address = literal(host)
        if address is not None:
            found: Iterable[Address] = (address,)
        elif has_parent:  # the parent proxy resolves the name and has a policy of its own
            found = ()
        else:
            found = await _lookup(host)
        objection = self._lookups[host, has_parent] = self._destinations.objection(found, public_only=False)
        return objection

    # -- when a connection is made ------------------------------------------------------------------------

    def objection_to_connecting(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None; the addresses of a name are checked when it is resolved."""
        check_resolution(None)
        if data.server.address is None or isinstance(data.client.proxy_mode, mode_specs.UpstreamMode):
            return None
        host, port = data.server.address[:2]
        if self._is_chosen_by_operator(data.client, host, port):
            return None
        objection = partial(self._address_objection, port=port)
        address = literal(host)
        if address is not None:
            return objection((address,))
        check_resolution(objection)
        return None

    def _address_objection(self, addresses: Iterable[Address], port: int) -> str | None:
        listening = [literal(host) for host, at, *_ in self._listening() if at == port]
        if any(_reaches_proxy(address, own) for address in addresses for own in listening):
            return "it is the address of this proxy, which would send requests to itself"
        return self._destinations.objection(addresses, public_only=False)


def reverse_targets(options: optmanager.OptManager) -> frozenset[tuple[str, int]]:
    """The hosts and ports that the reverse modes of these options lead to."""
    modes = [mode_specs.ProxyMode.parse(spec) for spec in (options.mode if "mode" in options else ())]
    return frozenset(_canonical(mode) for mode in modes if isinstance(mode, mode_specs.ReverseMode))


def _canonical(mode: mode_specs.ReverseMode) -> tuple[str, int]:
    """The host and port of a reverse mode, in the canonical spelling of origins."""
    host, port = mode.address
    with contextlib.suppress(MalformedURL):
        host = parse_authority("http", f"[{host}]" if ":" in host else host).host
    return host, port


async def _lookup(host: str) -> tuple[Address, ...]:
    """The addresses of a name; none if it cannot be resolved, in which case connecting fails anyway."""
    try:
        async with asyncio.timeout(_LOOKUP_TIMEOUT):
            return addresses_of(await asyncio.get_running_loop().getaddrinfo(host, None))
    except OSError:  # TimeoutError is one
        return ()


def _reaches_proxy(address: Address, listening: Address | None) -> bool:
    """Whether the proxy itself listens at this address: a request to itself would cause another one, endlessly."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if listening is None or plain == listening or plain.is_unspecified:  # a connection to 0.0.0.0 stays local
        return True
    return listening.is_unspecified and _is_local(plain)


def _is_local(address: Address) -> bool:
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
