"""The contract of turns, for memory, SQLite and Redis, with many concurrent threads and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest
from support.stores import SERVERS, SHARED, A, make
from support.turns import wait_of

from robots_guard.decisions.pacing import MAX_TURN_AGE, PLACE_GRACE, Turn
from robots_guard.guard.stores.redis import RedisStore
from robots_guard.guard.stores.regions import RegionalStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of

# A test writes damaged values under the private `_turn_key`.

B = origin_of("https://b.test")


class ServersClock:
    """The clock of a server, which goes by itself."""

    def __call__(self) -> float:
        return time.time()

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture(params=["memory", *SHARED])
def turns(request, tmp_path):
    made = make(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock(turns, clock):
    """The clock by which the store grants turns."""
    return ServersClock() if isinstance(turns, RedisStore | RegionalStore) else clock


def test_a_second_turn_must_wait(turns):
    now = time.time()
    first = turns.reserve(A, 60, lambda: now)
    second = turns.reserve(A, 60, lambda: now + 0.001)

    assert first.stamp == pytest.approx(now, abs=2)
    assert wait_of(second) == pytest.approx(60, abs=1)
    assert wait_of(turns.reserve(B, 60, lambda: now)) == 0


def test_a_turn_is_granted_after_the_delay(turns, clock):
    turns.reserve(A, 0.05, clock)
    clock.advance(0.06)

    assert wait_of(turns.reserve(A, 0.05, clock)) == 0


def test_a_turn_says_when_it_was_granted(turns):
    before = time.time()
    taken = turns.reserve(A, 60, time.time)
    waits = turns.reserve(A, 60, time.time)

    assert before <= taken.asked <= waits.asked <= time.time()


def test_a_turn_says_how_many_processes_wait(turns):
    """That includes the process that just had its turn and will request the next."""
    crowds = [
        turns.reserve(A, 60, time.time, name).crowd for name in ("one", "two", "three", "two", "")
    ]

    assert crowds == [1, 2, 3, 3, 4]


def test_a_turn_reports_the_callers_slots_and_the_clock_skew(turns):
    names = ("bb", "c1", "a0", "bb")
    answers = [turns.reserve(A, 60, time.time, name) for name in names]

    assert [turn.rank for turn in answers] == [0, 1, 0, 1]
    assert [turn.skew for turn in answers] == pytest.approx([0.0] * 4, abs=0.2)


def test_a_process_that_had_its_turn_queues_behind_later_ones(turns, clock):
    assert wait_of(turns.reserve(A, 0.5, clock, "one")) == 0
    assert 0 < wait_of(turns.reserve(A, 0.5, clock, "two")) <= 0.5
    clock.advance(0.51)

    assert wait_of(turns.reserve(A, 0.5, clock, "one")) == pytest.approx(0.5)
    assert wait_of(turns.reserve(A, 0.5, clock, "two")) == 0


def test_a_process_that_had_its_turn_and_needs_no_other_delays_no_process(turns, clock):
    assert wait_of(turns.reserve(A, 0.2, clock, "one")) == 0
    clock.advance(0.21)

    assert wait_of(turns.reserve(A, 0.2, clock, "two")) == 0


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_turn_is_stamped_when_it_is_granted_and_not_when_it_was_requested(
    kind, request, tmp_path
):
    """A call that waited for another process's write lock must not take a turn in the past."""
    store, moments = make(kind, request, tmp_path), []
    other = sqlite3.connect(tmp_path / "policies.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def ask():
        moments.append(time.time())
        return store.reserve(A, 0.3, time.time)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask)
        time.sleep(0.5)
        released = time.time()
        other.execute("COMMIT")
        turn = waiting.result(60)
    again = store.reserve(A, 60, time.time)
    other.close()
    store.close()

    assert moments[0] < released <= turn.stamp == turn.asked
    assert wait_of(again) > 59


# -- several who ask through one store -------------------------------------------------------------


def test_turns_are_granted_first_come_first_served(turns, clock):
    """A process that always calls a moment before another does not get every turn."""
    began, delay, served = clock(), 0.05, []
    comes = {"quick": 0.0, "slow": 0.0, "third": 0.0}  # when each calls again
    while len(served) < 12:
        name = min(comes, key=lambda each: (comes[each], each))
        clock.advance(max(0.0, began + comes[name] - clock()))
        turn = turns.reserve(A, delay, clock, name)
        if not wait_of(turn):
            served.append(name)
        comes[name] = (
            clock() - began + wait_of(turn) + {"quick": 0.0, "slow": 0.01, "third": 0.02}[name]
        )

    assert min(served.count(name) for name in ("quick", "slow", "third")) >= 3


def test_a_process_that_does_not_return_loses_its_place(turns, clock):
    turns.reserve(A, 0.5, clock, "one")
    turns.reserve(A, 0.5, clock, "gone")
    clock.advance(0.51)
    meanwhile = turns.reserve(A, 0.5, clock, "one")
    clock.advance(PLACE_GRACE + 0.05)

    assert 0 < wait_of(meanwhile) <= 0.5
    assert wait_of(turns.reserve(A, 0.5, clock, "one")) == 0


def test_a_process_with_a_longer_delay_does_not_block_the_others(turns, clock):
    turns.reserve(A, 0.01, clock, "one")
    assert wait_of(turns.reserve(A, 60, clock, "patient")) > 50
    clock.advance(0.02)

    assert wait_of(turns.reserve(A, 0.01, clock, "one")) == 0


def test_a_place_is_kept_during_a_pause_and_a_response(turns, clock):
    taken = turns.reserve(A, 0.5, clock, "one")
    turns.reserve(A, 0.5, clock, "other")
    turns.move_turn(A, taken.stamp, 0.01)
    turns.note_pause(A, 0.02, clock())
    clock.advance(0.52)

    assert wait_of(turns.reserve(A, 0.5, clock, "one")) > 0
    assert wait_of(turns.reserve(A, 0.5, clock, "other")) == 0


@pytest.mark.parametrize("kind", SHARED)
def test_reading_the_last_turn_takes_nothing(kind, request, tmp_path):
    store, now = make(kind, request, tmp_path), time.time()
    before = store.last_turn(A)
    store.reserve(A, 60, lambda: now)
    store.note_pause(A, 30, now)
    last, not_before = store.last_turn(A)
    store.close()

    assert before == (0.0, 0.0)
    assert (last, not_before) == (pytest.approx(now, abs=2), pytest.approx(now + 30, abs=2))


def test_a_shorter_delay_waits_less(turns):
    now = time.time()
    turns.reserve(A, 60, lambda: now)

    assert wait_of(turns.reserve(A, 10, lambda: now)) == pytest.approx(10, abs=1)
    assert wait_of(turns.reserve(A, 0, lambda: now)) == 0


def test_a_turn_is_re_stamped(turns):
    now = time.time()
    turn = turns.reserve(A, 60, lambda: now)
    before = wait_of(turns.reserve(A, 60, lambda: now))

    assert turns.move_turn(A, turn.stamp, 2.0)

    assert wait_of(turns.reserve(A, 60, lambda: now)) - before == pytest.approx(2.0, abs=0.2)


def test_only_the_last_turn_is_re_stamped(turns, clock):
    early = turns.reserve(A, 0, clock)
    clock.advance(0.01)
    turns.reserve(A, 0, clock)

    assert not turns.move_turn(A, early.stamp, 2.0)

    assert wait_of(turns.reserve(A, MAX_TURN_AGE, clock)) <= MAX_TURN_AGE
    assert not turns.move_turn(B, 12345.0, 1.0)  # no process has one there


def test_a_pause_is_kept_and_never_shortened(turns):
    now = time.time()
    turns.note_pause(A, 100, now)
    turns.note_pause(A, 10, now)

    turn = turns.reserve(A, 1, lambda: now)

    assert turn.by_retry_after
    assert wait_of(turn) == pytest.approx(100, abs=2)
    assert turn.pause == pytest.approx(100, abs=2)
    assert isinstance(turns.reserve(B, 1, lambda: now), Turn)


def test_a_pause_after_a_turn(turns):
    now = time.time()
    turns.reserve(A, 5, lambda: now)
    turns.note_pause(A, 100, now)

    assert turns.reserve(A, 5, lambda: now).by_retry_after
    longer = turns.reserve(A, 200, lambda: now)
    assert not longer.by_retry_after
    assert longer.pause == pytest.approx(100, abs=2)
    assert wait_of(longer) == pytest.approx(200, abs=2)


def test_one_turn_among_many_threads(turns):
    now = time.time()
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda _: turns.reserve(A, 60, lambda: now), range(64)))

    assert sum(wait_of(turn) == 0 for turn in taken) == 1


def test_damaged_rows_are_ignored(tmp_path):
    path = tmp_path / "policies.sqlite"
    store = SqliteStore(path)
    now = time.time()
    whole = "'[[\"other\", 1.0, 1e300]]'"
    for last, not_before, line in (
        ("'soon'", "x'ff'", "x'ff'"),
        ("x'ff'", "'never'", "'[['"),
        ("1e999", "1e999", "'[[1, 2, 3]]'"),
        (str(now + 1e9), "9e99", whole),
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM turns")
            connection.execute(f"INSERT INTO turns VALUES ('{A}', {last}, {not_before}, {line})")
        assert wait_of(store.reserve(A, 10, lambda: now)) == 0
    store.close()


@pytest.mark.parametrize(
    "line",
    [
        "CAST(x'ff5b5d' AS TEXT)",
        "CAST(x'5b5b22ff225d5d' AS TEXT)",
        "CAST(x'EDA080' AS TEXT)",
        "CAST(x'5b0000' AS TEXT)",
        "CAST(x'5b5d' AS BLOB)",
    ],
    ids=["no UTF-8", "a name that is no UTF-8", "half a surrogate pair", "NULs", "no text"],
)
def test_a_line_that_cannot_be_decoded_counts_as_empty(tmp_path, line):
    """The last turn still counts, and the line is rewritten."""
    path = tmp_path / "policies.sqlite"
    store = SqliteStore(path)
    now = time.time()
    assert wait_of(store.reserve(A, 10, lambda: now, "one")) == 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE turns SET line = {line}")

    assert wait_of(store.reserve(A, 10, lambda: now, "two")) == pytest.approx(10, abs=1)
    assert store.last_turn(A) == (pytest.approx(now, abs=1), 0)
    assert store.reserve(A, 10, lambda: now, "three").crowd == 2
    store.close()


def test_damaged_values_are_ignored(redis_server):
    line = b"1 1 other:1:9999999999999999 x:y:z odd"
    with redis_server.client() as client:
        store = RedisStore(client)
        for value in (
            b"",
            b"x",
            b"1 2 3",
            b"nan inf",
            b"9999999999999999999 1",
            b"1 9999999999999999999",
            line,
        ):
            client.set(store._turn_key(A), value)
            assert wait_of(store.reserve(A, 10, lambda: 0.0)) == 0, value


RESERVE = """
import sys, time
from robots_guard.decisions.pacing import Wait
from robots_guard.origin import origin_of
from robots_guard.guard.stores import open_store
store, origin, end = open_store(sys.argv[1]), origin_of("https://a.test"), time.time() + 1.5
while time.time() < end:
    turn = store.reserve(origin, 0.1, time.time)
    if isinstance(turn, Wait):
        time.sleep(min(turn.seconds, 0.01))
    else:
        print(repr(turn.stamp), flush=True)
"""


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_eight_processes_share_one_delay(kind, tmp_path, running):
    url = f"sqlite:///{tmp_path / 'p.sqlite'}"
    if kind in SERVERS:
        # a busy machine is not a slow server
        url = running.server(kind).url + "?timeout=20"
    workers = [
        subprocess.Popen([sys.executable, "-c", RESERVE, url], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    stamps = sorted(
        float(line) for worker in workers for line in worker.communicate(timeout=60)[0].splitlines()
    )

    assert [worker.returncode for worker in workers] == [0] * 8
    assert len(stamps) > 10
    assert all(later - earlier >= 0.1 - 1e-5 for earlier, later in pairwise(stamps))
