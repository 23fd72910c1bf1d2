"""Where a fetch of ours may go: the host is resolved once, every address is looked at, and only those are used.

An attacker's robots.txt may redirect to a machine inside, and an attacker's name may resolve to one. So a
redirect from a public site leads to public addresses only, whatever is allowed; and a private address is
reached because the operator allowed it, or because whoever asks for the origin could go there anyhow.
A name server may also keep us waiting: no lookup shares its thread with anything else.
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

from robots_guard.core.addresses import BAD_PORTS, Address, Networks, covers, is_public, literal


class Refused(Exception):
    """We would not connect there. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """What an operator allows. `trusts_asked`: the origin first asked for may be private, as on a command line."""

    allowed: Networks = ()
    trusts_asked: bool = False

    def objection(self, addresses: Iterable[Address], *, public_only: bool) -> str | None:
        """Why these addresses of one host may not be reached; None if all may be."""
        private = [address for address in addresses if not is_public(address)]
        if not private:
            return None
        if public_only:
            return f"{private[0]} is not public, and a public site redirected there"
        if self.trusts_asked or all(covers(self.allowed, address) for address in private):
            return None
        return f"{private[0]} is not public: allow_private names the networks that may be reached"


class Visit:
    """One hop's way to its host. `public` is whether it was public, None while that is not known."""

    def __init__(self, destinations: Destinations, *, public_only: bool) -> None:
        self.public: bool | None = None
        self._destinations = destinations
        self._public_only = public_only

    def enter(self, host: str, port: int) -> None:
        """Look at a URL before anything is resolved. Raises Refused."""
        if port in BAD_PORTS:
            raise Refused(f"port {port} is none of the web's")
        spelt = literal(host)
        if spelt is not None:
            self.check((spelt,))

    def check(self, addresses: Iterable[Address]) -> None:
        """Look at all addresses of the host. Raises Refused."""
        found = tuple(addresses)
        objection = self._destinations.objection(found, public_only=self._public_only)
        if objection is not None:
            raise Refused(objection)
        self.public = any(map(is_public, found))


class CheckedResolver(AbstractResolver):
    """Resolves for one visit; aiohttp then connects to just these addresses, under the host's name."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses, all of them allowed. Raises Refused, and OSError for a name that has none."""
        found = await asyncio.wrap_future(lookup(host, port, family))
        self._visit.check(found)
        return [
            ResolveResult(
                hostname=host, host=str(each), port=port, family=_FAMILY[each.version], proto=0, flags=_NUMERIC
            )
            for each in found
        ]

    async def close(self) -> None:
        """Nothing to release."""


_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def lookup(host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC) -> Future[tuple[Address, ...]]:
    """What a host resolves to; or OSError, for a name that has no address.

    In a thread of its own, which nobody waits for at the end. A name server that hangs keeps it for half a minute,
    long after the fetch has been given up: in a pool, a few such names would make all others time out as well.
    """
    found: Future[tuple[Address, ...]] = Future()
    threading.Thread(target=_look_up, args=(found, host, port, family), name="robots_guard name", daemon=True).start()
    return found


def _look_up(found: Future[tuple[Address, ...]], host: str, port: int, family: socket.AddressFamily) -> None:
    if not found.set_running_or_notify_cancel():
        return
    try:
        infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found.set_result(tuple(ip_address(info[4][0]) for info in infos))
    except Exception as error:  # noqa: BLE001  whoever waits for it gets it
        found.set_exception(error)
