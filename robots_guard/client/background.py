"""The background loop: an event loop in a thread of its own, for callers in any other thread.

The thread is a daemon, so that it never keeps a process alive. When the loop is stopped, the thread
runs a last coroutine, and ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from robots_guard.errors import ClosedGuard
from robots_guard.guard.threads import start

T = TypeVar("T")

CLOSE_TIMEOUT = 12.0  # seconds: what `drain` and `close` of a guard take at most
FORKED = (
    "the guard was opened before this process was forked, and its thread has stayed in the parent:"
    " open another one after the fork"
)
CLOSED = "the guard is closed: open another one"
OWN_THREAD = "a guard of this kind cannot be used from its own thread"


class BackgroundLoop:
    """An event loop in a thread. `at_end` makes the last coroutine, which ends what runs in the
    loop."""

    def __init__(self, at_end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._at_end = at_end
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = start(self._serve, name="robots_guard loop")

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and return its result. Raises ClosedGuard.

        If the wait is interrupted, as by KeyboardInterrupt, the coroutine is cancelled.
        """
        if os.getpid() != self._pid:
            raise ClosedGuard(FORKED)
        if threading.current_thread() is self._thread:
            raise ClosedGuard(OWN_THREAD)
        with self._lock:  # what is begun before the end is ended by it
            if self._is_closed:
                raise ClosedGuard(CLOSED)
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClosedGuard(CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End what runs in the loop, and stop it. Calls after the first, and those in a forked
        child, do nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._at_end())
            loop.run_until_complete(_cancel_others())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _cancel_others() -> None:
    """Cancel what is left, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
