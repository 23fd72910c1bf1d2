"""Direct fetching inside Scrapy. Without an asyncio loop, it runs on a separate loop in a thread.

The first fetch starts the thread, and the end of the crawl stops it. It is not from the guard's own
pool: a site that hangs must not occupy a thread that the store needs.
"""

from __future__ import annotations

import asyncio

from scrapy.utils.asyncio import is_asyncio_available

from robots_guard.decisions.access import Failed, Failure, FetchOutcome, Get
from robots_guard.guard.threads import NoThread, start
from robots_guard.ports import Fetcher, route_of
from robots_guard.scrapy.runtime import from_thread


class DirectFetcher:
    """A Fetcher that runs another one, which needs asyncio."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.via = fetcher.via
        self.route = route_of(fetcher)
        self._fetcher = fetcher
        self._has_loop = is_asyncio_available()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop. Returns its outcome."""
        if self._has_loop:
            return await self._fetcher.fetch(get)
        try:
            loop = self._own_loop()
        except NoThread as error:
            return Failed(
                failure=Failure.INTERNAL,
                detail=f"no thread could be started for the fetch: {error}",
            )
        return await from_thread(asyncio.run_coroutine_threadsafe(self._fetcher.fetch(get), loop))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = _start_loop()
        return self._loop

    def close(self) -> None:
        """Stop the thread, and cancel its fetches."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _start_loop() -> asyncio.AbstractEventLoop:
    """Start a loop in a new thread. Raises NoThread."""
    loop = asyncio.new_event_loop()
    try:
        start(_run, loop, name="robots_guard fetches")
    except NoThread:
        loop.close()
        raise
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()
