"""Blocking calls to a store or the audit log. A call may hang, so the coroutine waits for a bounded
time. The parsing of a large robots.txt is also such a call, because the system may refuse a thread
for it.

A call runs in one of the guard's threads. A thread cannot be stopped from outside, so a call that
hangs keeps its thread; only the wait for it ends. A target is down if a call to it has overrun and
no call has returned since that call began. Further calls then fail at once until a pending one
returns. Every 30 seconds one more call is made, in case only that call's connection hung.

A call to a store on the same machine usually returns sooner than an event loop can switch to
another task and back. Therefore the thread of the loop first blocks until the call returns, and
runs no other task meanwhile.

Invariant: a call blocks the loop for at most `BLOCKING_WAIT`, or `LOCAL_BLOCKING_WAIT` if its
target is on this machine. If calls take longer than that, they block it for at most 1 % of the
time. Neither a lock nor a disk that hangs can block it for longer.
Invariant: at most `width` calls of one kind are in threads, or queued where the system has refused
a thread. A hung disk therefore costs `width` threads, once, and no memory; the other threads stay
free for other calls. A call that cannot be made, because there is no thread or the guard is closed,
fails like a call to a store that is down.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

from robots_guard.errors import OutOfTime, StoreError
from robots_guard.guard.counters import Counters
from robots_guard.guard.threads import NoThread
from robots_guard.ports import Clocks, Handle, Runtime

T = TypeVar("T")

STORE_WIDTH = 4  # unless the settings say otherwise
LOG_WIDTH = 2
RULES_WIDTH = 2


def threads_for(store_width: int) -> int:
    """Return the number of threads that all pending calls of a guard together can occupy."""
    return store_width + LOG_WIDTH + RULES_WIDTH


#: Seconds a call may take. SQLite gives up waiting for a lock after 5 s (`BUSY`), Redis for a reply
#: after 0.2 s unless its URL says otherwise, so a call that takes longer hangs. A lease outlasts
#: its fetch by the same time (`single_flight.MARGIN`). Time spent waiting for a free slot does not
#: count: a store may be busy.
CALL_TIMEOUT = 5.0
PROBE_INTERVAL = 30.0  # seconds from one call to a target that is down to the next

#: Seconds for which a call may block the event loop: about as long as switching to other tasks and
#: back takes.
BLOCKING_WAIT = 0.0003
#: The same for a target on this machine, whose calls mostly compute. A loop that goes on meanwhile
#: competes with the call for the interpreter's lock, for which a thread may wait so long each time.
LOCAL_BLOCKING_WAIT = sys.getswitchinterval()
#: How long no call blocks the loop after one that took longer, as a multiple of that limit.
BLOCKING_PAUSE = 100


class _Call(Generic[T]):
    """One pending call, and the thread that makes it."""

    def __init__(self, began: float, thread: Future[T]) -> None:
        self.began = began
        self.thread = thread
        self.is_given_up = False
        self.work: Handle[None] | None = None  # waits for the thread


class Calls:
    """Calls to one target. `what` names it in messages, such as "the policy store".

    At most `width` calls are pending. A call that fails after its caller gave up is counted under
    `kind`. With `is_local`, the calls only use what is on this machine.
    """

    def __init__(
        self,
        what: str,
        width: int,
        *,
        kind: str,
        runtime: Runtime,
        clocks: Clocks,
        counters: Counters,
        is_local: bool = False,
    ) -> None:
        self._what = what
        self._width = width
        self._kind = kind
        self._runtime = runtime
        self._clocks = clocks
        self._counters = counters
        self._blocking_wait = LOCAL_BLOCKING_WAIT if is_local else BLOCKING_WAIT
        self._may_block_from = -math.inf  # on the monotonic clock
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start with no pending calls: a forked child has none of its parent's threads."""
        self._room = self._runtime.semaphore(self._width)
        self._pending: list[_Call[Any]] = []  # in the order in which they began
        self._last_return = -math.inf

    async def make(
        self,
        function: Callable[..., T],
        *args: Any,
        within: float = math.inf,
        undo: Callable[[T], Any] | None = None,
    ) -> T:
        """Call the function in a thread; return its result or raise its exception.

        Raises StoreError if the call cannot be made, takes longer than `CALL_TIMEOUT` or its target is
        down, and OutOfTime if it takes longer than `within` seconds. A call that takes too long
        continues; `undo`, if given, is then called in a thread with its result.
        """
        deadline = self._clocks.monotonic() + within
        await self._enter(deadline, within)
        call = self._begin(function, args)
        seconds = max(0.0, min(CALL_TIMEOUT, deadline - call.began))
        if self._block_for(call, seconds):
            self._end(call)
            return self._result(call)
        if await self._wait_for(call, seconds, undo):
            return self._result(call)
        if seconds < CALL_TIMEOUT:
            raise self._out_of_time(within)
        raise StoreError(f"no answer from {self._what} within {CALL_TIMEOUT:g} s")

    def _begin(self, function: Callable[..., T], args: tuple[Any, ...]) -> _Call[T]:
        """Make the call in a thread. Raises StoreError if there is none."""
        began = self._clocks.monotonic()
        try:
            call = _Call(began, self._runtime.submit(function, *args))
        except NoThread as error:
            self._room.release()
            raise self._no_thread(error) from error
        self._pending.append(call)
        return call

    def _block_for(self, call: _Call[Any], seconds: float) -> bool:
        """Block the event loop for a short time, unless an earlier call has just taken longer.
        Returns whether the call has ended."""
        if call.began < self._may_block_from:
            return False
        with contextlib.suppress(TimeoutError, CancelledError):  # `_result` raises the latter
            call.thread.exception(min(self._blocking_wait, seconds))
        if not call.thread.done():
            pause = BLOCKING_PAUSE * self._blocking_wait
            self._may_block_from = self._clocks.monotonic() + pause
        return call.thread.done()

    async def _wait_for(
        self, call: _Call[T], seconds: float, undo: Callable[[T], Any] | None
    ) -> bool:
        """Wait for the call for so many seconds, while other tasks run. Returns whether it has
        ended; if not, its caller gives it up."""
        ended = False
        try:
            call.work = work = self._runtime.spawn(self._finish(call, undo))
            ended = work.done() or await self._runtime.wait_at_most(work, seconds)
        finally:  # also if the caller is cancelled
            call.is_given_up = not ended
        return ended

    def _result(self, call: _Call[T]) -> T:
        """Return the result of a call that has ended, or raise its exception."""
        try:
            if call.thread.done():
                return call.thread.result()
        except NoThread as error:
            raise self._no_thread(error) from error
        except CancelledError:
            pass
        raise StoreError(f"a call to {self._what} was cancelled")

    def _no_thread(self, error: NoThread) -> StoreError:
        return StoreError(f"{self._what} cannot be called: {error}")

    async def _enter(self, deadline: float, within: float) -> None:
        """Wait for a free slot. A busy store frees one eventually; a hung one turns out to be
        down."""
        self._release_unstarted()
        while (until_down := self._until_down(self._clocks.monotonic())) > 0:
            left = max(0.0, deadline - self._clocks.monotonic())
            if await self._room.acquire_within(min(left, until_down)):
                return
            if left <= until_down:
                raise self._out_of_time(within)
        raise StoreError(f"{self._what} hangs; no further calls until it answers")

    def _release_unstarted(self) -> None:
        """Free the slots of calls whose task was cancelled before it started, as when an event loop
        ends.

        Such a task cannot free its slot itself.
        """
        for call in list(self._pending):
            if call.work is not None and call.work.done():
                self._leave(call)

    def _end(self, call: _Call[Any]) -> None:
        """Note that a call has returned, and free its slot."""
        self._last_return = self._clocks.monotonic()
        self._leave(call)

    def _leave(self, call: _Call[Any]) -> None:
        """Free the slot of a call, unless the call belongs to the parent process."""
        if call in self._pending:
            self._pending.remove(call)
            self._room.release()

    def _until_down(self, now: float) -> float:
        """Return the seconds until the target counts as down, unless a call returns before."""
        unanswered = next((call for call in self._pending if call.began >= self._last_return), None)
        if unanswered is None:
            return CALL_TIMEOUT
        is_probe_due = now - self._pending[-1].began >= PROBE_INTERVAL
        if is_probe_due and len(self._pending) < self._width:
            return CALL_TIMEOUT
        return unanswered.began + CALL_TIMEOUT - now

    def _out_of_time(self, within: float) -> OutOfTime:
        return OutOfTime(f"no answer from {self._what} within {within:.1f} s")

    async def _finish(self, call: _Call[T], undo: Callable[[T], Any] | None) -> None:
        """Wait for the call, finish it if its caller has given up, and free its slot."""
        try:
            with contextlib.suppress(Exception):  # `_result` raises it
                await self._runtime.result(call.thread)
            if call.is_given_up:
                await self._finish_late(call, undo)
        finally:
            self._end(call)

    async def _finish_late(self, call: _Call[T], undo: Callable[[T], Any] | None) -> None:
        """Undo a call whose caller gave up waiting, or count its failure."""
        try:
            result = self._result(call)
            if undo is not None:
                await self._runtime.in_thread(undo, result)
        except Exception as error:  # noqa: BLE001  no caller is left to raise it in
            self._counters.warn(
                self._kind, f"a call to {self._what} failed after its caller gave up: %s", error
            )
