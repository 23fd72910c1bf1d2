"""The Runtime of asyncio: Scrapy's asyncio reactor, Scrapy without a reactor, mitmproxy, the command line.

Holds no loop: it uses the one that runs when it is called. Its threads are its own, because asyncio's default
executor also resolves host names: a hanging store must not stop DNS.
`THREADS` are as many as all calls together can hold: a hung store stops neither the log nor the compiling of a large
robots.txt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from robots_guard.calls import LOG_WIDTH, RULES_WIDTH, STORE_WIDTH
from robots_guard.ports import Gate, Handle
from robots_guard.threads import Threads

T = TypeVar("T")

THREADS = STORE_WIDTH + LOG_WIDTH + RULES_WIDTH


class _Gate:
    """Lets so many in at a time, first come, first served.

    Unlike asyncio's semaphore it belongs to no loop: a guard may be used in one after another (`asyncio.run` twice).
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait to be let in."""
        await self.acquire_within(None)

    async def acquire_within(self, seconds: float | None) -> bool:
        """Wait, with an end."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await asyncio.wait({place}, timeout=seconds)
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if not place.done():
            self._waiting.remove(place)
        return place.done()

    def _leave(self, place: asyncio.Future[None]) -> None:
        if place.done():
            self.release()
        else:
            self._waiting.remove(place)

    def release(self) -> None:
        """Let the next one in."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1


class AsyncioRuntime:
    """Runs coroutines on the running event loop."""

    def __init__(self) -> None:
        self._threads = Threads(THREADS, "robots_guard")
        self._running: set[asyncio.Future[Any]] = set()  # the loop keeps only weak references to tasks

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start a task, which may be eager (mitmproxy 12)."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, handle: Handle[T]) -> T:
        """The task's result; the task is shielded from our cancellation."""
        return await asyncio.shield(cast("asyncio.Future[T]", handle))

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait, with an end."""
        await asyncio.wait({cast("asyncio.Future[Any]", handle)}, timeout=seconds)
        return handle.done()

    def gate(self, width: int) -> Gate:
        """A gate that belongs to no loop."""
        return _Gate(width)

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run."""
        await asyncio.sleep(seconds)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call in a thread."""
        return await asyncio.wrap_future(self._threads.submit(function, *args))

    def close(self) -> None:
        """Let the threads go."""
        self._threads.close()
