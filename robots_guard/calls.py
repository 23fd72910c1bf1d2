"""Calls to a store or the log, which may hang: the coroutine that makes one waits for a bounded time.
So does the one that has a large robots.txt parsed: the system may have no thread for that.

A call is made in one of the guard's threads. A thread cannot be ended from outside, so a call that hangs keeps its
thread; only the wait for it ends. A target that has let a call overrun, and has answered none since that call began,
is down: further calls fail at once until one under way ends. Every 30 seconds one more is made, in case only the
call's own connection hung.
Invariant: at most `width` calls of one kind are in threads, or queued where the system has refused a thread. A hung
disk therefore costs `width` threads, once, and no memory; the other threads stay free for other calls.
A call that is not made, because there is no thread for it or the guard is closed, fails as one to a store that is down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from robots_guard.errors import OutOfTime, StoreError
from robots_guard.ports import Clocks, Runtime
from robots_guard.tally import Tally
from robots_guard.threads import NoThread

T = TypeVar("T")

STORE_WIDTH = 4
LOG_WIDTH = 2
RULES_WIDTH = 2

#: Seconds a call may take. SQLite itself gives up a lock after 5 s (`BUSY`), Redis an answer after 0.2 s unless its
#: URL says otherwise: what takes longer than this is not slow, it hangs. A lease outlasts its fetch by as much
#: (`renewing.MARGIN`). The time spent waiting for room is not part of it: a store may be busy.
LONGEST = 5.0
REST = 30.0  # seconds between two calls of what is down


class _Call(Generic[T]):
    """One call under way, and what came of it: nothing, if its work is cancelled."""

    def __init__(self, began: float, what: str) -> None:
        self.began = began
        self.is_given_up = False
        self._result: T
        self.error: Exception | None = StoreError(f"a call to {what} was cancelled")

    def end(self, result: T) -> None:
        self._result = result
        self.error = None

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._result


class Calls:
    """Calls to `what`, such as "the policy store". At most `width` are under way; one that fails after its caller has
    given up is counted in the tally under `kind`."""

    def __init__(
        self,
        what: str,
        width: int,
        *,
        kind: str,
        runtime: Runtime,
        clocks: Clocks,
        tally: Tally,
    ) -> None:
        self._what = what
        self._width = width
        self._kind = kind
        self._runtime = runtime
        self._clocks = clocks
        self._tally = tally
        self._room = runtime.gate(width)
        self._under_way: list[_Call[Any]] = []  # in the order in which they began
        self._answered = -math.inf  # when the last call ended

    async def make(
        self,
        function: Callable[..., T],
        *args: Any,
        within: float = math.inf,
        undo: Callable[[T], Any] | None = None,
    ) -> T:
        """Call the function in a thread; return or raise what it does.

        Raises StoreError if the call cannot be made, takes longer than `LONGEST` or its target is down, and OutOfTime
        if it takes longer than `within` seconds. A call that takes too long goes on; if there is an `undo`, it is then
        called in a thread with what the function has returned.
        """
        deadline = self._clocks.monotonic() + within
        await self._enter(deadline, within)
        call: _Call[T] = _Call(self._clocks.monotonic(), self._what)
        self._under_way.append(call)
        seconds = max(0.0, min(LONGEST, deadline - call.began))
        ended = False
        try:
            work = self._runtime.spawn(self._drive(call, function, args, undo))
            ended = work.done() or await self._runtime.wait_at_most(work, seconds)
        finally:  # also if the caller is cancelled
            call.is_given_up = not ended
        if ended:
            return call.result()
        if seconds < LONGEST:
            raise self._out_of_time(within)
        raise StoreError(f"no answer of {self._what} within {LONGEST:g} s")

    async def _enter(self, deadline: float, within: float) -> None:
        """Wait for room. A store that is busy gives it in the end; one that hangs is found to be down."""
        while (until_down := self._until_down(self._clocks.monotonic())) > 0:
            left = max(0.0, deadline - self._clocks.monotonic())
            if await self._room.acquire_within(min(left, until_down)):
                return
            if left <= until_down:
                raise self._out_of_time(within)
        raise StoreError(f"{self._what} hangs, and is left alone until it answers")

    def _until_down(self, now: float) -> float:
        """Seconds until it is down, unless a call ends before."""
        unanswered = next((call for call in self._under_way if call.began >= self._answered), None)
        if unanswered is None:
            return LONGEST
        is_rested = now - self._under_way[-1].began >= REST
        if is_rested and len(self._under_way) < self._width:
            return LONGEST
        return unanswered.began + LONGEST - now

    def _out_of_time(self, within: float) -> OutOfTime:
        return OutOfTime(f"no answer of {self._what} within {within:.1f} s")

    async def _drive(
        self, call: _Call[T], function: Callable[..., T], args: tuple[Any, ...], undo: Callable[[T], Any] | None
    ) -> None:
        try:
            await self._drive_to_end(call, function, args)
            if call.is_given_up:
                await self._end_late(call, undo)
        finally:
            self._under_way.remove(call)
            self._answered = self._clocks.monotonic()
            self._room.release()

    async def _drive_to_end(self, call: _Call[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            call.end(await self._runtime.in_thread(function, *args))
        except NoThread as error:
            call.error = StoreError(f"{self._what} cannot be called: {error}")
        except Exception as error:  # noqa: BLE001  it is the caller's
            call.error = error

    async def _end_late(self, call: _Call[T], undo: Callable[[T], Any] | None) -> None:
        """The caller has gone on without an answer: take back what the call did, and count how it failed."""
        try:
            result = call.result()
            if undo is not None:
                await self._runtime.in_thread(undo, result)
        except Exception as error:  # noqa: BLE001  there is no caller any more
            self._tally.warn(self._kind, f"a call to {self._what} failed after its caller gave up: %s", error)
