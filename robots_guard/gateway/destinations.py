"""Destination policy: which addresses and ports the operator lets clients reach.

Treat clients as outside the proxy's network: private, loopback and link-local addresses are
refused, for pages and robots.txt alike, unless the operator has allowed them (`allow_private`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

from cachetools import TTLCache

from robots_guard.core.addresses import BAD_PORTS, Address, Networks, literal
from robots_guard.fetch.destinations import Destinations
from robots_guard.origin import Origin

_CACHED_NAMES = 4096  # names
_LOOKUP_TIMEOUT = 5.0  # seconds
_CACHE_SECONDS = 30.0  # for which the result of a name is cached; connecting checks again

Addresses = Iterable[tuple[Any, ...]]  # socket addresses: host and port first


class NotLookedUp(Exception):
    """A name must be looked up before it is known whether it may be reached."""


class DestinationPolicy:
    """The destinations that an operator allows.

    Tunnels lead to `ports` only. Addresses that are not public must be in `allowed`. `listening`
    returns the proxy's own addresses and ports. `monotonic` is a clock, in seconds.
    """

    def __init__(
        self,
        *,
        ports: Iterable[range],
        allowed: Networks,
        listening: Callable[[], Addresses],
        monotonic: Callable[[], float],
    ) -> None:
        self._ports = tuple(ports)
        self._destinations = Destinations(allowed=allowed)
        self._listening = listening
        self._lookups: TTLCache[tuple[str, bool], str | None] = TTLCache(
            _CACHED_NAMES, _CACHE_SECONDS, timer=monotonic
        )

    def objection_to_port(self, port: int, *, in_tunnel: bool) -> str | None:
        """Why this port may not be reached, or None."""
        if any(port in ports for ports in self._ports):
            return None
        if port in BAD_PORTS:
            return (
                f"port {port} is not a web port: connect_ports names the ports that may be reached"
            )
        if in_tunnel:
            return f"a tunnel to port {port}: connect_ports names the ports that may be reached"
        return None

    async def objection_to_host(self, host: str, *, has_parent: bool) -> str | None:
        """Why this host may not be reached, or None. A parent proxy resolves names itself."""
        try:
            return self.known_objection_to_host(host, has_parent=has_parent)
        except NotLookedUp:
            return self._judge_host(host, has_parent, await _look_up(host))

    async def objection_to_origin(self, origin: Origin, *, in_tunnel: bool) -> str | None:
        """Why a connection to this origin may not be made, or None, for an integration that does
        not connect itself."""
        try:
            return self.known_objection_to_origin(origin, in_tunnel=in_tunnel)
        except NotLookedUp:
            addresses = await _look_up(origin.host)
        own = self._objection_to_own(addresses, origin.port)
        return own or self._judge_host(origin.host, False, addresses)

    def known_objection_to_origin(self, origin: Origin, *, in_tunnel: bool) -> str | None:
        """What `objection_to_origin` returns, if it is known without a lookup. Raises
        NotLookedUp."""
        objection = self.objection_to_port(origin.port, in_tunnel=in_tunnel)
        if objection is None and any(at == origin.port for _, at, *_ in self._listening()):
            address = literal(origin.host)
            if address is None:
                raise NotLookedUp(origin.host)
            objection = self._objection_to_own((address,), origin.port)
        return objection or self.known_objection_to_host(origin.host, has_parent=False)

    def known_objection_to_host(self, host: str, *, has_parent: bool) -> str | None:
        """What `objection_to_host` returns, if it is known without a lookup. Raises NotLookedUp."""
        try:
            return self._lookups[host, has_parent]
        except KeyError:
            pass
        address = literal(host)
        if address is not None:
            return self._judge_host(host, has_parent, (address,))
        if has_parent:  # the parent proxy resolves the name and has a policy of its own
            return self._judge_host(host, has_parent, ())
        raise NotLookedUp(host)

    def _judge_host(self, host: str, has_parent: bool, found: Iterable[Address]) -> str | None:
        objection = self._destinations.objection(found, public_only=False)
        self._lookups[host, has_parent] = objection
        return objection

    def objection_to_addresses(self, addresses: Iterable[Address], port: int) -> str | None:
        """Why a connection to these addresses of one host may not be made, or None."""
        found = tuple(addresses)
        own = self._objection_to_own(found, port)
        return own or self._destinations.objection(found, public_only=False)

    def _objection_to_own(self, addresses: Iterable[Address], port: int) -> str | None:
        listening = [literal(host) for host, at, *_ in self._listening() if at == port]
        if any(_reaches_proxy(address, own) for address in addresses for own in listening):
            return "it is the address of this proxy, which would send requests to itself"
        return None


async def _look_up(host: str) -> tuple[Address, ...]:
    """The addresses of a name; none if it cannot be resolved, in which case connecting fails anyway."""
    try:
        async with asyncio.timeout(_LOOKUP_TIMEOUT):
            return addresses_of(await asyncio.get_running_loop().getaddrinfo(host, None))
    except OSError:  # TimeoutError is one
        return ()


def _reaches_proxy(address: Address, listening: Address | None) -> bool:
    """Whether the proxy itself listens at this address: a request to itself would cause another one, endlessly."""
    plain = getattr(address, "ipv4_mapped", None) or address
    # A connection to 0.0.0.0 stays local.
    if listening is None or plain == listening or plain.is_unspecified:
        return True
    return listening.is_unspecified and _is_local(plain)


def _is_local(address: Address) -> bool:
    with socket.socket(
        socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM
    ) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def addresses_of(infos: Iterable[Any]) -> tuple[Address, ...]:
    """The addresses in a result of getaddrinfo."""
    return tuple(filter(None, (literal(str(info[4][0])) for info in infos)))
