"""Turns: which process may send the next request to an origin that requires time between requests.

It drives `decisions.pacing` over the stores: a turn is taken in the shared store. If the store fails,
the process uses its own memory of its turns. It sends only in the time slots that the store last
assigned to it (`pacing.Share`). If the store is merely slower than a request may wait, the request
is deferred; a turn that the store still grants then goes unused. Turns are never reserved in
advance. A request that cannot be requeued waits in a FIFO queue per origin; one that would wait
longer than its patience is refused at once. The integrations bound the number of those that wait.

Invariant: a returned turn was granted at most `MAX_TURN_AGE` ago. One that arrives later is not used.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cachetools import LRUCache
from msgspec.structs import replace

from robots_guard.decisions.pacing import (
    LONGEST_PAUSE,
    MAX_FUTURE,
    MAX_TURN_AGE,
    Share,
    Turn,
    Wait,
    as_wait,
    has_lapsed,
    lapsed,
    least,
    moved_stamp,
    window,
)
from robots_guard.errors import OutOfTime, StoreError
from robots_guard.guard.calls import PROBE_INTERVAL, Calls
from robots_guard.guard.counters import Counters
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, Handle, LocalTurns, Runtime, Semaphore, TurnStore

RETRY_IN = 1.0  # second: when to retry if the store is too slow
#: Seconds the store has to grant a turn beyond the request's patience, which may be 0.
STORE_GRACE = 1.0
UPDATE_TIMEOUT = 1.0  # second a response may be delayed for the update of the store
ROUNDING = 1.0  # second by which a Retry-After ends before the slot, because it is rounded up to whole seconds
NO_LONGER_ALLOWED = Wait(seconds=RETRY_IN)  # the answer to a request that is no longer allowed
MAX_SHARES = 100_000  # origins whose shares are remembered in case the store fails


@dataclass(slots=True)
class _TurnQueue:
    """The queue of requests that wait for one origin. Only the one at the head asks the store."""

    head: Semaphore
    length: int = 0


class _PendingCall(NamedTuple):
    """A pending call for a turn, and the delay that the store applies."""

    call: Handle[Turn | Wait | None]
    delay: float


class Turns:
    """The turns of one guard. `near` never blocks; `far` is None where turns are not shared."""

    def __init__(
        self,
        *,
        near: LocalTurns,
        far: TurnStore | None,
        name: str,
        calls: Calls,
        runtime: Runtime,
        clocks: Clocks,
        counters: Counters,
        respect_retry_after: bool = True,
    ) -> None:
        self._respect_retry_after = respect_retry_after
        self._local = near
        self._shared = far
        self._runtime = runtime
        self._clocks = clocks
        self._counters = counters
        self._calls = calls
        self.reset_after_fork(name)

    def reset_after_fork(self, name: str) -> None:
        """Start without queues, pending calls and shares, under the process's own name.

        A forked child has no place in a queue, and its parent's share is not its own. The turns
        that the parent took stay in memory.
        """
        self._name = name
        self._queues: dict[Origin, _TurnQueue] = {}
        # The shares of origins that several processes use.
        self._shares: LRUCache[Origin, Share] = LRUCache(MAX_SHARES)
        self._pending_calls: dict[Origin, _PendingCall] = {}  # whose caller gave up waiting
        # Background updates, by new stamp.
        self._updates: dict[tuple[Origin, float], Handle[None]] = {}

    # -- taking a turn ------------------------------------------------------------------------------------

    async def _take(self, origin: Origin, delay: float, deadline: float) -> Turn | Wait:
        """Take the origin's turn, or return how long to wait before the next attempt."""
        if self._shared is None:
            return self._local.reserve(origin, delay, self._clocks.now, self._name)
        wait = self._local_wait(origin, delay)
        # A store that has recovered or was replaced does not know the turns taken without it.
        if wait is not None:
            return wait
        reply = await self._ask_store(origin, delay, deadline)
        if reply is None:
            return self._take_local(origin, delay)
        return self._use_reply(origin, reply, delay)

    async def _ask_store(self, origin: Origin, delay: float, deadline: float) -> Turn | Wait | None:
        """Return the store's reply; None if it fails, or is down and does not recover in time for
        our slot.

        A call that takes longer continues in the background, so that the next request learns its
        result. If it was made for a shorter delay, the turn it grants is too early for this request
        and goes unused; the store is asked again.
        """
        share, now = self._share_in_force(origin), self._clocks.monotonic()
        is_unavailable = share is not None and not share.is_returning
        within = max(0.0, deadline - now) + STORE_GRACE
        if share and is_unavailable:
            within = share.time_to_look(delay, now)
        ends = now + within
        pending = self._pending_calls.pop(origin, None)
        if pending is None or pending.call.done():
            pending = self._begin_call(origin, delay)
        while await self._has_ended(pending.call, ends):
            reply = await self._runtime.wait(pending.call)
            if not isinstance(reply, Turn) or pending.delay >= delay:
                return reply
            pending = self._begin_call(origin, delay)
        self._pending_calls[origin] = pending
        if is_unavailable:
            return None
        late = f"no answer from the policy store within {within:.1f} s"
        self._warn(
            "a request is deferred because the policy store is slow to grant a turn: %s",
            OutOfTime(late),
        )
        return Wait(seconds=RETRY_IN)

    def _begin_call(self, origin: Origin, delay: float) -> _PendingCall:
        return _PendingCall(self._runtime.spawn(self._call_store(origin, delay)), delay)

    async def _has_ended(self, call: Handle[Turn | Wait | None], ends: float) -> bool:
        return call.done() or await self._runtime.wait_at_most(
            call, max(0.0, ends - self._clocks.monotonic())
        )

    async def _call_store(self, origin: Origin, delay: float) -> Turn | Wait | None:
        """Call the store; return its reply and note the share it gives this process.

        Returns None if the store fails; the share is then in force.
        """
        assert self._shared is not None
        between = delay if self._share_in_force(origin) is None else least(delay)
        try:
            reply = await self._calls.make(
                self._shared.reserve, origin, between, self._clocks.now, self._name
            )
        except StoreError as error:
            self._warn(
                "turns are not shared because the policy store fails; until it works again each"
                " process keeps its last share of a delay that several processes share: %s",
                error,
            )
            share = self._shares.get(origin)
            if share is not None:
                self._shares[origin] = share.in_force(delay, self._clocks.monotonic())
            return None
        finally:
            self._pending_calls.pop(origin, None)
        self._counters.mark_working("store/error", "reading", "writing")
        share = self._share_in_force(origin)
        if share is not None:
            self._shares[origin] = share.returning(delay, self._clocks.monotonic(), PROBE_INTERVAL)
        elif reply.crowd > 1:
            ahead = self._clocks.now() - self._clocks.monotonic()
            self._shares[origin] = Share.of(reply, ahead, self._shares.get(origin))
        else:
            self._shares.pop(origin, None)
        return reply

    def _use_reply(self, origin: Origin, reply: Turn | Wait, delay: float) -> Turn | Wait:
        """Return the store's reply, unless it has granted a turn that may not be used."""
        if isinstance(reply, Turn):
            return self._use_granted(origin, reply, delay)
        if reply.pause:
            self._local.note_pause(origin, reply.pause, reply.asked)
        return reply

    def _use_granted(self, origin: Origin, turn: Turn, delay: float) -> Turn | Wait:
        """Return the turn that the store has granted if it may be used, else how long to wait."""
        wait = self._local_wait(origin, delay)
        if wait is not None:  # a turn of this process has been moved meanwhile
            return wait
        self._local.reserve(origin, 0.0, lambda: turn.asked)
        share = self._share_in_force(origin)
        if share is not None:
            turn = self._in_slot(share, turn, delay)
        return self._in_time(turn, delay)

    def _in_time(self, turn: Turn, delay: float) -> Turn | Wait:
        """Return the turn, unless the store answered so late that it has lapsed."""
        now = self._clocks.now()
        if not has_lapsed(turn, now):
            return turn
        late = StoreError(
            f"the answer took {now - turn.asked:.2f} s, longer than {MAX_TURN_AGE:g} s"
        )
        self._counters.warn(
            "turn/lapsed", "a turn from the policy store came too late to be used: %s", late
        )
        return lapsed(turn, delay, now)

    # -- while the store is down --------------------------------------------------------------------------

    def _share_in_force(self, origin: Origin) -> Share | None:
        """Return this process's share of the origin while it is in force.

        It is in force from a failure of the store until all processes must have found the store
        again.
        """
        share = self._shares.get(origin)
        if share is not None and share.is_in_force and self._clocks.monotonic() < share.ends:
            return share
        return None

    def _local_wait(self, origin: Origin, delay: float) -> Wait | None:
        """Return how long this process must wait by its own memory and, while the store is down,
        for its own slot; None if it need not wait."""
        wait = as_wait(self._local.next_turn(origin, delay, self._clocks.now()))
        share = self._share_in_force(origin)
        if share is not None:
            until_slot = share.wait(delay, self._clocks.monotonic() + wait.seconds)
            wait = replace(wait, seconds=wait.seconds + until_slot)
        if wait.seconds:
            return wait
        return None

    def _take_local(self, origin: Origin, delay: float) -> Turn | Wait:
        """Take a turn without the store."""
        share = self._share_in_force(origin)
        wait = self._local_wait(origin, delay)
        if wait is not None:
            return wait
        turn = self._local.reserve(origin, 0.0, self._clocks.now)
        if isinstance(turn, Wait):  # the clock has been set back meanwhile
            return turn
        turn = replace(turn, is_shared=False)
        if share is None:
            return turn
        return self._in_slot(share, turn, delay)

    def _in_slot(self, share: Share, turn: Turn, delay: float) -> Turn:
        """Return the turn with the end of its slot."""
        at = self._clocks.monotonic()
        left = share.slot(delay, at) + window(delay) - at
        return replace(turn, crowd=share.crowd, rank=share.rank, until=self._clocks.now() + left)

    # -- waiting for a turn -------------------------------------------------------------------------------

    async def take_within(
        self,
        patience: float,
        origin: Origin,
        delay: float,
        delay_now: Callable[[], float | None] | None = None,
    ) -> Turn | Wait:
        """Wait in the origin's queue for its turn, at most `patience` seconds.

        `delay_now`, if given, is called before each attempt to take the turn and after a turn is
        granted. It returns the delay known by then, or None if the request is no longer allowed:
        then no turn is taken, and the result is `NO_LONGER_ALLOWED`. A turn granted for a shorter delay than
        the one known afterwards is dropped.
        """
        reply = await self._take_in_queue(patience, origin, delay, delay_now or (lambda: delay))
        if isinstance(reply, Turn) or reply.by_retry_after or self._share_in_force(origin) is None:
            return reply
        seconds = max(reply.seconds / 2, reply.seconds - min(ROUNDING, patience / 2))
        return replace(reply, seconds=seconds)

    async def _take_in_queue(
        self, patience: float, origin: Origin, delay: float, delay_now: Callable[[], float | None]
    ) -> Turn | Wait:
        deadline = self._clocks.monotonic() + patience
        queue = self._queues.get(origin)
        share = self._share_in_force(origin)
        spacing = share.spacing(delay) if share else delay
        ahead = queue.length * spacing if queue else 0.0
        if ahead > patience:
            return Wait(seconds=ahead + delay)
        if queue is None:
            queue = self._queues[origin] = _TurnQueue(self._runtime.semaphore(1))
        queue.length += 1
        try:
            if not await queue.head.acquire_within(patience):
                return Wait(seconds=max(RETRY_IN, delay))
            try:
                return await self._take_until(deadline, origin, delay_now)
            finally:
                queue.head.release()
        finally:
            queue.length -= 1
            if not queue.length:
                self._queues.pop(origin, None)

    async def _take_until(
        self,
        deadline: float,
        origin: Origin,
        delay_now: Callable[[], float | None],
    ) -> Turn | Wait:
        while True:
            delay = delay_now()
            if delay is None:
                return NO_LONGER_ALLOWED
            reply = await self._take(origin, delay, deadline)
            if isinstance(reply, Turn):
                if _is_longer(delay_now(), delay):
                    continue  # what became known while the store granted the turn counts for it too
                return reply
            if self._clocks.monotonic() + reply.seconds > deadline:
                return reply
            await self._runtime.sleep(reply.seconds)

    @property
    def waiting(self) -> int:
        """The number of queued requests."""
        return sum(queue.length for queue in self._queues.values())

    # -- after a turn was taken ---------------------------------------------------------------------------

    async def move_turn(self, origin: Origin, turn: Turn, since: float) -> bool:
        """Count the turn from `since` seconds after it was granted.

        Returns whether it is still the last one, as far as this process knows.
        """
        is_last = self._local.move_turn(origin, turn.asked, since)
        if self._shared is None or not turn.is_shared:
            return is_last
        ends = self._clocks.monotonic() + UPDATE_TIMEOUT
        update = partial(self._call_update, self._shared.move_turn, origin, turn.stamp, since)
        earlier = self._updates.get((origin, turn.stamp))  # the store must apply it before this one
        if earlier is not None and not await self._runtime.wait_at_most(earlier, UPDATE_TIMEOUT):
            self._runtime.spawn(self._update_after(earlier, update))
            return False
        was_last_in_store = await update(within=max(0.0, ends - self._clocks.monotonic()))
        return is_last and was_last_in_store  # the store may not know a later turn of this process

    async def _update_after(
        self, earlier: Handle[None], update: Callable[[], Awaitable[bool]]
    ) -> None:
        await self._runtime.wait(earlier)
        await update()

    async def mark_response_started(self, origin: Origin, turn: Turn) -> None:
        """Count the turn from the start of the response, but at most `MAX_TURN_AGE` later: a slow site is
        visited no less often than it allows."""
        await self.move_turn(origin, turn, min(self._clocks.now() - turn.asked, MAX_TURN_AGE))

    async def renew(self, origin: Origin, turn: Turn) -> Turn | None:
        """Move the turn to now, in memory and in the store, before its request is sent.

        Returns None if another turn has been taken since, or the origin has asked for a pause.
        """
        since = self._clocks.now() - turn.asked
        if since > MAX_FUTURE or self.is_paused(origin):
            return None
        is_last = await self.move_turn(origin, turn, since)
        moved = _moved(turn, since)
        if is_last and not has_lapsed(moved, self._clocks.now()):
            return moved
        return None

    def move_in_background(self, origin: Origin, turn: Turn, since: float) -> Turn:
        """Count the turn from `since` seconds after it was granted; update the store in the
        background.

        Returns the turn with its new stamp.
        """
        moved = _moved(turn, since)
        self._local.move_turn(origin, turn.asked, since)
        if self._shared is not None and turn.is_shared:
            update = self._runtime.spawn(
                self._move_shared(self._shared, origin, turn, since, moved)
            )
            if not update.done():
                self._updates[origin, moved.stamp] = update
        return moved

    async def _move_shared(
        self, far: TurnStore, origin: Origin, turn: Turn, since: float, moved: Turn
    ) -> None:
        try:
            await self._call_update(far.move_turn, origin, turn.stamp, since)
        finally:
            self._updates.pop((origin, moved.stamp), None)

    async def note_pause(self, origin: Origin, seconds: float) -> None:
        """Note that the origin has asked for a pause of this length, unless pauses are not
        respected."""
        if not self._respect_retry_after:
            return
        self._counters.counts["pauses"] += 1
        seconds, now = min(seconds, LONGEST_PAUSE), self._clocks.now()
        self._local.note_pause(origin, seconds, now)
        if self._shared is not None:
            await self._call_update(
                self._shared.note_pause, origin, seconds, now, within=UPDATE_TIMEOUT
            )

    def is_paused(self, origin: Origin) -> bool:
        """Whether the origin has asked for a pause that is not over, as far as this process
        knows."""
        return self._local.is_paused(origin, self._clocks.now)

    async def _call_update(
        self, function: Callable[..., object], *args: object, within: float = math.inf
    ) -> bool:
        """Call the store; return its answer, or False if it fails or takes longer than `within`
        seconds."""
        try:
            answer = bool(await self._calls.make(function, *args, within=within))
        except StoreError as error:
            self._warn(
                "a turn is not in the policy store, so other processes may not know it: %s", error
            )
            return False
        self._counters.mark_working("store/error", "reading", "writing")
        return answer

    def _warn(self, message: str, error: StoreError) -> None:
        self._counters.warn("store/error", message, error, part="writing")


def _moved(turn: Turn, since: float) -> Turn:
    stamp, asked = moved_stamp(turn.stamp, since), moved_stamp(turn.asked, since)
    return replace(turn, stamp=stamp, asked=asked)


def _is_longer(known: float | None, delay: float) -> bool:
    """Whether the delay known now is longer; None means that the request is no longer allowed."""
    return known is not None and known > delay
