"""How coroutines run inside Scrapy: on asyncio, or on any other Twisted reactor.

Under asyncio only futures can be awaited, under another reactor only Deferreds. Both runtimes here know two
things more than the guard asks of them, which a fetch needs: to give work up, and to wait for another's thread.
The reactor is imported inside functions: Scrapy without a reactor forbids the import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar, cast

from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from robots_guard.ports import Gate, Handle, Runtime
from robots_guard.runtime import THREADS, AsyncioRuntime
from robots_guard.threads import Threads

T = TypeVar("T")

#: What a coroutine sees when its work is given up.
GIVEN_UP = (asyncio.CancelledError, defer.CancelledError)


class HostRuntime(Runtime, Protocol):
    """A Runtime that can also give work up, and wait for another thread's."""

    def cancel(self, handle: Handle[Any]) -> None:
        """Give the work up, if it has not ended."""
        ...

    async def result(self, work: Future[T]) -> T:
        """What another thread is working on."""
        ...


def host_runtime() -> HostRuntime:
    """The runtime for the loop or reactor that runs, or is going to run, this crawl."""
    return AsyncioHostRuntime() if is_asyncio_available() else TwistedRuntime()


class AsyncioHostRuntime(AsyncioRuntime):
    """Scrapy on the asyncio reactor, or without a reactor."""

    def cancel(self, handle: Handle[Any]) -> None:
        """Cancel the task."""
        cast("asyncio.Future[Any]", handle).cancel()

    async def result(self, work: Future[T]) -> T:
        """As a future of the loop."""
        return await asyncio.wrap_future(work)


class _Work(Generic[T]):
    """A coroutine under way, and all who wait for it. Each gets a Deferred of its own, so that cancelling or
    failing one is not felt by the others."""

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
            waiter.callback(cast("T", self._result))  # a Failure given to callback takes the error path
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
        """Wait, with an end."""
        from twisted.internet import reactor

        try:
            await self.acquire().addTimeout(max(0.0, seconds), cast("Any", reactor))
        except defer.TimeoutError:
            return False
        return True


class TwistedRuntime:
    """Scrapy on a reactor other than asyncio's (epoll, poll, select)."""

    def __init__(self) -> None:
        # Its own, as the reactor's ten threads also resolve host names: a hanging store must not stop DNS.
        self._threads = Threads(THREADS, "robots_guard")

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start the coroutine; it runs to its first wait at once."""
        return _Work(work)

    async def wait(self, handle: Handle[T]) -> T:
        """The work's result, through a Deferred of the waiter's own."""
        return await cast("_Work[T]", handle).waiter()

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait, with an end."""
        from twisted.internet import reactor

        work = cast("_Work[Any]", handle)
        try:
            await work.waiter().addTimeout(seconds, cast("Any", reactor))
        except Exception:  # noqa: BLE001  a timeout, or the work's own failure, which `wait` will tell
            return work.done()
        return True

    def gate(self, width: int) -> Gate:
        """Twisted's own semaphore."""
        return _TwistedSemaphore(width)

    def cancel(self, handle: Handle[Any]) -> None:
        """Cancel the coroutine."""
        cast("_Work[Any]", handle).deferred.cancel()

    async def result(self, work: Future[T]) -> T:
        """As a Deferred."""
        return await from_thread(work)

    async def sleep(self, seconds: float) -> None:
        """Let the reactor run."""
        from twisted.internet import reactor, task

        await task.deferLater(cast("Any", reactor), seconds, lambda: None)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call in a thread; the answer comes back by the reactor's own thread."""
        return await from_thread(self._threads.submit(function, *args))

    def close(self) -> None:
        """Let the threads go."""
        self._threads.close()


def from_thread(work: Future[T]) -> Deferred[T]:
    """What another thread is working on, as a Deferred that fires in the reactor's own thread. It fails with
    CancelledError if the work is cancelled."""
    from twisted.internet import reactor

    answer: Deferred[T] = Deferred()

    def deliver(done: Future[T]) -> None:
        if answer.called:  # given up
            return
        if done.cancelled():
            answer.errback(defer.CancelledError())
            return
        error = done.exception()
        if error is None:
            answer.callback(done.result())
        else:
            answer.errback(error)

    def ended(done: Future[T]) -> None:  # still in the worker thread
        cast("Any", reactor).callFromThread(deliver, done)

    work.add_done_callback(ended)
    return answer
