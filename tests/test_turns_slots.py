"""Processes that lose their store together, in virtual time: each waits for its own slot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from simulation.kernel import Kernel, Process, Runtime
from support.turns import wait_of

from robots_guard.decisions.pacing import Wait, window
from robots_guard.errors import StoreError
from robots_guard.guard.calls import STORE_WIDTH, Calls
from robots_guard.guard.counters import Counters
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.turns import Turns
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

A = origin_of("https://a.test")
CALL = 0.002  # seconds that a call takes while the store is well


class Away(MemoryStore):
    """A store that may be down."""

    is_away = False

    def reserve(self, origin, delay, now, name=""):
        if self.is_away:
            raise StoreError("away")
        return super().reserve(origin, delay, now, name)

    def move_turn(self, origin, stamp, since):
        if self.is_away:
            raise StoreError("away")
        return super().move_turn(origin, stamp, since)


class Breaking:
    """One process's connection to the store."""

    def __init__(self, fleet, number):
        self._fleet = fleet
        self._number = number

    def _check(self):
        fleet = self._fleet
        if (
            fleet.has_failed
            and fleet.is_found_again
            and fleet.kernel.time < fleet.is_found_again[self._number]
        ):
            raise StoreError("left alone")

    def reserve(self, *args):
        self._check()
        return self._fleet.store.reserve(*args)

    def move_turn(self, *args):
        self._check()
        return self._fleet.store.move_turn(*args)

    def note_pause(self, *args):
        self._check()
        self._fleet.store.note_pause(*args)


@dataclass
class Fleet:
    """Several processes over one store. Failed calls take `hangs` seconds. After a failure, each
    process does not use the store until its moment in `is_found_again`."""

    count: int
    delay: float
    hangs: float
    patience: float = 3.0
    is_told_whole_seconds: bool = False
    kernel: Kernel = field(default_factory=lambda: Kernel(Random(7)))
    store: Away = field(default_factory=Away)
    sent: list[tuple[float, int]] = field(default_factory=list)
    is_found_again: list[float] = field(default_factory=list)
    has_failed: bool = False

    def __post_init__(self):
        self.members = [self._member(number) for number in range(self.count)]

    def _member(self, number):
        process = Process(self.kernel, f"p{number}", offset=0.001 * number)
        runtime = Runtime(
            process, lambda _: (self.hangs, 0.0) if self.store.is_away else (CALL, CALL)
        )
        clocks = Clocks(now=process.now, monotonic=process.monotonic)
        outside = {"runtime": runtime, "clocks": clocks, "counters": Counters(clocks)}
        calls = Calls("the policy store", STORE_WIDTH, kind="store/error", **outside)
        far = Breaking(self, number)
        return process, Turns(
            near=MemoryStore(), far=far, name=process.token(8), calls=calls, **outside
        )

    def crawl(self, *, until, answered_after=0.0):
        """All processes ask from now on, one request after another."""
        for number in range(self.count):
            work = self._crawl(number, until, answered_after)
            self.kernel.start(self.members[number][0], work, f"crawl {number}")
        self.kernel.run()

    async def _crawl(self, number, until, answered_after):
        _, turns = self.members[number]
        while self.kernel.time < until:
            turn = await turns.take_within(self.patience, A, self.delay)
            if isinstance(turn, Wait):
                seconds = math.ceil(turn.seconds) if self.is_told_whole_seconds else turn.seconds
                await self.kernel.after(seconds)
                continue
            self.sent.append((self.kernel.time, number))
            await self.kernel.after(answered_after)
            await turns.mark_response_started(A, turn)

    def leaves_at(self, moment):
        def leave():
            self.store.is_away = self.has_failed = True

        self.kernel.call_at(moment, leave)

    def returns_at(self, moment):
        self.kernel.call_at(moment, lambda: setattr(self.store, "is_away", False))

    def gaps(self, *, begin=0.0, end=math.inf):
        moments = [at for at, _ in self.sent if begin <= at < end]
        return [later - earlier for earlier, later in pairwise(moments)]


@pytest.mark.parametrize("hangs", [0.0, 0.01, 0.3, 1.0, 4.9, 60.0])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_without_the_store_the_site_has_its_delay_however_long_the_calls_take_to_fail(count, hangs):
    fleet, lost = Fleet(count, 1.0, hangs), 40.3
    fleet.leaves_at(lost)
    fleet.crawl(until=lost + 20 * count)

    assert min(fleet.gaps()) > 1.0 - 0.25
    assert len(fleet.gaps(begin=lost + 12 + 2 * count)) > 0.8 * (18 * count - 12), (
        "and no slot is left out for long"
    )


@pytest.mark.parametrize("hangs", [0.0, 1.0, 4.9])
def test_client_that_gets_whole_seconds_does_not_miss_its_slots(hangs):
    fleet = Fleet(8, 1.0, hangs, is_told_whole_seconds=True)
    fleet.leaves_at(60.0)
    fleet.crawl(until=300.0)

    assert min(fleet.gaps()) > 1.0 - 0.25
    late = [number for at, number in fleet.sent if at > 100.0]
    assert min(late.count(number) for number in range(8)) > 0.8 * 200 / 8


@pytest.mark.parametrize("delay", [0.1, 0.2, 0.4])
def test_short_delays_are_kept_on_average(delay):
    fleet = Fleet(3, delay, 0.4)
    fleet.leaves_at(20.3)
    fleet.crawl(until=60.0)

    sent = len(fleet.gaps(begin=25.0))
    assert 0.8 * 35.0 / delay < sent <= 1.02 * 35.0 / delay


def test_a_site_that_answers_slowly_has_its_delay_when_the_store_is_lost():
    fleet = Fleet(3, 1.0, 1.0)
    fleet.leaves_at(40.3)
    fleet.crawl(until=80.0, answered_after=0.2)

    assert min(fleet.gaps()) > 1.0 - 0.25


def test_a_process_alone_has_no_slots():
    fleet = Fleet(1, 1.0, 0.0)
    fleet.leaves_at(10.3)
    fleet.crawl(until=20.0, answered_after=0.1)

    assert min(fleet.gaps()) >= 1.0
    assert max(fleet.gaps()) < 1.2


def test_the_way_back_to_a_store_whose_calls_hung_breaks_no_delay():
    fleet = Fleet(3, 1.0, 1.0)
    fleet.leaves_at(40.3)
    fleet.returns_at(70.6)
    fleet.crawl(until=100.0)

    assert min(fleet.gaps()) > 1.0 - 0.25
    assert len(fleet.gaps(begin=80.0)) > 18, "and the full rate is reached again"


@pytest.mark.parametrize("answered_after", [0.0, 0.2])
def test_one_that_finds_the_store_again_before_the_others_breaks_no_delay(answered_after):
    """Each process avoids a failed store for a while, some for longer than others."""
    fleet = Fleet(3, 1.0, 0.0)
    fleet.leaves_at(40.3)
    fleet.returns_at(70.6)
    fleet.is_found_again = [70.6, 85.2, 99.9]
    fleet.crawl(until=150.0, answered_after=answered_after)

    assert min(fleet.gaps()) > 1.0 - 0.25
    assert len(fleet.gaps(begin=50.0)) > 0.75 * 100


def test_requests_whose_patience_ends_are_put_off():
    fleet = Fleet(8, 10.0, 5.0, patience=0.0)
    fleet.leaves_at(200.3)
    fleet.crawl(until=900.0)

    assert min(fleet.gaps()) > 10.0 - window(10.0)
    assert len(fleet.gaps(begin=400.0)) > 40


# -- one process ----------------------------------------------------------------------------------------------


def in_slot(scenario):
    """Return a scenario's outcome for one of two processes without their store that has just taken
    its slot."""
    fleet, outcome = Fleet(2, 1.0, 0.0), []
    fleet.leaves_at(10.3)
    fleet.crawl(until=10.0)
    process, turns = fleet.members[0]

    async def play():
        while isinstance(turn := await turns.take_within(3.0, A, 1.0), Wait) or turn.is_shared:
            await fleet.kernel.after(wait_of(turn))
        outcome.append(await scenario(fleet.kernel, turns, turn))

    fleet.kernel.start(process, play(), "scenario")
    fleet.kernel.run()
    return outcome[0]


def test_a_turn_of_a_slot_ends_with_its_window():
    async def scenario(kernel, turns, turn):
        await kernel.after(0.2)
        in_window = await turns.renew(A, turn)
        await kernel.after(0.1)
        return turn, in_window, await turns.renew(A, in_window)

    turn, in_window, behind = in_slot(scenario)

    assert turn.until == pytest.approx(turn.asked + window(1.0), abs=0.01)
    assert in_window.until == turn.until
    assert behind is None


def test_a_pause_is_kept_and_then_the_next_slot_is_waited_for():
    async def scenario(kernel, turns, turn):
        await turns.note_pause(A, 5.5)
        paused = await turns.take_within(0.0, A, 1.0)
        await kernel.after(wait_of(paused))
        return turn, paused, await turns.take_within(0.0, A, 1.0)

    turn, paused, after = in_slot(scenario)

    assert paused.by_retry_after
    assert not after.is_shared
    assert after.asked - turn.asked == pytest.approx(6.0, abs=0.1)
