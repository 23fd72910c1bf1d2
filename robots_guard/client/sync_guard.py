"""The guard of a program without asyncio, or of code that cannot await.

The guard has a thread that runs an event loop. So its methods can be called from any other thread,
also from one in which another event loop is running. The thread is a daemon, so that it never keeps
a process alive. When the loop is stopped, the thread runs a last coroutine, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Self, TypeVar

from robots_guard.client.async_guard import Permission, admit, answer
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.decisions.component import Component
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


def open_sync(agent: str | None = None, *, config: str | None = None, **settings: Any) -> SyncGuard:
    """Open a guard whose methods wait instead of being awaited. The arguments are those of `open`.

    >>> with robots_guard.open_sync("mybot") as guard:
    ...     permission = guard.can_fetch(site + "/private/x")
    >>> bool(permission), permission.rule, permission.line
    (False, 'Disallow: /private/', 2)
    """
    return SyncGuard(open_gate(Component.PYTHON, agent, config, settings))


class SyncGuard:
    """Answers for one program whether URLs may be requested. Its methods may be called from any
    thread. After a fork, they raise ClosedGuard in the child.

    It is closed at the end of its `with` block, by `close`, or when the program ends.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        try:
            self._background = BackgroundLoop(gate.close)
        except BaseException:
            gate.close_guard()
            raise
        self._finalizer = weakref.finalize(self, self._background.close)

    def can_fetch(self, url: str, *, method: str = "GET") -> Permission:
        """Return whether a URL may be requested now; see `AsyncGuard.can_fetch`."""
        return self.run(partial(answer, self.gate, url, method))

    def admit(self, url: str, *, method: str = "GET") -> SyncPassage:
        """Admit a request that is sent at once; see `AsyncGuard.admit`."""
        return SyncPassage(self, self.run(partial(admit, self.gate, url, method)))

    @contextlib.contextmanager
    def turn(self, url: str, *, method: str = "GET") -> Iterator[SyncPassage]:
        """Admit a request, which is sent in the block; see `AsyncGuard.turn`."""
        passage = self.admit(url, method=method)
        passage.use()
        try:
            yield passage
        finally:
            passage.end()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the thread of this guard, and wait for it. Raises ClosedGuard."""
        return self._background.run(work)

    def close(self) -> None:
        """Close the guard. Requests that wait for their turn end with ClosedGuard."""
        self._finalizer()

    def __enter__(self) -> Self:
        """Return the guard."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the guard."""
        self.close()


class SyncPassage:
    """A passage whose methods wait; see `Passage`."""

    def __init__(self, guard: SyncGuard, passage: Passage) -> None:
        self._guard = guard
        self.passage = passage

    def use(self) -> None:
        """Count the turn from now. Raises RequestRefused if the request may not be sent."""
        self._guard.run(self.passage.use)

    def respond(self, status: int, retry_after: str = "") -> None:
        """Note that the response has begun."""
        self._guard.run(partial(self.passage.respond, status, retry_after))

    def end(self) -> None:
        """Note that the request has ended."""
        self._guard.run(self.passage.end)
