"""The runtimes that run the guard's coroutines inside Scrapy: on asyncio, or on any other Twisted
reactor.

Under asyncio only futures can be awaited, under another reactor only Deferreds. Beyond the guard's
Runtime protocol, both runtimes support one operation that fetches need: to cancel work. The reactor
is imported inside functions, because Scrapy without a reactor forbids the import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar, cast

from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from robots_guard.guard.runtime import AsyncioRuntime, ThreadedRuntime
from robots_guard.ports import Handle, Runtime, Semaphore

T = TypeVar("T")

#: The exceptions that a cancelled coroutine receives.
CANCELLED = (asyncio.CancelledError, defer.CancelledError)


class ScrapyRuntime(Runtime, Protocol):
    """A Runtime that can also cancel work."""

    def cancel(self, handle: Handle[Any]) -> None:
        """Cancel the work, if it has not ended."""
        ...


def scrapy_runtime() -> ScrapyRuntime:
    """The runtime for the loop or reactor that runs, or will run, this crawl."""
    if is_asyncio_available():
        return AsyncioRuntime()
    return TwistedRuntime()


class _Work(Generic[T]):
    """A running coroutine and its waiters.

    Each waiter gets its own Deferred, so that cancelling or failing one does not affect the others.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._result: T | Failure | None = None
        self._done = False
        self._waiters: list[Deferred[T]] = []
        self.deferred: Deferred[None] = Deferred.fromCoroutine(work).addBoth(self._settle)

    def done(self) -> bool:
        return self._done

    def waiter(self) -> Deferred[T]:
        waiter: Deferred[T] = Deferred()
        if self._done:
            # a Failure given to callback takes the error path
            waiter.callback(cast("T", self._result))
        else:
            self._waiters.append(waiter)
        return waiter

    def _settle(self, result: T | Failure) -> None:
        self._result, self._done = result, True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.called:  # cancelled in the meantime
                waiter.callback(cast("T", result))


class _TwistedSemaphore(defer.DeferredSemaphore):
    async def acquire_within(self, seconds: float) -> bool:
        """Acquire the semaphore. Returns False if that takes longer than some seconds."""
        from twisted.internet import reactor

        try:
            await self.acquire().addTimeout(max(0.0, seconds), cast("Any", reactor))
        except defer.TimeoutError:
            return False
        return True


class TwistedRuntime(ThreadedRuntime):
    """Scrapy on a reactor other than asyncio's (epoll, poll, select)."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start the coroutine, which at once runs to its first wait."""
        return _Work(work)

    async def wait(self, handle: Handle[T]) -> T:
        """Wait for the work's result by a separate Deferred."""
        return await cast("_Work[T]", handle).waiter()

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait for some seconds. Returns whether the work is done."""
        from twisted.internet import reactor

        work = cast("_Work[Any]", handle)
        try:
            await work.waiter().addTimeout(seconds, cast("Any", reactor))
        except Exception:  # noqa: BLE001  a timeout, or the work's own failure, which `wait` will raise
            return work.done()
        return True

    def semaphore(self, width: int) -> Semaphore:
        """Create a semaphore, based on Twisted's."""
        return _TwistedSemaphore(width)

    def cancel(self, handle: Handle[Any]) -> None:
        """Cancel the coroutine."""
        cast("_Work[Any]", handle).deferred.cancel()

    async def result(self, work: Future[T]) -> T:
        """Wait for the work by a Deferred."""
        return await from_thread(work)

    async def sleep(self, seconds: float) -> None:
        """Wait while the reactor runs."""
        from twisted.internet import reactor, task

        await task.deferLater(cast("Any", reactor), seconds, lambda: None)


def from_thread(work: Future[T]) -> Deferred[T]:
    """A Deferred for work in another thread, which fires in the reactor's thread.

    It fails with CancelledError if the work is cancelled.
    """
    from twisted.internet import reactor

    result: Deferred[T] = Deferred()

    def deliver(done: Future[T]) -> None:
        if result.called:  # cancelled
            return
        if done.cancelled():
            result.errback(defer.CancelledError())
            return
        error = done.exception()
        if error is None:
            result.callback(done.result())
        else:
            result.errback(error)

    def deliver_in_reactor(done: Future[T]) -> None:  # runs in the worker thread
        cast("Any", reactor).callFromThread(deliver, done)

    work.add_done_callback(deliver_in_reactor)
    return result
