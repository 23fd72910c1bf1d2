"""Turns: who may send the next request to an origin that wants to be left alone in between.

Drives `core.pacing` over the stores: the turn is taken in the store that all share, and when that fails in our own
memory, which has noted every turn of ours. A store that only takes longer than a request may wait defers it: it may
grant that turn yet, and then the turn is lost. Nobody holds a turn in advance. Who cannot be sent away waits in a line,
first come first served, one line an origin; who would wait longer than his patience is told so at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from robots_guard.calls import Calls
from robots_guard.core.pacing import LONGEST_HOLD_OFF, Turn, counted_from
from robots_guard.errors import OutOfTime, StoreError
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, Gate, Handle, NearTurns, Runtime, TurnStore
from robots_guard.tally import Tally

HELD = 256  # requests that wait in line at once, of all origins together
AGAIN = 1.0  # second: when to ask again, where there is no room, or no time, to find out
GRACE = 1.0  # second the store has for granting a turn beyond the patience for it, which may be 0
TELLING = 1.0  # second for which an answer is kept waiting because the store has to be told of it


@dataclass(slots=True)
class _Line:
    """Those who wait for one origin. Who is at the head asks the store; the others do not."""

    head: Gate
    length: int = 0


class Turns:
    """`near` never blocks; `far` is None where turns are shared with nobody."""

    def __init__(
        self,
        *,
        near: NearTurns,
        far: TurnStore | None,
        name: str,
        calls: Calls,
        runtime: Runtime,
        clocks: Clocks,
        tally: Tally,
    ) -> None:
        self._near = near
        self._far = far
        self._runtime = runtime
        self._clocks = clocks
        self._tally = tally
        self._name = name
        self._calls = calls
        self._lines: dict[Origin, _Line] = {}
        self._aside: dict[tuple[Origin, float], Handle[None]] = {}  # turns that are being moved, by their new stamps

    # -- taking one ---------------------------------------------------------------------------------------

    async def _take(self, origin: Origin, delay: float, deadline: float) -> Turn:
        """The origin's turn, or how long until it is worth asking again."""
        if self._far is None:
            return self._near.reserve(origin, delay, self._clocks.now, self._name)
        ours = self._near.next_turn(origin, delay, self._clocks.now())
        if ours.wait:  # a store that comes back, or was begun anew, does not know of the turns we took without it
            return ours
        try:
            within = max(0.0, deadline - self._clocks.monotonic()) + GRACE
            turn = await self._calls.make(self._far.reserve, origin, delay, self._clocks.now, self._name, within=within)
        except OutOfTime as error:
            self._tally.warn("store/error", "a turn is deferred, the policy store may still give it: %s", error)
            return Turn(AGAIN)
        except StoreError as error:
            self._tally.warn("store/error", "turns are not shared, the policy store gives none: %s", error)
            return self._near.reserve(origin, delay, self._clocks.now)
        if turn.by_retry_after:
            self._near.hold_off(origin, turn.wait, turn.asked)
        elif not turn.wait:
            self._near.reserve(origin, 0.0, lambda: turn.asked)  # noted, should the store fail
        return turn

    async def take_within(self, patience: float, origin: Origin, delay: float) -> Turn:
        """The origin's turn, waited for in line, but no longer than `patience` seconds."""
        deadline = self._clocks.monotonic() + patience
        line = self._lines.get(origin)
        ahead = line.length * delay if line else 0.0
        if ahead > patience:
            return Turn(ahead + delay)
        if self.waiting >= HELD:  # no room to wait, but nobody's turn is his for want of it
            return Turn(max(AGAIN, ahead + delay)) if line else await self._take(origin, delay, deadline)
        if line is None:
            line = self._lines[origin] = _Line(self._runtime.gate(1))
        line.length += 1
        try:
            if not await line.head.acquire_within(patience):
                return Turn(max(AGAIN, delay))
            try:
                return await self._take_until(deadline, origin, delay)
            finally:
                line.head.release()
        finally:
            line.length -= 1
            if not line.length:
                self._lines.pop(origin, None)

    async def _take_until(self, deadline: float, origin: Origin, delay: float) -> Turn:
        while True:
            turn = await self._take(origin, delay, deadline)
            if not turn.wait or self._clocks.monotonic() + turn.wait > deadline:
                return turn
            await self._runtime.sleep(turn.wait)

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return sum(line.length for line in self._lines.values())

    # -- what becomes of it -------------------------------------------------------------------------------

    async def count_from(self, origin: Origin, turn: Turn, since: float) -> None:
        """The turn counts from `since` seconds after it was taken."""
        aside = self._aside.get((origin, turn.stamp))
        if aside is not None:  # the store must not hear of this first
            await self._runtime.wait(aside)
        self._near.count_from(origin, turn.stamp, since)
        if self._far is not None:
            with self._if_it_fails():
                await self._calls.make(self._far.count_from, origin, turn.stamp, since, within=TELLING)

    def count_aside(self, origin: Origin, turn: Turn, since: float) -> Turn:
        """The same, without waiting for the store. Returns the turn as it is named from now on."""
        moved = turn._replace(stamp=counted_from(turn.stamp, since))
        self._near.count_from(origin, turn.stamp, since)
        if self._far is not None:
            aside = self._runtime.spawn(self._count_far(self._far, origin, turn, since, moved))
            if not aside.done():
                self._aside[origin, moved.stamp] = aside
        return moved

    async def _count_far(self, far: TurnStore, origin: Origin, turn: Turn, since: float, moved: Turn) -> None:
        try:
            with self._if_it_fails():
                await self._calls.make(far.count_from, origin, turn.stamp, since)
        finally:
            self._aside.pop((origin, moved.stamp), None)

    async def hold_off(self, origin: Origin, seconds: float) -> None:
        """The origin has asked to be left alone for so long."""
        seconds, now = min(seconds, LONGEST_HOLD_OFF), self._clocks.now()
        self._near.hold_off(origin, seconds, now)
        if self._far is not None:
            with self._if_it_fails():
                await self._calls.make(self._far.hold_off, origin, seconds, now, within=TELLING)

    def is_held_off(self, origin: Origin) -> bool:
        """Whether the origin has asked us, or others as far as we have heard, to be left alone now."""
        return self._near.is_held_off(origin, self._clocks.now())

    @contextlib.contextmanager
    def _if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._tally.warn("store/error", "the policy store was not told of a turn, others may not know: %s", error)
