"""The Runtime for asyncio: Scrapy's asyncio reactor, Scrapy without a reactor, mitmproxy, the
command line.

It uses the event loop that is running when it is called. The guard may have as many threads as all its
pending calls together can occupy (`THREADS` by default): a hung store stops neither the audit log nor
the compiling of a large robots.txt.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from robots_guard.guard.calls import STORE_WIDTH, threads_for
from robots_guard.guard.threads import Threads
from robots_guard.ports import Handle, Semaphore

T = TypeVar("T")

THREADS = threads_for(STORE_WIDTH)


class _LoopFreeSemaphore:
    """A semaphore for `width` holders, first come, first served.

    Unlike asyncio's it is not bound to an event loop: a guard may be used in one loop after another
    (`asyncio.run` twice).
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def acquire(self) -> None:
        """Wait for a free slot and take it."""
        await self.acquire_within(None)

    async def acquire_within(self, seconds: float | None) -> bool:
        """Wait at most `seconds` (None: without limit) for a slot; return whether it was taken."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        loop = asyncio.get_running_loop()
        place: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(place)
        timer = None if seconds is None else loop.call_later(seconds, self._time_out, place)
        try:
            return await place
        except asyncio.CancelledError:
            self._leave(place)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _time_out(self, place: asyncio.Future[bool]) -> None:
        if not place.done():
            self._waiting.remove(place)
            place.set_result(False)

    def _leave(self, place: asyncio.Future[bool]) -> None:
        """Give up a place, or the slot that it was given while its task was cancelled."""
        if not place.cancelled():
            if place.result():
                self.release()
        elif place in self._waiting:
            self._waiting.remove(place)

    def release(self) -> None:
        """Give the slot to the next waiter, if any."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # its task was cancelled and has not run since
                place.set_result(True)
                return
        self._free += 1


class ThreadedRuntime(ABC):
    """The half of a Runtime that does not depend on its loop: a pool of threads of its own.

    The loop's or reactor's own threads also resolve host names, and a hanging store must not stop DNS.
    """

    def __init__(self) -> None:
        self._threads = Threads(THREADS, "robots_guard")

    @abstractmethod
    async def result(self, work: Future[T]) -> T:
        """Wait for a call in a thread."""

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call the function in a thread."""
        return self._threads.submit(function, *args)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call the function in a thread and return its result."""
        return await self.result(self.submit(function, *args))

    def allow_threads(self, count: int) -> None:
        """Let the pool have `count` threads."""
        self._threads.allow(count)

    def close(self) -> None:
        """Stop the threads once they are idle."""
        self._threads.close()


class AsyncioRuntime(ThreadedRuntime):
    """Runs coroutines on the running event loop."""

    def __init__(self) -> None:
        super().__init__()
        # The loop keeps only weak references to tasks.
        self._running: set[asyncio.Future[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start a task. It may run eagerly (mitmproxy 12)."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, handle: Handle[T]) -> T:
        """Return the task's result; cancelling the waiter does not cancel the task."""
        return await asyncio.shield(cast("asyncio.Future[T]", handle))

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait at most `seconds` for the task; return whether it has ended."""
        await asyncio.wait({cast("asyncio.Future[Any]", handle)}, timeout=seconds)
        return handle.done()

    def semaphore(self, width: int) -> Semaphore:
        """Return a semaphore that is not bound to an event loop."""
        return _LoopFreeSemaphore(width)

    async def sleep(self, seconds: float) -> None:
        """Sleep while other tasks run."""
        await asyncio.sleep(seconds)

    def cancel(self, handle: Handle[Any]) -> None:
        """Cancel the task, if it has not ended."""
        cast("asyncio.Future[Any]", handle).cancel()

    async def result(self, work: Future[T]) -> T:
        """Wait for the call by a future of the loop."""
        return await asyncio.wrap_future(work)
