"""Calls that may hang (of a store, of the log), each with an end for the coroutine that makes it.

A call is made in one of the guard's threads. The thread cannot be ended from outside, so a call that hangs keeps its
thread; what ends is the wait for it.
Invariant: at most `width` calls of one kind are in threads, and none lies in a queue. A hung disk therefore costs so
many threads, once, and no memory; what other calls need of the threads is left to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from robots_guard.errors import OutOfTime, StoreError
from robots_guard.ports import Clocks, Runtime
from robots_guard.tally import Tally

T = TypeVar("T")

STORE_WIDTH = 4
LOG_WIDTH = 2

#: Seconds a call may take. SQLite itself gives up a lock after 5 s (`BUSY`), Redis an answer after 0.2 s unless its
#: URL says otherwise: what takes longer than this is not slow, it hangs. A lease outlasts its fetch by as much
#: (`renewing.MARGIN`), and seven such calls fit into the default `decision_timeout`.
LONGEST = 5.0


class _Call(Generic[T]):
    """One call under way, and what came of it."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.is_given_up = False
        self._result: T
        self.error: Exception | None = None

    def end(self, result: T) -> None:
        self._result = result

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._result


class Calls:
    """Calls of `what`, such as "the policy store". Those under way are counted against `width`."""

    def __init__(self, what: str, width: int, *, runtime: Runtime, clocks: Clocks, tally: Tally) -> None:
        self._what = what
        self._width = width
        self._runtime = runtime
        self._clocks = clocks
        self._tally = tally
        self._room = runtime.gate(width)
        self._under_way: list[_Call[Any]] = []  # in the order in which they began

    async def make(
        self,
        function: Callable[..., T],
        *args: Any,
        within: float = math.inf,
        undo: Callable[[T], Any] | None = None,
    ) -> T:
        """What the function returns or raises.

        Raises StoreError if that takes longer than `LONGEST` or if what is called is down, and OutOfTime if it takes
        longer than `within` seconds. The call itself goes on; `undo` is then called in the same thread with what it
        returns.
        """
        seconds = min(within, LONGEST)
        deadline = self._clocks.monotonic() + seconds
        if self.is_down():
            raise StoreError(f"{self._what} hangs: {self._width} calls have had no answer for {LONGEST:g} s")
        if not await self._room.acquire_within(seconds):
            raise self._unanswered(within)
        call: _Call[T] = _Call(self._clocks.monotonic())
        self._under_way.append(call)
        ended = False
        try:
            work = self._runtime.spawn(self._drive(call, function, args, undo))
            left = max(0.0, deadline - call.began)
            ended = work.done() or await self._runtime.wait_at_most(work, left)
        finally:  # also if the caller is cancelled
            call.is_given_up = not ended
        if not ended:
            raise self._unanswered(within)
        return call.result()

    def is_down(self) -> bool:
        """Whether every call there may be has overrun. It is over when one of them ends."""
        calls = self._under_way
        return len(calls) >= self._width and self._clocks.monotonic() - calls[-1].began >= LONGEST

    async def _drive(
        self, call: _Call[T], function: Callable[..., T], args: tuple[Any, ...], undo: Callable[[T], Any] | None
    ) -> None:
        try:
            await self._drive_to_end(call, function, args)
            if call.is_given_up:
                await self._end_late(call, undo)
        finally:
            self._under_way.remove(call)
            self._room.release()

    async def _drive_to_end(self, call: _Call[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            call.end(await self._runtime.in_thread(function, *args))
        except Exception as error:  # noqa: BLE001  it is the caller's
            call.error = error

    async def _end_late(self, call: _Call[T], undo: Callable[[T], Any] | None) -> None:
        """The caller has gone on without an answer: take back what the call did, and count how it failed."""
        try:
            result = call.result()
            if undo is not None:
                await self._runtime.in_thread(undo, result)
        except Exception as error:  # noqa: BLE001  there is no caller any more
            self._tally.warn("store/error", f"a call of {self._what} that was given up has failed: %s", error)

    def _unanswered(self, within: float) -> StoreError:
        if within < LONGEST:
            return OutOfTime(f"no answer of {self._what} within {within:.1f} s")
        return StoreError(f"no answer of {self._what} within {LONGEST:g} s")
