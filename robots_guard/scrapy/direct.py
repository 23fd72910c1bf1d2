"""Direct fetching inside Scrapy, where there may be no asyncio loop: then on a loop of its own, in a thread.

The thread is begun by the first fetch and ended with the crawl. It is not one of the guard's own: a site that hangs
must not keep a thread from the store.
"""

from __future__ import annotations

import asyncio

from scrapy.utils.asyncio import is_asyncio_available

from robots_guard.core.access import Failed, Failure, FetchOutcome, Get
from robots_guard.ports import Fetcher
from robots_guard.scrapy.runtime import from_thread
from robots_guard.threads import NoThread, start


class DirectFetcher:
    """A Fetcher over another one that needs asyncio."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.via = fetcher.via
        self._fetcher = fetcher
        self._has_loop = is_asyncio_available()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop."""
        if self._has_loop:
            return await self._fetcher.fetch(get)
        try:
            loop = self._own_loop()
        except NoThread as error:
            return Failed(failure=Failure.INTERNAL, detail=f"there is no thread to fetch in: {error}")
        return await from_thread(asyncio.run_coroutine_threadsafe(self._fetcher.fetch(get), loop))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = _started_loop()
        return self._loop

    def close(self) -> None:
        """End the thread. Fetches under way are given up."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _started_loop() -> asyncio.AbstractEventLoop:
    """A loop that runs in a thread. Raises NoThread."""
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
        under_way = asyncio.all_tasks(loop)
        for task in under_way:
            task.cancel()
        if under_way:
            loop.run_until_complete(asyncio.wait(under_way))
    finally:
        loop.close()
