"""Where a fetch of ours may go: the host is resolved once, every address is looked at, and only those are used.

An attacker's robots.txt may redirect to a machine inside, and an attacker's name may resolve to one. So a
redirect from a public site leads to public addresses only, whatever is allowed; and a private address is
reached because the operator allowed it, or because whoever asks for the origin could go there anyhow.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import ResolveResult

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


class CheckedResolver(aiohttp.ThreadedResolver):
    """Resolves for one visit; aiohttp then connects to just these addresses, under the host's name."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self._visit = visit

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses, all of them allowed. Raises Refused, and OSError for a name that has none."""
        results = await super().resolve(host, port, family)
        self._visit.check(filter(None, (literal(result["host"]) for result in results)))
        return results


def addresses_of(host: str, port: int) -> tuple[Address, ...]:
    """What a host resolves to, for who has no resolver of his own. Blocks. Raises OSError."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(filter(None, (literal(str(info[4][0])) for info in infos)))
