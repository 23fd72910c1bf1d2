"""The addresses that a direct fetch may connect to.

The host is resolved once, every address is checked, and only these addresses are used. An
attacker's robots.txt may redirect to an internal machine, and an attacker's host name may resolve
to one. A redirect from a public site may therefore reach public addresses only, whatever is
allowed. A private address is reached only if the operator allowed it, or if the caller could reach
the origin anyway. A name server may also delay its answer, so each lookup has its own thread.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from ipaddress import ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from robots_guard.decisions.addresses import (
    BAD_PORTS,
    Address,
    Networks,
    covers,
    is_public,
    literal,
)


class DestinationRefused(Exception):
    """The destination is not allowed. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The destinations that the operator allows. `trusts_caller`: the origin that was originally
    requested may be private, as on a command line."""

    allowed: Networks = ()
    trusts_caller: bool = False

    def objection(self, addresses: Iterable[Address], *, public_only: bool) -> str | None:
        """Say why these addresses of one host may not be reached; None if all may be."""
        private = [address for address in addresses if not is_public(address)]
        if not private:
            return None
        if public_only:
            return f"{private[0]} is not public, and a public site redirected there"
        if self.trusts_caller or all(covers(self.allowed, address) for address in private):
            return None
        return f"{private[0]} is not public: allow_private names the networks that may be reached"


class HostVisit:
    """The checks of one hop's host. `public` says whether the host is public, None while that is
    unknown."""

    def __init__(self, destinations: Destinations, *, public_only: bool) -> None:
        self.public: bool | None = None
        self._destinations = destinations
        self._public_only = public_only

    def enter(self, host: str, port: int) -> None:
        """Check a URL's host and port before resolving the host. Raises DestinationRefused."""
        if port in BAD_PORTS:
            raise DestinationRefused(f"port {port} is not used for HTTP")
        address = literal(host)
        if address is not None:
            self.check((address,))

    def check(self, addresses: Iterable[Address]) -> None:
        """Check all addresses of the host. Raises DestinationRefused."""
        found = tuple(addresses)
        objection = self._destinations.objection(found, public_only=self._public_only)
        if objection is not None:
            raise DestinationRefused(objection)
        self.public = any(map(is_public, found))


class CheckedResolver(AbstractResolver):
    """Resolves the host of one visit; aiohttp then connects to exactly these addresses."""

    def __init__(self, visit: HostVisit) -> None:
        self._visit = visit

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses, all allowed. Raises DestinationRefused, and OSError for a name
        without addresses."""
        found = await asyncio.wrap_future(lookup(host, port, family))
        self._visit.check(found)
        return [
            ResolveResult(
                hostname=host,
                host=str(each),
                port=port,
                family=_FAMILY[each.version],
                proto=0,
                flags=_NUMERIC,
            )
            for each in found
        ]

    async def close(self) -> None:
        """Nothing to release."""


_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def lookup(
    host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
) -> Future[tuple[Address, ...]]:
    """Start to resolve a host; the future raises OSError for a name without addresses.

    The lookup has its own daemon thread. A name server that hangs occupies it for half a minute,
    long after the fetch has timed out: in a pool, a few such names would make all other fetches
    time out as well.
    """
    found: Future[tuple[Address, ...]] = Future()
    threading.Thread(
        target=_look_up, args=(found, host, port, family), name="robots_guard name", daemon=True
    ).start()
    return found


def _look_up(
    found: Future[tuple[Address, ...]], host: str, port: int, family: socket.AddressFamily
) -> None:
    if not found.set_running_or_notify_cancel():
        return
    try:
        infos = socket.getaddrinfo(
            host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found.set_result(tuple(ip_address(info[4][0]) for info in infos))
    except Exception as error:  # noqa: BLE001  raised where the future is awaited
        found.set_exception(error)
