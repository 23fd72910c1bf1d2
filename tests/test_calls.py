"""Hanging calls: the caller's wait is bounded, and there are never more such calls than threads."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.guards import make_guard
from support.threads import System
from support.waiting import until

from robots_guard.errors import OutOfTime, StoreError
from robots_guard.guard import calls as calls_module
from robots_guard.guard.calls import STORE_WIDTH, Calls
from robots_guard.guard.counters import Counters
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.runtime import THREADS, AsyncioRuntime
from robots_guard.guard.stores.redis import RedisStore
from robots_guard.guard.stores.regions import RegionalStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.guard.threads import NoThread
from robots_guard.ports import Clocks

# These tests read private attributes: which calls and threads are left over has no public face.

CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)
SHORT = (
    1.0  # instead of `CALL_TIMEOUT`: calls that return must return within it on a loaded machine
)


class Disk:
    """Answers at once, or not before `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.reads = []

    @property
    def most(self):
        """How many calls have come so far."""
        return len(self.reads)

    def read(self, what="page"):
        self.reads.append(what)  # atomic, unlike `+=`: several threads read
        assert self.answers.wait(60)
        return what

    def fail(self):
        self.read()
        raise StoreError("disk I/O error")


@pytest.fixture
def disk():
    made = Disk()
    yield made
    made.answers.set()


@pytest.fixture
def counters():
    return Counters(CLOCKS)


@pytest.fixture
def calls(counters, monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", SHORT)
    monkeypatch.setattr(
        calls_module, "BLOCKING_WAIT", 0.0
    )  # else most calls end before a task runs
    runtime = AsyncioRuntime()
    yield Calls(
        "the disk",
        STORE_WIDTH,
        kind="store/error",
        runtime=runtime,
        clocks=CLOCKS,
        counters=counters,
    )
    runtime.close()


async def overrun(calls, disk, count):
    """Let this many calls hang for longer than a call may take."""
    disk.answers.clear()
    ends = await asyncio.gather(
        *(calls.make(disk.read) for _ in range(count)), return_exceptions=True
    )
    assert [str(end) for end in ends] == [f"no answer from the disk within {SHORT:g} s"] * count


async def test_call_returns_its_result_or_error_to_the_caller(calls, disk):
    assert await calls.make(disk.read, "mine") == "mine"
    with pytest.raises(StoreError, match="disk I/O error"):
        await calls.make(disk.fail)


async def test_hanging_call_fails_after_its_time_limit(calls, disk):
    disk.answers.clear()
    with pytest.raises(StoreError, match="no answer from the disk within"):
        await calls.make(disk.read)


async def test_call_without_a_thread_fails_as_a_store_error(calls, disk, monkeypatch):
    system = System(monkeypatch)
    system.refuse_all()
    for _ in range(3 * STORE_WIDTH):
        with pytest.raises(StoreError, match="the disk cannot be called: can't start new thread"):
            await calls.make(disk.read)
    system.refuses = 0
    assert await calls.make(disk.read) == "page"
    assert disk.most == 1


async def test_queued_call_fails_when_the_pool_closes(calls, disk):
    """It must neither hang nor seem to have been cancelled by its caller."""
    disk.answers.clear()
    for _ in range(THREADS):
        calls._runtime._threads.submit(disk.read)
    asking = asyncio.ensure_future(calls.make(int))
    await until(lambda: calls._pending)
    calls._runtime.close()
    with pytest.raises(StoreError, match="the disk cannot be called: the guard is closed"):
        await asking
    with pytest.raises(StoreError, match="the disk cannot be called: the guard is closed"):
        await calls.make(int)


async def test_call_whose_task_is_cancelled_fails(calls, disk):
    """Every task is cancelled when its loop ends."""
    disk.answers.clear()
    asking = asyncio.ensure_future(calls.make(disk.read))
    await until(lambda: disk.most)
    for work in calls._runtime._running:
        work.cancel()
    with pytest.raises(StoreError, match="a call to the disk was cancelled"):
        await asking
    assert not calls._pending


async def test_error_of_the_call_is_raised_in_the_caller(calls):
    """This holds even for an error that looks like one of the thread pool."""

    def fail():
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start new thread") as failed:
        await calls.make(fail)
    assert not isinstance(failed.value, (StoreError, NoThread))


async def test_caller_with_a_shorter_limit_gets_out_of_time(calls, disk):
    """The caller's time limit says nothing about the disk."""
    disk.answers.clear()
    with pytest.raises(OutOfTime, match="within"):
        await calls.make(disk.read, within=0.05)


@pytest.mark.parametrize("count", [1, 2, STORE_WIDTH])
async def test_disk_with_hanging_calls_is_down_until_one_ends(calls, disk, count):
    await overrun(calls, disk, count)
    with pytest.raises(StoreError, match="the disk hangs; no further calls"):
        await calls.make(disk.read)
    assert disk.most == count  # the last was not made

    disk.answers.set()
    await until(lambda: not calls._pending)
    assert await calls.make(disk.read, "again") == "again"


async def test_one_returning_call_marks_the_disk_as_up(calls, disk):
    """The other calls may hang forever."""
    first = threading.Event()
    hanging = [asyncio.ensure_future(calls.make(first.wait, 60))]
    await asyncio.sleep(0)
    disk.answers.clear()
    hanging += [asyncio.ensure_future(calls.make(disk.read)) for _ in range(STORE_WIDTH - 1)]
    await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(StoreError, match="hangs"):
        await calls.make(str)
    first.set()
    await until(lambda: len(calls._pending) < STORE_WIDTH)
    assert await calls.make(str) == ""


async def test_single_hanging_call_does_not_block_others(calls, disk, monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 2.0)
    alone = threading.Event()
    hanging = asyncio.ensure_future(calls.make(alone.wait, 60))
    while not hanging.done():
        assert await calls.make(disk.read) == "page"
        await asyncio.sleep(SHORT / 20)
    assert await calls.make(disk.read) == "page"
    alone.set()


async def test_down_disk_is_retried_one_call_at_a_time(calls, disk, monkeypatch):
    """As many are retried as there are free slots: the hanging call may be the only one."""
    await overrun(calls, disk, 1)
    monkeypatch.setattr(calls_module, "PROBE_INTERVAL", 2 * SHORT)
    for others in range(1, STORE_WIDTH):
        while len(calls._pending) == others:
            await asyncio.sleep(SHORT / 20)
            await asyncio.gather(
                *(calls.make(disk.read) for _ in range(10)), return_exceptions=True
            )
        assert len(calls._pending) == others + 1
    await asyncio.sleep(2 * SHORT)
    with pytest.raises(StoreError, match="hangs"):
        await calls.make(disk.read)
    assert len(calls._pending) == STORE_WIDTH


async def test_successful_retry_ends_the_outage(calls, disk, monkeypatch):
    alone = threading.Event()
    with pytest.raises(StoreError):
        await calls.make(alone.wait, 60)
    with pytest.raises(StoreError, match="hangs"):
        await calls.make(disk.read)
    monkeypatch.setattr(calls_module, "PROBE_INTERVAL", 0.0)
    assert await calls.make(disk.read) == "page"
    monkeypatch.setattr(calls_module, "PROBE_INTERVAL", 60.0)
    assert await calls.make(disk.read) == "page"
    alone.set()


async def test_a_hung_disk_costs_neither_memory_nor_threads(calls, disk):
    """A thousand callers all get an answer, and leave nothing behind."""
    disk.answers.clear()
    before = threading.active_count()
    ends = await asyncio.gather(
        *(calls.make(disk.read) for _ in range(1000)), return_exceptions=True
    )
    assert {type(end) for end in ends} == {StoreError}
    await until(lambda: disk.most == STORE_WIDTH)
    assert threading.active_count() <= before + STORE_WIDTH
    assert len(asyncio.all_tasks()) == 1 + STORE_WIDTH
    assert not calls._room._waiting


async def test_a_busy_disk_is_not_down(calls, monkeypatch):
    """A caller waits for a slot as long as calls return."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 2.0)

    def work():
        time.sleep(0.1)
        return "done"

    assert set(await asyncio.gather(*(calls.make(work) for _ in range(STORE_WIDTH * 30)))) == {
        "done"
    }


async def test_late_result_is_undone(calls, disk):
    undone = []
    disk.answers.clear()
    with pytest.raises(StoreError):
        await calls.make(disk.read, "lease", undo=undone.append)
    assert undone == []
    disk.answers.set()
    await until(lambda: undone)
    assert undone == ["lease"]


async def test_timely_result_is_not_undone(calls, disk):
    undone = []
    assert await calls.make(disk.read, "lease", undo=undone.append) == "lease"
    await until(lambda: not calls._pending)
    assert undone == []


async def test_cancelled_caller_has_its_call_undone(calls, disk):
    undone = []
    disk.answers.clear()
    asking = asyncio.ensure_future(calls.make(disk.read, "lease", undo=undone.append))
    await until(lambda: calls._pending and disk.most)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    disk.answers.set()
    await until(lambda: undone)


async def test_failure_after_the_caller_gave_up_is_counted(calls, disk, counters):
    undone = []
    disk.answers.clear()
    with pytest.raises(StoreError):
        await calls.make(disk.fail, undo=undone.append)
    disk.answers.set()
    await until(lambda: counters.counts["store/error"])
    assert undone == []


async def test_slots_are_neither_lost_nor_doubled(calls):
    """Callers are in time, too late and cancelled, many times."""

    async def call(number):
        work = asyncio.ensure_future(
            calls.make(time.sleep, number % 7 / 2000, within=number % 5 / 1000)
        )
        if number % 3 == 0:
            asyncio.get_running_loop().call_later(number % 11 / 2000, work.cancel)
        await asyncio.gather(work, return_exceptions=True)

    for _ in range(5):
        await asyncio.gather(*map(call, range(200)))
    await until(lambda: not calls._pending)
    assert calls._room._free == STORE_WIDTH
    assert await asyncio.gather(*(calls.make(int) for _ in range(STORE_WIDTH))) == [0] * STORE_WIDTH


def test_slots_survive_a_change_of_event_loop():
    """A program may call `asyncio.run` for each of its batches."""
    runtime = AsyncioRuntime()
    gate = runtime.semaphore(1)

    async def crowd() -> list[bool]:
        async def enter() -> bool:
            entered = await gate.acquire_within(5)
            await asyncio.sleep(0)
            gate.release()
            return entered

        return await asyncio.gather(*(enter() for _ in range(3)))

    assert asyncio.run(crowd()) == [True] * 3
    assert asyncio.run(crowd()) == [True] * 3
    runtime.close()


async def test_abandoned_slot_goes_to_the_next_waiter():
    gate = AsyncioRuntime().semaphore(1)
    await gate.acquire()
    first, second = (asyncio.ensure_future(gate.acquire_within(5)) for _ in range(2))
    await asyncio.sleep(0)
    gate.release()
    first.cancel()  # it was just let in

    assert await second
    assert not await gate.acquire_within(0.001)


async def test_slot_is_not_given_to_a_waiter_that_was_cancelled():
    gate = AsyncioRuntime().semaphore(1)
    await gate.acquire()
    first, second = (asyncio.ensure_future(gate.acquire_within(5)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.release()

    assert await second
    assert not await gate.acquire_within(0.001)
    gate.release()
    assert await gate.acquire_within(0.001)


async def test_slot_passes_on_in_each_step_of_the_loop():
    """In a busy loop a step takes long, and a line of waiters as many steps as it has waiters."""
    gate = AsyncioRuntime().semaphore(1)
    await gate.acquire()

    async def use() -> None:
        await gate.acquire_within(5)
        gate.release()

    users = [asyncio.ensure_future(use()) for _ in range(20)]
    await asyncio.sleep(0)
    gate.release()
    for _ in range(21):
        await asyncio.sleep(0)
    assert all(user.done() for user in users)


async def test_late_failure_of_the_log_is_not_counted_for_the_store(disk, counters, monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", SHORT)
    runtime = AsyncioRuntime()
    log_calls = Calls(
        "the audit log",
        1,
        kind="audit_log/error",
        runtime=runtime,
        clocks=CLOCKS,
        counters=counters,
    )
    disk.answers.clear()
    with pytest.raises(StoreError):
        await log_calls.make(disk.fail)
    disk.answers.set()

    await until(lambda: counters.counts["audit_log/error"])
    assert not counters.counts["store/error"]
    runtime.close()


async def test_call_that_begins_as_another_ends_may_hang(counters, disk, monkeypatch):
    """A coarse clock may give both the same time."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", SHORT)
    time_now = [0.0]
    clocks = Clocks(now=lambda: time_now[0], monotonic=lambda: time_now[0])
    runtime = AsyncioRuntime()
    calls = Calls(
        "the disk",
        STORE_WIDTH,
        kind="store/error",
        runtime=runtime,
        clocks=clocks,
        counters=counters,
    )
    await calls.make(disk.read)
    await overrun(calls, disk, 1)
    time_now[0] = SHORT

    with pytest.raises(StoreError, match="the disk hangs; no further calls"):
        await calls.make(disk.read)
    disk.answers.set()
    runtime.close()


def test_call_prevented_by_the_end_of_a_loop_frees_its_slot(calls, disk):
    """A program may run one loop for each question, which cuts off tasks that outlast the
    answer."""

    async def begin() -> None:
        asyncio.ensure_future(calls.make(disk.read))  # noqa: RUF006  (it is to be cut off)

    for _ in range(STORE_WIDTH + 1):
        asyncio.run(begin())

    assert asyncio.run(calls.make(disk.read, within=1)) == "page"
    assert calls._pending == []


# -- short calls: they block the event loop ---------------------------------------------------------


def other_task():
    """Return a list to which a task adds an item when the loop runs other tasks."""
    ran = []
    asyncio.get_running_loop().call_soon(ran.append, "ran")
    return ran


async def test_a_short_call_returns_before_any_other_task_runs(calls, disk, monkeypatch):
    monkeypatch.setattr(calls, "_blocking_wait", 60.0)
    ran = other_task()
    assert await calls.make(disk.read) == "page"
    with pytest.raises(StoreError, match="disk I/O error"):
        await calls.make(disk.fail)
    assert ran == []
    assert calls._pending == []
    assert calls._room._free == STORE_WIDTH


async def test_a_call_that_is_cancelled_in_its_thread_fails_as_a_store_error(
    calls, disk, monkeypatch
):
    monkeypatch.setattr(calls, "_blocking_wait", 60.0)
    cancelled = Future()
    cancelled.cancel()
    monkeypatch.setattr(calls._runtime, "submit", lambda *_: cancelled)
    with pytest.raises(StoreError, match="a call to the disk was cancelled"):
        await calls.make(disk.read)
    assert calls._room._free == STORE_WIDTH


async def test_a_call_that_hangs_blocks_the_loop_briefly_and_only_once(calls, disk, monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 60.0)
    monkeypatch.setattr(calls, "_blocking_wait", 0.02)
    monkeypatch.setattr(calls_module, "BLOCKING_PAUSE", 3000)
    blocked = []  # the seconds of each wait for a thread
    submit = calls._runtime.submit

    def watched(*call):
        work = submit(*call)
        wait = work.exception

        def exception(seconds=None):
            if seconds is not None:
                blocked.append(seconds)
            return wait(seconds)

        work.exception = exception
        return work

    monkeypatch.setattr(calls._runtime, "submit", watched)
    disk.answers.clear()
    hanging = [asyncio.ensure_future(calls.make(disk.read)) for _ in range(STORE_WIDTH)]
    await asyncio.sleep(0)
    disk.answers.set()
    assert await asyncio.gather(*hanging) == ["page"] * STORE_WIDTH
    assert await calls.make(disk.read) == "page"
    assert blocked == [0.02]


async def test_the_loop_is_blocked_again_when_the_pause_is_over(calls, disk, monkeypatch):
    monkeypatch.setattr(calls, "_blocking_wait", 1e-9)
    monkeypatch.setattr(calls_module, "BLOCKING_PAUSE", 0.05 / 1e-9)
    assert await calls.make(disk.read) == "page"  # longer than a nanosecond
    monkeypatch.setattr(calls, "_blocking_wait", 60.0)
    await asyncio.sleep(0.06)
    ran = other_task()
    assert await calls.make(disk.read) == "page"
    assert ran == []


async def test_a_call_blocks_the_loop_no_longer_than_its_caller_waits(calls, disk, monkeypatch):
    monkeypatch.setattr(calls, "_blocking_wait", 60.0)
    disk.answers.clear()
    with pytest.raises(OutOfTime, match="within"):
        await calls.make(disk.read, within=0.05)


@pytest.mark.parametrize("is_local", [True, False])
async def test_only_a_call_on_this_machine_blocks_the_loop_while_it_computes(
    counters, monkeypatch, is_local
):
    monkeypatch.setattr(calls_module, "LOCAL_BLOCKING_WAIT", 60.0)
    runtime = AsyncioRuntime()
    calls = Calls("x", 1, kind="k", runtime=runtime, clocks=CLOCKS, counters=counters,
                  is_local=is_local)  # fmt: skip
    ran = other_task()
    await calls.make(time.sleep, 0.05)
    assert ran == ([] if is_local else ["ran"])
    runtime.close()


class Outcome(Exception):
    """An exception of a function that is called."""


ERRORS = (Outcome("x"), StoreError("y"), TimeoutError("z"), OSError(5, "I/O"), NoThread("none"))


@given(st.lists(st.sampled_from([None, *ERRORS]), max_size=8), st.booleans())
def test_blocking_and_awaited_calls_have_the_same_outcomes(ends, is_undone):
    """Blocking the loop changes no result, no exception, and no slot."""

    def function(end):
        if end is not None:
            raise end
        return "result"

    async def run(*, blocks):
        undone = []
        runtime = AsyncioRuntime()
        calls = Calls("the disk", 2, kind="k", runtime=runtime, clocks=CLOCKS,
                      counters=Counters(CLOCKS))  # fmt: skip
        calls._may_block_from = -math.inf if blocks else math.inf
        undo = undone.append if is_undone else None
        outcomes = await asyncio.gather(
            *(calls.make(function, end, undo=undo) for end in ends), return_exceptions=True
        )
        await until(lambda: not calls._pending)
        runtime.close()
        return [(type(each), str(each)) for each in outcomes], undone, calls._room._free

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls_module, "BLOCKING_WAIT", 60.0)
        assert asyncio.run(run(blocks=True)) == asyncio.run(run(blocks=False))


async def test_a_guard_blocks_its_loop_longer_for_a_store_on_this_machine(tmp_path):
    store = SqliteStore(tmp_path / "store.sqlite")
    guard = make_guard(ScriptedFetcher({}), store=store)
    assert guard._all_calls[0]._blocking_wait == calls_module.LOCAL_BLOCKING_WAIT
    assert guard._all_calls[1]._blocking_wait == calls_module.BLOCKING_WAIT
    assert not RedisStore.is_local
    assert not RegionalStore.is_local
    guard.close()
