"""Destination policy: which addresses and ports the operator lets clients reach.

Treat clients as outside the proxy's network: private, loopback and link-local addresses are
refused, for pages and robots.txt alike, unless the operator has allowed them (`allow_private`).

A program that resolved a permitted name itself could connect to another address than the one that
was judged: the name server may answer differently the second time, and Envoy tries a name's further
addresses by itself if the first one does not answer. So such a program is given an address, by
`DestinationPolicy.address_of`, and resolves nothing.

A site chooses where its robots.txt redirects to, so `connect_ports` limits that, too.

Invariant: an address is returned only if all addresses of its host may be reached.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from cachetools import TTLCache

from robots_guard.decisions.access import Failed, Failure, FetchOutcome, Get
from robots_guard.decisions.addresses import BAD_PORTS, Address, Networks, literal
from robots_guard.errors import RobotsGuardError
from robots_guard.gateway.waits import NoRoomToWait
from robots_guard.guard.fetch.destinations import Destinations, lookup
from robots_guard.origin import Origin, split_url
from robots_guard.ports import Fetcher

_CACHED_NAMES = 16_384  # names
_LOOKUP_TIMEOUT = 5.0  # seconds
_MOST_LOOKUPS = 1_000  # at a time; each has a thread, until its name server answers
_CACHE_SECONDS = 30.0  # for which the result of a name is cached; connecting checks again

Addresses = Iterable[tuple[Any, ...]]  # socket addresses: host and port first


class NotLookedUp(Exception):
    """A name must be looked up before it is known whether it may be reached."""


class NoAddress(RobotsGuardError):
    """A host has no address, or one that may not be reached."""


class JudgedHost(NamedTuple):
    """A host's addresses, as far as they are known. `objection` says why it may not be reached; None
    if it may."""

    addresses: tuple[Address, ...]
    objection: str | None


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
        self._hosts: TTLCache[tuple[str, bool], JudgedHost] = TTLCache(
            _CACHED_NAMES, _CACHE_SECONDS, timer=monotonic
        )
        self._lookups: dict[str, Future[tuple[Address, ...]]] = {}  # that have not ended

    def objection_to_port(self, port: int, *, in_tunnel: bool) -> str | None:
        """Why this port may not be reached, or None."""
        for ports in self._ports:
            if port in ports:
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
        return (await self._host(host, has_parent)).objection

    async def objection_to_origin(self, origin: Origin, *, in_tunnel: bool) -> str | None:
        """Why a connection to this origin may not be made, or None, for an integration that does
        not connect itself."""
        objection = self.objection_to_port(origin.port, in_tunnel=in_tunnel)
        if objection is not None:
            return objection
        return self._objection_to(await self._host(origin.host, has_parent=False), origin.port)

    async def address_of(self, origin: Origin) -> Address:
        """The address at which this origin is to be reached: the first one, which the system
        prefers (RFC 6724). Raises NoAddress."""
        try:
            return self.known_address_of(origin)
        except NotLookedUp:
            return self._address_in(await self._resolve(origin.host), origin.port)

    def known_objection_to_origin(self, origin: Origin, *, in_tunnel: bool) -> str | None:
        """What `objection_to_origin` returns, if it is known without a lookup. Raises
        NotLookedUp."""
        objection = self.objection_to_port(origin.port, in_tunnel=in_tunnel)
        if objection is not None:
            return objection
        return self._objection_to(self._known_host(origin.host, has_parent=False), origin.port)

    def known_address_of(self, origin: Origin) -> Address:
        """What `address_of` returns, if it is known without a lookup. Raises NotLookedUp and
        NoAddress."""
        host = self._known_host(origin.host, has_parent=False)
        if not host.addresses:  # The name may have an address by now.
            raise NotLookedUp(origin.host)
        return self._address_in(host, origin.port)

    def known_objection_to_host(self, host: str, *, has_parent: bool) -> str | None:
        """What `objection_to_host` returns, if it is known without a lookup. Raises NotLookedUp."""
        return self._known_host(host, has_parent).objection

    async def _host(self, host: str, has_parent: bool) -> JudgedHost:
        try:
            return self._known_host(host, has_parent)
        except NotLookedUp:
            return await self._resolve(host)

    def _known_host(self, host: str, has_parent: bool) -> JudgedHost:
        """A host that can be judged without a lookup. Raises NotLookedUp."""
        try:
            return self._hosts[host, has_parent]
        except KeyError:
            pass
        address = literal(host)
        if address is not None:
            return self._judge(host, has_parent, (address,))
        if has_parent:  # the parent proxy resolves the name and has a policy of its own
            return self._judge(host, has_parent, ())
        raise NotLookedUp(host)

    async def _resolve(self, name: str) -> JudgedHost:
        """Resolve a name and judge its addresses. Concurrent calls for one name share a lookup.

        Raises NoRoomToWait if too many names are being looked up: a lookup outlasts the request
        that waits for it, so that the limit of held requests does not bound the threads.
        """
        pending = self._lookups.get(name)
        if pending is None:
            if len(self._lookups) >= _MOST_LOOKUPS:
                raise NoRoomToWait(f"{_MOST_LOOKUPS} names are being looked up already")
            pending = self._lookups[name] = lookup(name, 0)
            pending.add_done_callback(lambda _: self._lookups.pop(name, None))
        return self._judge(name, False, await _result_in_time(pending))

    def _judge(self, host: str, has_parent: bool, addresses: tuple[Address, ...]) -> JudgedHost:
        objection = self._destinations.objection(addresses, public_only=False)
        self._hosts[host, has_parent] = judged = JudgedHost(addresses, objection)
        return judged

    def _address_in(self, host: JudgedHost, port: int) -> Address:
        if not host.addresses or self._objection_to(host, port) is not None:
            raise NoAddress("The host has no address that may be reached.")
        return host.addresses[0]

    def _objection_to(self, host: JudgedHost, port: int) -> str | None:
        return self._objection_to_own(host.addresses, port) or host.objection

    def objection_to_addresses(self, addresses: Iterable[Address], port: int) -> str | None:
        """Why a connection to these addresses of one host may not be made, or None."""
        found = tuple(addresses)
        own = self._objection_to_own(found, port)
        return own or self._destinations.objection(found, public_only=False)

    def _objection_to_own(self, addresses: Iterable[Address], port: int) -> str | None:
        own = [place[0] for place in self._listening() if place[1] == port]
        if not own:  # as usual
            return None
        listening = [literal(host) for host in own]
        if any(_reaches_proxy(address, each) for address in addresses for each in listening):
            return "it is the address of this proxy, which would send requests to itself"
        return None


async def _result_in_time(pending: Future[tuple[Address, ...]]) -> tuple[Address, ...]:
    """Await the addresses of a name. Returns none if it cannot be resolved, or not within
    `_LOOKUP_TIMEOUT`: without an address nothing connects to it."""
    try:
        async with asyncio.timeout(_LOOKUP_TIMEOUT):
            # Other requests may wait for the same result.
            return await asyncio.shield(asyncio.wrap_future(pending))
    except (OSError, UnicodeError):  # TimeoutError is an OSError
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


class PortFetcher:
    """A Fetcher that refuses a hop to another origin if `objection` returns a reason against its port."""

    def __init__(self, fetcher: Fetcher, objection: Callable[[Origin], str | None]) -> None:
        self.via = fetcher.via
        self._fetcher = fetcher
        self._objection = objection

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop and return its outcome."""
        if get.elsewhere and (objection := self._objection(split_url(get.url)[0])):
            return Failed(failure=Failure.REFUSED, detail=f"a redirect to {objection}")
        return await self._fetcher.fetch(get)
