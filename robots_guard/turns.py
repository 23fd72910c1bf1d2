"""Turns: which process may send the next request to an origin that requires time between requests.

Drives `core.pacing` over the stores: a turn is taken in the shared store. If that fails, it is taken in this process's
memory, which has noted all of its own turns, in a slot that is the process's own by the store's last answer
(`pacing.Share`). If the store only takes longer than a request may wait, the request is deferred; the store may still
grant that turn, which is then lost. Turns are never reserved in advance. A request that cannot be requeued waits in a
FIFO line, one per origin; one that would wait longer than its patience is refused at once.

Invariant: a returned turn was granted at most `SLACK` ago. One that arrives later is not used.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cachetools import LRUCache

from robots_guard.calls import REST, Calls
from robots_guard.core.pacing import (
    AHEAD,
    LONGEST_HOLD_OFF,
    SLACK,
    Share,
    Turn,
    counted_from,
    has_lapsed,
    lapsed,
    least,
    window,
)
from robots_guard.errors import OutOfTime, StoreError
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, Gate, Handle, NearTurns, Runtime, TurnStore
from robots_guard.tally import Tally

HELD = 256  # requests that wait in line at once, of all origins together
AGAIN = 1.0  # second: when to ask again, where there is no room, or no time, to find out
GRACE = 1.0  # second the store has for granting a turn beyond the patience for it, which may be 0
TELLING = 1.0  # second for which an answer is kept waiting because the store has to be told of it
EARLY = 1.0  # second by which a Retry-After ends before the slot, because it is rounded up to whole seconds
UNWANTED = Turn(AGAIN)  # the answer to a request that may not be made any more
ORIGINS = 100_000  # whose lines are remembered, should the store go away


@dataclass(slots=True)
class _Line:
    """Those who wait for one origin. Who is at the head asks the store; the others do not."""

    head: Gate
    length: int = 0


class _CallAside(NamedTuple):
    """A call for a turn under way, and the delay by which the store grants it."""

    call: Handle[Turn | None]
    delay: float


class Turns:
    """`near` never blocks; `far` is None where turns are not shared."""

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
        self._calls = calls
        self.begin_in_child(name)

    def begin_in_child(self, name: str) -> None:
        """Begin without a history, under the process's own name: a child that was forked has no place in any line, no
        calls under way, and its parent's share is not its own. The turns that were taken stay in memory."""
        self._name = name
        self._lines: dict[Origin, _Line] = {}
        self._shares: LRUCache[Origin, Share] = LRUCache(ORIGINS)  # of origins that several processes ask for
        self._calls_aside: dict[Origin, _CallAside] = {}  # for turns that were not waited for until the end
        self._aside: dict[tuple[Origin, float], Handle[None]] = {}  # turns that are being moved, by their new stamps

    # -- taking one ---------------------------------------------------------------------------------------

    async def _take(self, origin: Origin, delay: float, deadline: float) -> Turn:
        """The origin's turn, or how long until it is worth asking again."""
        if self._far is None:
            return self._near.reserve(origin, delay, self._clocks.now, self._name)
        ours = self._next_of_ours(origin, delay)
        if ours.wait:  # a store that comes back, or was begun anew, does not know of the turns we took without it
            return ours
        turn = await self._ask(origin, delay, deadline)
        return self._take_of_ours(origin, delay) if turn is None else self._take_theirs(origin, turn, delay)

    async def _ask(self, origin: Origin, delay: float, deadline: float) -> Turn | None:
        """The store's answer; None if it fails, or is away and does not say in time for our slot that it is back.

        A call that takes longer goes on aside, so that its answer or its failure is known to the next to ask. If it was
        made for a shorter delay, the turn it grants comes too early for this request, and is lost; the store is asked
        again.
        """
        share, now = self._share_in_force(origin), self._clocks.monotonic()
        is_away = share is not None and not share.is_returning
        within = share.time_to_look(delay, now) if share and is_away else max(0.0, deadline - now) + GRACE
        ends = now + within
        aside = self._calls_aside.pop(origin, None)
        if aside is None or aside.call.done():
            aside = self._begin_call(origin, delay)
        while await self._has_ended(aside.call, ends):
            turn = await self._runtime.wait(aside.call)
            if turn is None or turn.wait or aside.delay >= delay:
                return turn
            aside = self._begin_call(origin, delay)
        self._calls_aside[origin] = aside
        if is_away:
            return None
        late = f"no answer of the policy store within {within:.1f} s"
        self._warn("a turn is deferred, the policy store may still grant it: %s", OutOfTime(late))
        return Turn(AGAIN)

    def _begin_call(self, origin: Origin, delay: float) -> _CallAside:
        return _CallAside(self._runtime.spawn(self._call(origin, delay)), delay)

    async def _has_ended(self, call: Handle[Turn | None], ends: float) -> bool:
        return call.done() or await self._runtime.wait_at_most(call, max(0.0, ends - self._clocks.monotonic()))

    async def _call(self, origin: Origin, delay: float) -> Turn | None:
        """Call the store; its answer, from which our share is known. None if it fails: then the share is in force."""
        assert self._far is not None
        between = delay if self._share_in_force(origin) is None else least(delay)
        try:
            turn = await self._calls.make(self._far.reserve, origin, between, self._clocks.now, self._name)
        except StoreError as error:
            self._warn("turns are not shared, the policy store grants none: %s", error)
            share = self._shares.get(origin)
            if share is not None:
                self._shares[origin] = share.in_force(delay, self._clocks.monotonic())
            return None
        finally:
            self._calls_aside.pop(origin, None)
        self._tally.works("store/error", "reading", "writing")
        share = self._share_in_force(origin)
        if share is not None:
            self._shares[origin] = share.returning(delay, self._clocks.monotonic(), REST)
        elif turn.crowd > 1:
            ahead = self._clocks.now() - self._clocks.monotonic()
            self._shares[origin] = Share.of(turn, ahead, self._shares.get(origin))
        else:
            self._shares.pop(origin, None)
        return turn

    def _take_theirs(self, origin: Origin, turn: Turn, delay: float) -> Turn:
        """The turn that the store has granted, if it may be used, or how long until it is worth asking again."""
        ours = self._next_of_ours(origin, delay)  # look again: a turn of ours may have been moved meanwhile
        if ours.wait and not turn.wait:
            return ours
        if turn.pause:
            self._near.hold_off(origin, turn.pause, turn.asked)
        elif not turn.wait:
            self._near.reserve(origin, 0.0, lambda: turn.asked)
        share = self._share_in_force(origin)
        if share is not None and not turn.wait:
            turn = self._in_slot(share, turn, delay)
        return self._in_time(turn, delay)

    def _in_time(self, turn: Turn, delay: float) -> Turn:
        """The turn, unless its store was so long in answering that it is none any more."""
        now = self._clocks.now()
        if turn.wait or not has_lapsed(turn, now):
            return turn
        late = StoreError(f"it took {now - turn.asked:.2f} s to answer, longer than {SLACK:g} s")
        self._tally.warn("turn/lapsed", "a turn from the policy store came too late to be used: %s", late)
        return lapsed(turn, delay, now)

    # -- while the store is away --------------------------------------------------------------------------

    def _share_in_force(self, origin: Origin) -> Share | None:
        """Our share of the origin, from when the store has failed until all processes must have found it again."""
        share = self._shares.get(origin)
        is_in_force = share is not None and share.is_in_force and self._clocks.monotonic() < share.ends
        return share if is_in_force else None

    def _next_of_ours(self, origin: Origin, delay: float) -> Turn:
        """When our own memory lets us ask: by the turns that we have had, and, while the store is away, in a slot of
        our own."""
        turn = self._near.next_turn(origin, delay, self._clocks.now())
        share = self._share_in_force(origin)
        if share is None:
            return turn
        until_slot = share.wait(delay, self._clocks.monotonic() + turn.wait)
        return turn._replace(wait=turn.wait + until_slot, stamp=0.0)

    def _take_of_ours(self, origin: Origin, delay: float) -> Turn:
        """A turn that the store does not know of."""
        share = self._share_in_force(origin)
        turn = self._next_of_ours(origin, delay)
        if turn.wait:
            return turn._replace(is_shared=False)
        turn = self._near.reserve(origin, 0.0, self._clocks.now)._replace(is_shared=False)
        return turn if share is None else self._in_slot(share, turn, delay)

    def _in_slot(self, share: Share, turn: Turn, delay: float) -> Turn:
        """The turn with the end of its slot."""
        at = self._clocks.monotonic()
        left = share.slot(delay, at) + window(delay) - at
        return turn._replace(crowd=share.crowd, rank=share.rank, until=self._clocks.now() + left)

    # -- waiting for one ----------------------------------------------------------------------------------

    async def take_within(
        self, patience: float, origin: Origin, delay: float, learned: Callable[[], float | None] | None = None
    ) -> Turn:
        """Wait in line for the origin's turn, for at most `patience` seconds. `learned`, if given, is called whenever
        the turn is about to be asked for. It returns the delay as it is known then; None if the request may not be made
        any more: then no turn is taken, and the answer is `UNWANTED`."""
        turn = await self._take_in_line(patience, origin, delay, learned or (lambda: delay))
        if not turn.wait or turn.by_retry_after or self._share_in_force(origin) is None:
            return turn
        return turn._replace(wait=max(turn.wait / 2, turn.wait - min(EARLY, patience / 2)))

    async def _take_in_line(
        self, patience: float, origin: Origin, delay: float, learned: Callable[[], float | None]
    ) -> Turn:
        deadline = self._clocks.monotonic() + patience
        line = self._lines.get(origin)
        share = self._share_in_force(origin)
        ahead = line.length * (share.spacing(delay) if share else delay) if line else 0.0
        if ahead > patience:
            return Turn(ahead + delay)
        if self.waiting >= HELD:  # there is no room to wait; a turn that is free may still be taken
            return Turn(max(AGAIN, ahead + delay)) if line else await self._take(origin, delay, deadline)
        if line is None:
            line = self._lines[origin] = _Line(self._runtime.gate(1))
        line.length += 1
        try:
            if not await line.head.acquire_within(patience):
                return Turn(max(AGAIN, delay))
            try:
                return await self._take_until(deadline, origin, learned)
            finally:
                line.head.release()
        finally:
            line.length -= 1
            if not line.length:
                self._lines.pop(origin, None)

    async def _take_until(self, deadline: float, origin: Origin, learned: Callable[[], float | None]) -> Turn:
        while True:
            delay = learned()
            if delay is None:
                return UNWANTED
            turn = await self._take(origin, delay, deadline)
            if not turn.wait or self._clocks.monotonic() + turn.wait > deadline:
                return turn
            await self._runtime.sleep(turn.wait)

    @property
    def waiting(self) -> int:
        """How many requests wait in line."""
        return sum(line.length for line in self._lines.values())

    # -- what becomes of it -------------------------------------------------------------------------------

    async def count_from(self, origin: Origin, turn: Turn, since: float) -> bool:
        """Count the turn from `since` seconds after it was granted. Returns whether it is still the last, as far as is
        known."""
        is_last = self._near.count_from(origin, turn.asked, since)
        if self._far is None or not turn.is_shared:
            return is_last
        ends = self._clocks.monotonic() + TELLING
        tell = partial(self._tell, self._far.count_from, origin, turn.stamp, since)
        aside = self._aside.get((origin, turn.stamp))  # the store must not hear of this first
        if aside is not None and not await self._runtime.wait_at_most(aside, TELLING):
            self._runtime.spawn(self._tell_behind(aside, tell))
            return False
        told = await tell(within=max(0.0, ends - self._clocks.monotonic()))
        return is_last and told  # one that we took later may be known to us alone

    async def _tell_behind(self, aside: Handle[None], tell: Callable[[], Awaitable[bool]]) -> None:
        await self._runtime.wait(aside)
        await tell()

    async def answered(self, origin: Origin, turn: Turn) -> None:
        """Note that the answer to the turn's request begins. A slow site is visited no less often than it allows."""
        await self.count_from(origin, turn, min(self._clocks.now() - turn.asked, SLACK))

    async def renewed(self, origin: Origin, turn: Turn) -> Turn | None:
        """Move the turn to now, in the store, too, before the request is sent. Returns None if another turn has been
        taken since, or the origin has asked for a pause."""
        since = self._clocks.now() - turn.asked
        if since > AHEAD or self.is_held_off(origin):
            return None
        is_last = await self.count_from(origin, turn, since)
        moved = _moved(turn, since)
        return moved if is_last and not has_lapsed(moved, self._clocks.now()) else None

    def count_aside(self, origin: Origin, turn: Turn, since: float) -> Turn:
        """Count the turn from `since` seconds after it was granted, without waiting for the store. Returns the turn
        with its new stamp."""
        moved = _moved(turn, since)
        self._near.count_from(origin, turn.asked, since)
        if self._far is not None and turn.is_shared:
            aside = self._runtime.spawn(self._count_far(self._far, origin, turn, since, moved))
            if not aside.done():
                self._aside[origin, moved.stamp] = aside
        return moved

    async def _count_far(self, far: TurnStore, origin: Origin, turn: Turn, since: float, moved: Turn) -> None:
        try:
            await self._tell(far.count_from, origin, turn.stamp, since)
        finally:
            self._aside.pop((origin, moved.stamp), None)

    async def hold_off(self, origin: Origin, seconds: float) -> None:
        """Note that the origin has asked for a pause of this length."""
        seconds, now = min(seconds, LONGEST_HOLD_OFF), self._clocks.now()
        self._near.hold_off(origin, seconds, now)
        if self._far is not None:
            await self._tell(self._far.hold_off, origin, seconds, now, within=TELLING)

    def is_held_off(self, origin: Origin) -> bool:
        """Whether the origin has asked this process, or another one as far as is known, for a pause."""
        return self._near.is_held_off(origin, self._clocks.now())

    async def _tell(self, function: Callable[..., object], *args: object, within: float = math.inf) -> bool:
        """Call the store; its answer, or False if it fails, or takes longer than `within` seconds."""
        try:
            answer = bool(await self._calls.make(function, *args, within=within))
        except StoreError as error:
            self._warn("a turn is not in the policy store, others may not know of it: %s", error)
            return False
        self._tally.works("store/error", "reading", "writing")
        return answer

    def _warn(self, message: str, error: StoreError) -> None:
        self._tally.warn("store/error", message, error, part="writing")


def _moved(turn: Turn, since: float) -> Turn:
    return turn._replace(stamp=counted_from(turn.stamp, since), asked=counted_from(turn.asked, since))
