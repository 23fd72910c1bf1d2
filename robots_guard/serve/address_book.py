"""The addresses to which a data plane connects, one for each host.

A data plane that resolved names itself could connect to another address than the one that was
judged: the name server may answer differently the second time, and Envoy tries a name's further
addresses by itself if the first one does not answer. So this process resolves the name, checks
every address, and hands one to the data plane.

Invariant: an address is returned only if the operator's policy permits all addresses of its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from cachetools import TTLCache

from robots_guard.core.addresses import Address, Networks, literal
from robots_guard.fetch.destinations import Destinations, lookup

_CACHED_NAMES = 16_384  # names
_CACHE_SECONDS = 30.0  # for which the result of a name is used
_LOOKUP_TIMEOUT = 5.0  # seconds


class AddressBook:
    """Finds the address of each host. `allowed` are the private networks that may be reached, and
    `monotonic` is a clock, in seconds."""

    def __init__(self, allowed: Networks, monotonic: Callable[[], float]) -> None:
        self._destinations = Destinations(allowed=allowed)
        self._known: TTLCache[str, Address | None] = TTLCache(
            _CACHED_NAMES, _CACHE_SECONDS, timer=monotonic
        )
        self._lookups: dict[str, Future[tuple[Address, ...]]] = {}

    async def address_of(self, host: str) -> Address | None:
        """Return the address of a host; None if it has none, or one that may not be reached.

        Concurrent calls for one host share a lookup.
        """
        try:
            return self._known[host]
        except KeyError:
            pass
        own = literal(host)
        if own is not None:
            return self._choose(host, (own,))
        found = self._lookups.get(host)
        if found is None:
            found = self._lookups[host] = lookup(host, 0)
        try:
            return self._choose(host, await _result_in_time(found))
        except OSError:  # or TimeoutError, a subclass. Not cached: the next request looks up again.
            return None
        finally:
            self._lookups.pop(host, None)

    def _choose(self, host: str, found: tuple[Address, ...]) -> Address | None:
        """Return the first address, which the system prefers (RFC 6724)."""
        objection = self._destinations.objection(found, public_only=False)
        chosen = found[0] if found and objection is None else None
        self._known[host] = chosen
        return chosen


async def _result_in_time(found: Future[tuple[Address, ...]]) -> tuple[Address, ...]:
    """Await the addresses of a name. Raises OSError if it has none, or the name server is slow."""
    async with asyncio.timeout(_LOOKUP_TIMEOUT):
        # Other requests may wait for the same result.
        return await asyncio.shield(asyncio.wrap_future(found))
