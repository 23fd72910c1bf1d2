"""Ways: which addresses and ports a page may be asked of, by the operator's word and not by the site's.

Clients of a proxy are strangers to the network it stands in: private, loopback and link-local addresses are for
those the operator has allowed (`allow_private`), for pages and robots.txt alike. The law of this file: a name is
looked at when the answer is given, so that a refusal can be explained, and once more in the very resolution a
connection is made by, so that a name that has changed in between leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any

from cachetools import TTLCache
from mitmproxy import connection, optmanager
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.core.addresses import BAD_PORTS, Address, literal, networks
from robots_guard.core.verdict import Action, Reason, Verdict
from robots_guard.errors import MalformedURL
from robots_guard.fetch.destinations import Destinations
from robots_guard.origin import Origin, parse_authority
from robots_guard.settings import CLOCKS, ProxySettings

PREFIX = "robots_guard: "
ITSELF = ("robots_guard", 0)  # the peer name of the proxy's own fetches; no socket has such a one
_REMEMBERED = 4096  # names
_LOOKUP = 5.0  # seconds
_SECONDS = 30.0  # for which an objection to a name, or none, is remembered; connecting looks again

Addresses = Iterable[tuple[Any, ...]]  # as sockets tell them: host and port first
Client = tuple[object, float | None]


def client_of(client: connection.Client) -> Client:
    """A client connection's identity. Not its id: a replay works on a copy, and a copy has a new one."""
    return (client.peername and client.peername[:2], client.timestamp_start)


class Ways:
    """What one operator allows. `named` are the destinations of reverse modes, which the operator has chosen: open
    to the clients of that mode, and to the proxy itself for their robots.txt. `listening` tells the proxy's own
    addresses and ports."""

    named: frozenset[tuple[str, int]] = frozenset()

    def __init__(self, settings: ProxySettings, listening: Callable[[], Addresses] = tuple) -> None:
        self._listening = listening
        self._destinations = Destinations(allowed=networks(settings.allow_private))
        self._ports = settings.connectable()
        self._seen: TTLCache[tuple[str, bool], str | None] = TTLCache(_REMEMBERED, _SECONDS, timer=CLOCKS.monotonic)
        self._tunnels: set[Client] = set()

    # -- tunnels ------------------------------------------------------------------------------------------

    def entered(self, client: connection.Client) -> None:
        """A client has asked for a tunnel, and is in it until it leaves."""
        self._tunnels.add(client_of(client))

    def left(self, client: connection.Client) -> None:
        """A client has gone."""
        self._tunnels.discard(client_of(client))

    # -- when a request comes -----------------------------------------------------------------------------

    async def verdict(self, client: connection.Client, origin: Origin) -> Verdict | None:
        """The refusal of a request to go there, or None."""
        objection = self._port(origin.port, in_tunnel=client_of(client) in self._tunnels)
        if objection is None and not self._is_chosen(client, origin.host, origin.port):
            objection = await self._host(origin.host, isinstance(client.proxy_mode, mode_specs.UpstreamMode))
        if objection is None:
            return None
        return Verdict(action=Action.DROP, reason=Reason.DESTINATION_REFUSED, detail=objection)

    def _is_chosen(self, client: connection.Client, host: str, port: int) -> bool:
        """Whether the operator has chosen the destination for this client, or the proxy itself fetches from it."""
        mode = client.proxy_mode
        if isinstance(mode, mode_specs.ReverseMode):
            return _canonical(mode) == (host, port)
        return client.peername == ITSELF and (host, port) in self.named

    def objection_to_hop(self, origin: Origin) -> str | None:
        """Why a redirect of a robots.txt may not lead to the port of this origin, or None. Where a client would need a
        tunnel, it is asked for as a tunnel is."""
        if (origin.host, origin.port) in self.named:
            return None
        return self._port(origin.port, in_tunnel=origin.scheme == "https")

    def _port(self, port: int, *, in_tunnel: bool) -> str | None:
        if any(port in ports for ports in self._ports):
            return None
        if port in BAD_PORTS:
            return f"port {port} is none of the web's: connect_ports names those that may be reached"
        if in_tunnel:
            return f"a tunnel to port {port}: connect_ports names those that may be reached"
        return None

    async def _host(self, host: str, behind_another: bool) -> str | None:
        try:
            return self._seen[host, behind_another]
        except KeyError:
            pass
        address = literal(host)
        if address is not None:
            found: Iterable[Address] = (address,)
        elif behind_another:  # the parent proxy looks the name up, and has a policy of its own
            found = ()
        else:
            found = await _lookup(host)
        objection = self._seen[host, behind_another] = self._destinations.objection(found, public_only=False)
        return objection

    # -- when a connection is made ------------------------------------------------------------------------

    def objection_to_connecting(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None; then the addresses its name has are looked at, too."""
        _objection.set(None)
        if data.server.address is None or isinstance(data.client.proxy_mode, mode_specs.UpstreamMode):
            return None
        host, port = data.server.address[:2]
        if self._is_chosen(data.client, host, port):
            return None
        objection = partial(self._objection, port=port)
        address = literal(host)
        if address is not None:
            return objection((address,))
        _look_into_resolutions(asyncio.get_running_loop())
        _objection.set(objection)
        return None

    def _objection(self, addresses: Iterable[Address], port: int) -> str | None:
        ours = [literal(host) for host, at, *_ in self._listening() if at == port]
        if any(_leads_to(address, own) for address in addresses for own in ours):
            return "it is the address of this proxy, which would ask itself"
        return self._destinations.objection(addresses, public_only=False)


def named_by(options: optmanager.OptManager) -> frozenset[tuple[str, int]]:
    """Where the operator has put reverse modes in front of."""
    modes = [mode_specs.ProxyMode.parse(spec) for spec in (options.mode if "mode" in options else ())]
    return frozenset(_canonical(mode) for mode in modes if isinstance(mode, mode_specs.ReverseMode))


def _canonical(mode: mode_specs.ReverseMode) -> tuple[str, int]:
    """The host and port of a reverse mode, in the canonical spelling of origins."""
    host, port = mode.address
    with contextlib.suppress(MalformedURL):
        host = parse_authority("http", f"[{host}]" if ":" in host else host).host
    return host, port


async def _lookup(host: str) -> tuple[Address, ...]:
    """A name's addresses; none if nobody knows any, which connecting finds out by itself."""
    try:
        async with asyncio.timeout(_LOOKUP):
            return _addresses(await asyncio.get_running_loop().getaddrinfo(host, None))
    except OSError:  # TimeoutError is one
        return ()


def _leads_to(address: Address, listening: Address | None) -> bool:
    """Whether the proxy itself listens there: each of its requests to itself would make it send another."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if listening is None or plain == listening or plain.is_unspecified:  # who goes to 0.0.0.0 comes to himself
        return True
    return listening.is_unspecified and _is_of_this_machine(plain)


def _is_of_this_machine(address: Address) -> bool:
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _addresses(infos: Iterable[Any]) -> tuple[Address, ...]:
    return tuple(filter(None, (literal(str(info[4][0])) for info in infos)))


# -- the resolution of a connection ---------------------------------------------------------------------------

#: Set by the hook before a connection, in the task that then connects: mitmproxy resolves there, by the loop.
_objection: ContextVar[Callable[[tuple[Address, ...]], str | None] | None] = ContextVar(
    "robots_guard_objection", default=None
)


class _NotAllowed(OSError):
    """A name leads where we may not go. mitmproxy takes it for a connection that failed, and makes none."""


def _look_into_resolutions(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop's resolutions looked at from now on, once; only those of guarded connections are."""
    plain = loop.getaddrinfo
    if getattr(plain, "robots_guard", False):
        return

    async def looked_at(*args: Any, **kwargs: Any) -> list[Any]:
        infos = await plain(*args, **kwargs)
        looking = _objection.get()
        if looking is not None and (objection := looking(_addresses(infos))):
            raise _NotAllowed(f"{PREFIX}{objection}")
        return infos

    looked_at.robots_guard = True  # type: ignore[attr-defined]  # how we know our own
    loop.getaddrinfo = looked_at  # type: ignore[method-assign]  # the one place all of a loop's connections resolve
