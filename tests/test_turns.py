"""Turns over real and failing stores: one at a time, in order, and not lost with the store."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
import time
from itertools import pairwise
from unittest.mock import Mock

import pytest
from support.turns import wait_of
from support.waiting import until

from robots_guard.decisions.pacing import MAX_TURN_AGE, Share, Turn, Wait, window
from robots_guard.errors import StoreError
from robots_guard.guard.calls import CALL_TIMEOUT, PROBE_INTERVAL, STORE_WIDTH, Calls
from robots_guard.guard.counters import QUIET, Counters
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.guard.turns import RETRY_IN, Turns
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

# These tests set `_shares`, which otherwise depend on the answers of a fleet, and read what a process
# keeps besides its store (`_updates`, `_local`).

A, B = origin_of("https://a.test"), origin_of("https://b.test")
CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


class Failing(MemoryStore):
    broken = False

    def reserve(self, origin, delay, now, name=""):
        if self.broken:
            raise StoreError("gone")
        return super().reserve(origin, delay, now, name)

    def note_pause(self, origin, seconds, now):
        raise StoreError("gone")


@pytest.fixture
def turns():
    runtime = AsyncioRuntime()
    made = over(None, runtime=runtime)
    yield made
    runtime.close()


def over(far, clocks=CLOCKS, runtime=None):
    outside = {
        "runtime": runtime or AsyncioRuntime(),
        "clocks": clocks,
        "counters": Counters(clocks),
    }
    calls = Calls("the policy store", STORE_WIDTH, kind="store/error", **outside)
    return Turns(near=MemoryStore(), far=far, name=secrets.token_hex(8), calls=calls, **outside)


@pytest.mark.parametrize("far", [None, MemoryStore()])
async def test_one_turn_then_a_wait_with_a_shared_store_and_without(far):
    turns = over(far)

    assert wait_of(await turns.take_within(0, A, 60)) == 0
    assert 59 < wait_of(await turns.take_within(0, A, 60)) <= 60
    assert wait_of(await turns.take_within(0, B, 60)) == 0


async def test_waiters_get_turns_in_order(turns):
    order = []

    async def ask(number):
        order.append((number, await turns.take_within(10, A, 0.05)))

    await asyncio.gather(*(ask(number) for number in range(5)))

    assert [number for number, _ in order] == [0, 1, 2, 3, 4]
    assert all(wait_of(turn) == 0 for _, turn in order)
    granted = [turn.asked for _, turn in order]  # a busy machine may return one late
    assert all(later - earlier > 0.0499 for earlier, later in pairwise(granted))
    assert turns.waiting == 0


async def test_request_that_would_wait_too_long_is_refused_at_once(turns):
    await turns.take_within(1, A, 600)
    began = time.monotonic()

    turn = await turns.take_within(30, A, 600)

    assert 500 < wait_of(turn) <= 600
    assert time.monotonic() - began < 30


async def test_queue_longer_than_the_patience_is_not_joined(turns):
    await turns.take_within(0, A, 1)
    first = asyncio.ensure_future(turns.take_within(1.5, A, 1))
    await asyncio.sleep(0)

    second = await turns.take_within(0.5, A, 1)

    assert wait_of(second) == 2
    assert wait_of(await first) == 0


async def test_cancelled_waiter_frees_its_place(turns):
    await turns.take_within(0, A, 2.0)
    began = time.monotonic()
    leaving = asyncio.ensure_future(turns.take_within(9, A, 2.0))
    staying = asyncio.ensure_future(turns.take_within(9, A, 2.0))
    await until(lambda: turns.waiting == 2)

    leaving.cancel()

    assert wait_of(await staying) == 0
    assert time.monotonic() - began < 4.0, "it has waited for the turn of the other, too"
    assert turns.waiting == 0


async def test_a_request_that_cannot_wait_behind_a_pause_gets_no_turn(turns):
    """The queue for an origin that has asked for a pause has no delay."""
    await turns.note_pause(A, 30)
    waiting = asyncio.ensure_future(turns.take_within(60, A, 0.0))
    await until(lambda: turns.waiting == 1)

    assert wait_of(await turns.take_within(0, A, 0.0)) > 0
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_failing_store_does_not_lose_turns_of_this_process():
    far = Failing()
    turns = over(far)
    assert wait_of(await turns.take_within(0, A, 60)) == 0

    far.broken = True

    assert 59 < wait_of(await turns.take_within(0, A, 60)) <= 60


async def test_an_origin_that_asks_for_a_pause_gets_it(turns):
    assert not turns.is_paused(A)

    await turns.note_pause(A, 30)

    assert turns.is_paused(A)
    assert not turns.is_paused(B)
    turn = await turns.take_within(0, A, 0.01)
    assert turn.by_retry_after
    assert 29 < wait_of(turn) <= 30


async def test_pause_is_kept_in_memory_when_the_store_fails():
    turns = over(Failing())

    await turns.note_pause(A, 30)

    assert turns.is_paused(A)


async def test_pauses_of_other_processes_are_learned_with_a_turn():
    far = MemoryStore()
    theirs, ours = over(far), over(far)

    await theirs.note_pause(A, 30)

    assert not ours.is_paused(A)
    assert (await ours.take_within(0, A, 1)).by_retry_after
    assert ours.is_paused(A)


async def test_a_pause_that_is_learned_with_a_turn_lasts_no_longer_for_a_long_line(clock):
    far = MemoryStore()
    far.note_pause(A, 0.5, clock())
    for number in range(9):
        far.reserve(A, 2.0, clock, f"p{number}")
    turns = over(far, Clocks(now=clock, monotonic=clock))

    refused = await turns.take_within(0, A, 2.0)
    assert refused.by_retry_after
    assert wait_of(refused) == pytest.approx(0.5 + 9 * 2.0)
    assert turns.is_paused(A)
    clock.advance(0.6)
    assert not turns.is_paused(A)


async def test_late_turn_counts_from_its_request(clock):
    """What the store took is not lost between stamp and answer, whose difference moves the turn."""

    class Slow(MemoryStore):
        def reserve(self, origin, delay, now, name=""):
            turn = super().reserve(origin, delay, now, name)
            clock.advance(0.1)
            return turn

    turns = over(Slow(), Clocks(now=clock, monotonic=clock))
    began = clock()

    turn = await turns.take_within(0, A, 10)

    assert turn.stamp == turn.asked == began


async def test_store_gets_the_sending_before_the_response(clock):
    """This holds even for a slow store: otherwise it would not know the turn by its new stamp."""

    class Slow(MemoryStore):
        first = True

        def move_turn(self, origin, stamp, since):
            slow, self.first = self.first, False
            time.sleep(0.1 if slow else 0)
            super().move_turn(origin, stamp, since)

    turns = over(Slow(), Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)

    moved = turns.move_in_background(A, turn, 0.1)
    await turns.move_turn(A, moved, 0.2)

    clock.advance(10)
    assert wait_of(await turns.take_within(0, A, 10)) == pytest.approx(0.3)
    assert not turns._updates


async def test_a_turn_counts_from_its_answer(clock):
    turns = over(None, Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)

    clock.advance(0.1)
    await turns.mark_response_started(A, turn)
    clock.advance(9.9)
    assert wait_of(await turns.take_within(0, A, 10)) == pytest.approx(0.1)
    clock.advance(0.2)

    slow = await turns.take_within(0, A, 10)
    clock.advance(7)
    await turns.mark_response_started(A, slow)
    clock.advance(3)
    assert wait_of(await turns.take_within(0, A, 10)) == pytest.approx(MAX_TURN_AGE)


# -- what comes late ------------------------------------------------------------------------------------------


async def test_a_file_whose_lock_was_held_does_not_break_the_delay(tmp_path):
    """One process waits for the write lock for longer than the delay, and is granted a turn when it
    is free. For another process that asks then, that turn is as old as the request that used it,
    not as old as the wait."""
    path, delay = tmp_path / "policies.sqlite", 1.0
    stores = [SqliteStore(path), SqliteStore(path)]
    one, another = over(stores[0]), over(stores[1])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(one.take_within(20, A, delay))
    await asyncio.sleep(delay + MAX_TURN_AGE)
    other.execute("COMMIT")

    turn = await waiting
    sent = time.time()
    put_off = await another.take_within(0, A, delay)

    assert wait_of(turn) == 0
    assert wait_of(put_off) >= delay - (time.time() - sent) - MAX_TURN_AGE
    other.close()
    for store in stores:
        store.close()


class Late(MemoryStore):
    """A store that answers `late` seconds late."""

    late = 0.0

    def __init__(self, clock):
        super().__init__()
        self._clock = clock

    def reserve(self, origin, delay, now, name=""):
        turn = super().reserve(origin, delay, now, name)
        self._clock.advance(self.late)
        return turn

    def move_turn(self, origin, stamp, since):
        is_last = super().move_turn(origin, stamp, since)
        self._clock.advance(self.late)
        return is_last


async def test_a_turn_that_comes_too_late_is_not_used(clock):
    far = Late(clock)
    turns = over(far, Clocks(now=clock, monotonic=clock))
    far.late = 3.0

    turn = await turns.take_within(0, A, 10)

    assert wait_of(turn) == pytest.approx(7.0)
    assert isinstance(turn, Wait)
    far.late = 0.0
    clock.advance(7.0)
    assert wait_of(await turns.take_within(0, A, 10)) == 0


async def test_a_turn_that_comes_too_late_is_asked_for_again_within_the_patience(
    clock, monkeypatch
):
    far = Late(clock)
    turns = over(far, Clocks(now=clock, monotonic=clock))

    async def sleep(seconds):
        clock.advance(seconds)
        far.late = 0.0

    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    far.late = 3.0
    began = clock()

    turn = await turns.take_within(20, A, 10)

    assert wait_of(turn) == 0
    assert turn.asked == pytest.approx(began + 10)


async def test_a_store_that_is_always_late_gives_no_turn_and_that_has_an_end(clock, monkeypatch):
    far = Late(clock)
    turns = over(far, Clocks(now=clock, monotonic=clock))

    async def sleep(seconds):
        clock.advance(seconds)

    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    far.late = 1.0
    began = clock()

    assert wait_of(await turns.take_within(30, A, 0.1)) > 0
    assert clock() - began < 35


async def test_a_turn_is_moved_in_the_store_before_a_late_request_goes(clock):
    far = MemoryStore()
    clocks = Clocks(now=clock, monotonic=clock)
    ours, theirs = over(far, clocks), over(far, clocks)
    turn = await ours.take_within(0, A, 10)
    clock.advance(3)

    moved = await ours.renew(A, turn)

    assert moved.asked == clock()
    clock.advance(7)
    assert wait_of(await theirs.take_within(0, A, 10)) == pytest.approx(3)


async def test_a_turn_is_not_moved_when_another_has_been_taken(clock):
    far = MemoryStore()
    clocks = Clocks(now=clock, monotonic=clock)
    ours, theirs = over(far, clocks), over(far, clocks)
    turn = await ours.take_within(0, A, 1)
    clock.advance(1)
    assert wait_of(await theirs.take_within(0, A, 1)) == 0

    assert await ours.renew(A, turn) is None


async def test_a_turn_is_not_moved_when_the_store_cannot_say_that_it_holds(clock):
    class Away(MemoryStore):
        def move_turn(self, origin, stamp, since):
            raise StoreError("gone")

    turns = over(Away(), Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)
    clock.advance(1)

    assert await turns.renew(A, turn) is None


async def test_a_turn_is_not_moved_by_a_store_that_is_late_again(clock):
    far = Late(clock)
    turns = over(far, Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)
    clock.advance(1)
    far.late = 1.0

    assert await turns.renew(A, turn) is None


class Hanging(MemoryStore):
    """A store whose calls wait for the gate, if they are of a kind that hangs."""

    def __init__(self, *hanging):
        super().__init__()
        self.gate = threading.Event()
        self.hanging = set(hanging)

    def _wait(self, kind):
        if kind in self.hanging:
            self.gate.wait(10)

    def reserve(self, origin, delay, now, name=""):
        self._wait("reserve")
        return super().reserve(origin, delay, now, name)

    def move_turn(self, origin, stamp, since):
        self._wait("move_turn")
        return super().move_turn(origin, stamp, since)


@pytest.mark.parametrize("shorter", [0.0, 1.0])
async def test_a_turn_that_was_asked_for_by_a_shorter_delay_is_not_used_for_a_longer_one(
    clock, monkeypatch, shorter
):
    monkeypatch.setattr("robots_guard.guard.turns.STORE_GRACE", 0.05)
    far = Hanging()
    far.reserve(A, 10, clock, "b")
    clock.advance(1.1)
    far.hanging.add("reserve")
    turns = over(far, Clocks(now=clock, monotonic=clock))
    assert wait_of(await turns.take_within(0, A, shorter))  # given up; the call goes on
    monkeypatch.setattr("robots_guard.guard.turns.STORE_GRACE", 5)
    waiting = asyncio.ensure_future(turns.take_within(0, A, 10))
    await until(lambda: turns.waiting)
    far.gate.set()

    assert wait_of(await waiting) > 8


async def test_a_turn_that_was_asked_for_by_a_longer_delay_is_used_for_a_shorter_one(
    clock, monkeypatch
):
    monkeypatch.setattr("robots_guard.guard.turns.STORE_GRACE", 0.05)
    far = Hanging("reserve")
    turns = over(far, Clocks(now=clock, monotonic=clock))
    assert wait_of(await turns.take_within(0, A, 10))
    monkeypatch.setattr("robots_guard.guard.turns.STORE_GRACE", 5)
    waiting = asyncio.ensure_future(turns.take_within(0, A, 1))
    await until(lambda: turns.waiting)
    far.gate.set()

    assert wait_of(await waiting) == 0


async def test_a_turn_granted_for_a_shorter_delay_than_known_by_then_is_dropped(clock):
    """The policy changes while the store grants the turn."""
    turns = over(MemoryStore(), Clocks(now=clock, monotonic=clock))
    known = iter([1.0, 10.0])

    turn = await turns.take_within(0, A, 1.0, lambda: next(known, 10.0))

    assert wait_of(turn) == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize("is_moved", [False, True])
async def test_response_waits_at_most_a_second_for_a_hung_store(clock, monkeypatch, is_moved):
    monkeypatch.setattr("robots_guard.guard.turns.UPDATE_TIMEOUT", 0.2)
    far = Hanging("move_turn")
    turns = over(far, Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)
    clock.advance(0.1)
    if is_moved:
        turn = turns.move_in_background(A, turn, 0.1)
    began = time.monotonic()
    await turns.mark_response_started(A, turn)

    assert time.monotonic() - began < CALL_TIMEOUT
    far.gate.set()


async def test_recovered_store_gets_the_response_after_the_sending(clock, monkeypatch):
    monkeypatch.setattr("robots_guard.guard.turns.UPDATE_TIMEOUT", 0.1)
    far = Hanging("move_turn")
    turns = over(far, Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 10)
    clock.advance(0.1)
    moved = turns.move_in_background(A, turn, 0.1)
    clock.advance(0.1)
    await turns.mark_response_started(A, moved)
    far.gate.set()

    await until(lambda: wait_of(far.next_turn(A, 10, clock())) == pytest.approx(10))


# -- while the store is away ----------------------------------------------------------------------------------


def fleet_over(far, clocks, count):
    return [over(far, clocks) for _ in range(count)]


async def crawl(fleet, clock, delay, seconds):
    """Each process asks when its wait is over, and at once after a turn; returns the processes
    served, and when."""
    comes, served, end = dict.fromkeys(range(len(fleet)), clock()), [], clock() + seconds
    while min(comes.values()) < end:
        number = min(comes, key=lambda each: (comes[each], each))
        clock.advance(max(0.0, comes[number] - clock()))
        turn = await fleet[number].take_within(0, A, delay)
        if not wait_of(turn):
            served.append((number, clock()))
        comes[number] = clock() + max(wait_of(turn), 0.001)
    return served


@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize("lasts", [0.0, 37.0])
async def test_origin_is_requested_no_more_often_without_the_store(clock, count, lasts):
    delay, far = 10.0, Failing()
    fleet = fleet_over(far, Clocks(now=clock, monotonic=clock), count)
    await crawl(fleet, clock, delay, 4 * count * delay + lasts)

    far.broken = True
    served = await crawl(fleet, clock, delay, 6 * count * delay)

    assert len(served) >= 4 * count
    assert min(later - earlier for (_, earlier), (_, later) in pairwise(served)) > delay - 1
    for number in range(count):
        own = [at for each, at in served if each == number]
        assert all(later - earlier > count * delay - 1 for earlier, later in pairwise(own))


@pytest.mark.parametrize("count", [2, 5])
async def test_return_to_the_store_breaks_no_delay(clock, count):
    delay, far = 10.0, Failing()
    fleet = fleet_over(far, Clocks(now=clock, monotonic=clock), count)
    served = await crawl(fleet, clock, delay, 4 * count * delay)
    for seconds, broken in ((3 * count * delay + 3, True), (5 * count * delay, False)):
        far.broken = broken
        served += await crawl(fleet, clock, delay, seconds)

    assert min(later - earlier for (_, earlier), (_, later) in pairwise(served)) > delay - 1
    late = [number for number, at in served if at > clock() - 2 * count * delay]
    assert len(late) >= 2 * count - 2, "and the full rate is reached again"


async def test_the_crowd_is_remembered_until_all_must_have_found_the_store_again(clock):
    delay, far = 10.0, Failing()
    fleet = fleet_over(far, Clocks(now=clock, monotonic=clock), 3)
    await crawl(fleet, clock, delay, 100)
    far.broken = True
    await crawl(fleet, clock, delay, 300)
    far.broken = False
    for turns in fleet[1:]:
        turns._runtime.close()
    clock.advance(300)

    # The other processes might not have found it yet.
    await crawl(fleet[:1], clock, delay, PROBE_INTERVAL + 3 * delay)
    alone = [at for _, at in await crawl(fleet[:1], clock, delay, 100)]

    assert all(
        later - earlier == pytest.approx(delay, abs=1.3) for earlier, later in pairwise(alone)
    )


async def test_turns_taken_without_the_store_count_after_its_return():
    far = Failing()
    turns = over(far)
    far.broken = True
    assert wait_of(await turns.take_within(0, A, 60)) == 0

    far.broken = False

    assert 59 < wait_of(await turns.take_within(0, A, 60)) <= 60
    assert wait_of(await turns.take_within(0, B, 60)) == 0


async def test_granted_turn_is_not_used_when_a_local_one_was_moved_meanwhile(clock):
    """Found by the simulation: a turn taken without the store was moved to now, while the store
    granted another."""

    class Moving(MemoryStore):
        def reserve(self, origin, delay, now, name=""):
            if self.moves:
                turns._local.move_turn(A, taken.asked, clock() - taken.asked)
            return super().reserve(origin, delay, now, name)

    far = Moving()
    far.moves = False
    turns = over(far, Clocks(now=clock, monotonic=clock))
    taken = await turns.take_within(0, A, 2)
    clock.advance(3)
    far.moves = True

    assert wait_of(await turns.take_within(0, A, 2)) == pytest.approx(2)


@pytest.mark.parametrize("far", [None, MemoryStore()])
async def test_turn_is_not_moved_when_the_origin_has_asked_for_a_pause_since(clock, far):
    """Found by the simulation: a late request kept its turn through a Retry-After."""
    turns = over(far, Clocks(now=clock, monotonic=clock))
    turn = await turns.take_within(0, A, 1)
    clock.advance(0.5)
    await turns.note_pause(A, 30)

    assert await turns.renew(A, turn) is None


async def test_a_turn_is_not_moved_when_a_later_one_was_taken_without_the_store(clock):
    """Found by the simulation: the store knew of the first turn only, and reported that it was the
    last."""
    far = Failing()
    turns = over(far, Clocks(now=clock, monotonic=clock))
    first = await turns.take_within(0, A, 2)
    clock.advance(2)
    far.broken = True
    assert wait_of(await turns.take_within(0, A, 2)) == 0
    far.broken = False
    clock.advance(1)

    assert await turns.renew(A, first) is None


class Watch:
    """A clock that advances only when it is set."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.clocks = Clocks(now=lambda: self.time, monotonic=lambda: self.time)


async def test_waiter_whose_patience_ends_in_the_queue_asks_again_later(turns):
    await turns.note_pause(A, 30)
    first = asyncio.ensure_future(turns.take_within(60, A, 0.0))
    await asyncio.sleep(0)

    assert wait_of(await turns.take_within(0.05, A, 0.0)) == RETRY_IN
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("part", ["reading", "writing"])
@pytest.mark.parametrize("call", ["take", "answered", "note_pause"])
async def test_a_call_for_turns_that_succeeds_shows_that_the_store_works_again(caplog, call, part):
    watch, store = Watch(), MemoryStore()
    turns = over(store, watch.clocks)
    turn = await turns.take_within(0, B, 1.0)
    turns._counters.warn("store/error", "gone: %s", StoreError("refused"), part=part)
    watch.time += QUIET
    if call == "take":
        await turns.take_within(0, A, 1.0)
    elif call == "answered":
        await turns.mark_response_started(B, turn)
    else:
        await turns.note_pause(A, 1.0)

    assert caplog.messages == ["gone: refused", "the policy store works again"]


async def test_the_warning_that_turns_are_not_shared_says_what_is_kept(caplog, monkeypatch):
    watch, store = Watch(), MemoryStore()
    monkeypatch.setattr(store, "reserve", Mock(side_effect=StoreError("refused")))

    await over(store, watch.clocks).take_within(0, A, 1.0)

    assert caplog.messages == [
        "turns are not shared because the policy store fails; until it works again each process"
        " keeps its last share of a delay that several processes share: refused"
    ]


async def test_while_the_store_is_away_a_line_moves_once_in_each_slot_of_the_process():
    watch = Watch()
    turns = over(MemoryStore(), watch.clocks)
    turns._shares[A] = Share(crowd=4, rank=0, skew=0.0, is_in_force=True, since=watch.time + 1)
    first = asyncio.ensure_future(turns.take_within(60, A, 2.0))
    await asyncio.sleep(0)

    assert turns.waiting == 1
    assert wait_of(await turns.take_within(7, A, 2.0)) > 7  # 2 s times 4 processes, and not 2 s
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


def test_a_turn_in_a_slot_ends_with_the_window_at_the_beginning_of_the_slot():
    watch = Watch()
    turns = over(MemoryStore(), watch.clocks)
    share = Share(crowd=2, rank=0, skew=0.0, is_in_force=True)
    watch.time += 0.5  # in the slot that began at 1,000 s

    assert turns._in_slot(share, Turn(stamp=0.0), 10.0).until == pytest.approx(
        1_000.0 + window(10.0)
    )


async def test_clock_skew_from_a_quick_answer_outlasts_a_slow_one():
    answers = [
        Turn(stamp=0.0, crowd=2, skew=0.1, doubt=0.01),
        Turn(stamp=0.0, crowd=2, skew=0.3, doubt=0.4),
    ]

    class Answering(MemoryStore):
        def reserve(self, *args):
            return answers.pop(0)

    turns = over(Answering(), Watch().clocks)
    await turns._call_store(A, 1.0)
    await turns._call_store(A, 1.0)

    assert (turns._shares[A].skew, turns._shares[A].doubt) == (0.1, 0.01)
