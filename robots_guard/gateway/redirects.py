"""Redirects: a robots.txt may redirect only to ports that the operator lets clients of the proxy reach.

The site chooses where its robots.txt redirects to; `connect_ports` limits this, for pages and
robots.txt alike. It is checked before a connection is made.
"""

from __future__ import annotations

from collections.abc import Callable

from robots_guard.core.access import Failed, Failure, FetchOutcome, Get
from robots_guard.origin import Origin, split_url
from robots_guard.ports import Fetcher


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
