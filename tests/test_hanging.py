"""A hung store or audit log: whichever call hangs, every check, turn and renewal ends, and so does
the guard."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading

import pytest
from support.guards import make_guard
from support.stores import LeasingStore, in_a_fork, start_redis
from support.threads import System
from support.waiting import until

import robots_guard.guard.calls as calls_module
import robots_guard.guard.guard as guard_module
import robots_guard.guard.turns as turns_module
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import OutOfTime
from robots_guard.guard.calls import RULES_WIDTH, STORE_WIDTH
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import THREADS
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of
from robots_guard.testing import CapturingAuditLog

# These tests read and replace private attributes: a hung call and a full pool have no public face,
# and a guard's fetcher cannot be replaced.

A = origin_of("https://a.test")
SLOWLY = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 0.01\n", tls_verified=True)
LARGE = Fetched(
    status=200, body=b"User-agent: *\nDisallow: /private/\n" + b"# \n" * 30_000, tls_verified=True
)
SHORT = 0.3  # instead of `CALL_TIMEOUT`
ENDS = 30.0  # seconds in which everything has ended, on any machine
CALLS = ("get", "put", "take_and_get", "release", "reserve", "move_turn", "note_pause")


class Hanging:
    """A store in which the chosen calls hang, or all from the `hangs_from`-th on, until it
    `answers` again."""

    def __init__(self, *hangs: str, hangs_from: float = float("inf")) -> None:
        self.hangs = set(hangs)
        self.hangs_from = hangs_from
        self.answers = threading.Event()
        self.made = itertools.count()
        self.waiting = self.most_waiting = 0
        self._lock = threading.Lock()
        self._held = LeasingStore()

    def __getattr__(self, name):
        work = getattr(self._held, name)

        def call(*args):
            self._reach(name)
            return work(*args)

        return call if callable(work) else work

    def _reach(self, name):
        if name in self.hangs or next(self.made) >= self.hangs_from:
            self._count(1)
            assert self.answers.wait(120)
            self._count(-1)

    def _count(self, change):
        with self._lock:
            self.waiting += change
            self.most_waiting = max(self.most_waiting, self.waiting)


class HangingAuditLog:
    """`note` and `close` hang until it `answers` again; `write` does not, because decisions are
    recorded inline."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def write(self, decision):
        pass

    def note(self, event, **named):
        assert self.answers.wait(120)

    def close(self):
        assert self.answers.wait(120)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", SHORT)
    for name in ("STORE_GRACE", "UPDATE_TIMEOUT"):
        monkeypatch.setattr(turns_module, name, SHORT / 2, raising=False)
    for name in ("DRAIN_TIMEOUT", "CLOSE_TIMEOUT"):
        monkeypatch.setattr(guard_module, name, 2 * SHORT, raising=False)


@pytest.fixture
def build():
    answering = []

    def build(store, audit_log=None, outcome=SLOWLY, **options):
        answering.extend(each.answers for each in (store, audit_log) if hasattr(each, "answers"))
        fetcher = ScriptedFetcher({f"{A}/robots.txt": outcome})
        return make_guard(fetcher, store=store, audit_log=audit_log, **options)

    yield build
    for answers in answering:
        answers.set()


def ask(origin=A) -> Question:
    return Question(origin=origin, target="/page", agent="mybot")


async def use(guard: Guard) -> list[Action]:
    """Do everything that an integration does with a guard; return the decisions."""
    async with asyncio.timeout(ENDS):
        decision = guard.peek(ask()) or await guard.check(ask())
        turn = await guard.turn(decision, 0.1)
        await guard.mark_response_started(guard.mark_sent(turn))
        await guard.note_pause(A, 1)
        await guard.prefetch(ask())
        await guard.drain()
    return [decision.verdict.action, turn.verdict.action]


def close(guard: Guard) -> None:
    """Close in a thread, because a hung guard would hang the tests."""
    closing = threading.Thread(target=guard.close, daemon=True)
    closing.start()
    closing.join(ENDS)
    assert not closing.is_alive()


@pytest.mark.parametrize("hangs", [*((call,) for call in CALLS), CALLS], ids="+".join)
async def test_request_is_answered_whatever_call_hangs(build, hangs):
    guard = build(Hanging(*hangs, "close"))
    checked, _ = await use(guard)
    close(guard)

    assert checked is Action.PASS
    assert guard.waiting == 0


@pytest.mark.parametrize("call", range(7))
async def test_request_is_answered_whatever_call_hangs_first(build, call):
    guard = build(Hanging(hangs_from=call))
    checked, _ = await use(guard)
    close(guard)

    assert checked is Action.PASS
    assert guard.counts["store/error"]


async def test_a_check_ends_by_its_time_though_each_call_takes_it(build, monkeypatch):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 60.0)
    guard = build(Hanging(*CALLS), decision_timeout=0.2)
    async with asyncio.timeout(ENDS):
        decision = await guard.check(ask())
    close(guard)

    assert decision.verdict.action is Action.DEFER
    assert "policy store" in decision.verdict.detail


async def test_preparing_ends_with_the_time_for_a_decision(build):
    async def never(_):
        await asyncio.Event().wait()

    guard = build(None, outcome=never, decision_timeout=0.2)
    async with asyncio.timeout(ENDS):
        await guard.prefetch(ask())
    close(guard)


async def test_a_hung_audit_log_holds_up_no_renewal(build):
    guard = build(None, HangingAuditLog())
    assert await use(guard) == [Action.PASS, Action.PASS]
    assert guard.counts["audit_log/error"]
    close(guard)


async def test_rules_are_compiled_though_store_and_audit_log_hang(build, monkeypatch):
    """The rules of a large robots.txt are compiled in a thread."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 2.0)  # of compiling, too
    origins = [origin_of(f"https://a{number}.test") for number in range(20)]
    guard = build(Hanging(*CALLS), HangingAuditLog())
    guard._fetcher = ScriptedFetcher({f"{origin}/robots.txt": LARGE for origin in origins})
    async with asyncio.timeout(ENDS):
        decisions = await asyncio.gather(*(guard.check(ask(origin)) for origin in origins))
    close(guard)

    assert {decision.verdict.action for decision in decisions} == {Action.PASS}


# -- a moment without threads ---------------------------------------------------------------------------------


@pytest.fixture
def system(monkeypatch):
    return System(monkeypatch)


@pytest.mark.parametrize("outcome", [SLOWLY, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["memory", "shared"])
async def test_shortage_of_threads_ends_when_threads_are_available(
    build, system, monkeypatch, kind, outcome
):
    """Any number of calls is refused; none is waited for."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 2 * ENDS)
    guard = build(Hanging() if kind == "shared" else None, outcome=outcome)
    system.refuse_all()
    async with asyncio.timeout(ENDS):
        without = [await guard.check(ask()) for _ in range(2 * THREADS)]
    system.refuses = 0
    async with asyncio.timeout(ENDS):
        decision = await guard.check(ask())
    close(guard)

    assert {each.verdict.action for each in without} == {
        Action.DEFER if outcome is LARGE else Action.PASS
    }
    assert decision.verdict.action is Action.PASS
    assert bool(guard.counts["rules/error"]) == (outcome is LARGE)


async def test_reason_names_the_missing_thread(build, system):
    guard = build(None, outcome=LARGE)
    system.refuse_all()
    decision = await guard.check(ask())
    await guard.prefetch(ask())
    system.refuses = 0
    close(guard)

    assert decision.verdict.detail == "the parser cannot be called: can't start new thread"


async def test_a_fetch_that_no_thread_records_is_counted(build, system):
    guard = build(None)
    system.refuse_all()
    decision = await guard.check(ask())
    system.refuses = 0
    close(guard)

    assert decision.verdict.action is Action.PASS
    assert guard.counts["fetch/count"] == guard.counts["audit_log/error"] == 1


async def test_a_check_ends_by_its_time_though_no_thread_is_free(build, monkeypatch):
    """At most `RULES_WIDTH` calls of the guard wait for a thread."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 60.0)
    free = threading.Event()
    guard = build(None, outcome=LARGE, decision_timeout=0.5)
    await guard.policy(A)
    for _ in range(THREADS):
        guard._runtime._threads.submit(free.wait, 60)
    async with asyncio.timeout(ENDS):
        decisions = await asyncio.gather(*(guard.check(ask()) for _ in range(20)))
        await guard.prefetch(ask())
    assert guard._runtime._threads._calls.qsize() == RULES_WIDTH
    free.set()
    async with asyncio.timeout(ENDS):
        while (after := await guard.check(ask())).verdict.action is Action.DEFER:
            pass
    close(guard)

    assert {decision.verdict.action for decision in decisions} == {Action.DEFER}
    assert all("no answer from the parser" in decision.verdict.detail for decision in decisions)
    assert after.verdict.action is Action.PASS


def test_closing_without_a_thread_closes_all_the_same(build, system):
    class Closing(CapturingAuditLog):
        closed = False

        def close(self):
            self.closed = True

    class ClosingStore(LeasingStore):
        closed = False

        def close(self):
            self.closed = True

    store, audit_log = ClosingStore(), Closing()
    guard = build(store, audit_log)
    system.refuse_all()
    guard.close()

    assert (audit_log.closed, store.closed) == (True, True)


def test_a_forked_child_uses_the_guard(build, tmp_path):
    store = SqliteStore(tmp_path / "policies.sqlite")
    guard = build(store, outcome=LARGE)

    def asks(origin) -> bool:
        guard._fetcher = ScriptedFetcher({f"{origin}/robots.txt": LARGE})
        return asyncio.run(guard.check(ask(origin))).verdict.action is Action.PASS

    assert asks(A)
    assert in_a_fork(lambda: asks(origin_of("https://b.test")))
    assert asks(origin_of("https://c.test"))
    close(guard)


class Waiting(ScriptedFetcher):
    """Sends what it fetches when it `may_go_on`."""

    may_go_on = False

    async def fetch(self, get):
        while not self.may_go_on:
            await asyncio.sleep(0.01)
        return await super().fetch(get)


async def test_a_forked_child_waits_for_no_fetch_of_its_parents(build):
    guard = build(None)
    guard._fetcher = fetcher = Waiting({f"{A}/robots.txt": LARGE})
    parents = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: guard.counts["fetch/count"], within=ENDS)

    def child() -> bool:
        asyncio._set_running_loop(None)
        fetcher.may_go_on = True
        decision = asyncio.run(asyncio.wait_for(guard.check(ask()), ENDS))
        return decision.verdict.action is Action.PASS

    assert in_a_fork(child)
    fetcher.may_go_on = True
    assert (await parents).verdict.action is Action.PASS
    close(guard)


@pytest.mark.parametrize("threads", [1, STORE_WIDTH, 32])
async def test_as_many_calls_to_the_store_are_in_progress_as_the_setting_allows(
    build, monkeypatch, threads
):
    """The threads of the audit log and of the parser are others."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", ENDS)
    store = Hanging("get")
    guard = build(store, store_threads=threads)
    asking = [
        asyncio.ensure_future(guard.check(ask(origin_of(f"https://{n}.test"))))
        for n in range(3 * threads)
    ]
    await until(lambda: store.waiting == threads, within=ENDS)
    assert await guard._runtime.in_thread(int, "7") == 7
    assert len(guard._all_calls[0]._pending) == threads
    store.answers.set()
    await asyncio.gather(*asking)
    assert store.most_waiting == threads
    close(guard)


async def test_a_forked_child_has_no_calls_of_its_parents(build):
    """The parent's calls hang in threads that the child does not have."""
    store = Hanging("get")
    guard = build(store)
    parents = [
        asyncio.ensure_future(guard.check(ask(origin_of(f"https://{n}.test"))))
        for n in range(STORE_WIDTH)
    ]
    await until(lambda: len(guard._all_calls[0]._pending) == STORE_WIDTH, within=ENDS)

    def child() -> bool:
        asyncio._set_running_loop(None)
        store.answers.set()
        asyncio.run(asyncio.wait_for(guard.check(ask()), ENDS))
        return not guard.counts["store/error"]

    assert in_a_fork(child)
    store.answers.set()
    await asyncio.gather(*parents)
    close(guard)


# -- turns --------------------------------------------------------------------------------------------------


async def test_a_turn_that_the_store_does_not_grant_in_time_is_deferred(build, monkeypatch):
    """It is deferred rather than granted locally: the store may be busy serving other processes."""
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 60.0)
    guard = build(Hanging("reserve"))
    async with asyncio.timeout(ENDS):
        turned = await guard.turn(await guard.check(ask()))

    assert turned.verdict.action is Action.DEFER
    close(guard)


async def test_without_a_store_that_answers_turns_are_kept_here(build):
    guard = build(Hanging("reserve"))
    async with asyncio.timeout(ENDS):
        decision = await guard.check(ask())
        while (turned := await guard.turn(decision)).verdict.action is Action.DEFER:
            pass

    assert turned.turn is not None
    close(guard)


async def test_waiter_behind_a_hanging_turn_waits_for_its_patience(build, monkeypatch):
    monkeypatch.setattr(turns_module, "STORE_GRACE", 60.0)
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT", 60.0)
    store = Hanging("reserve")
    guard = build(store)
    async with asyncio.timeout(ENDS):
        decision = await guard.check(ask())
        first = asyncio.ensure_future(guard.turn(decision, 60))
        await until(lambda: guard.waiting)
        later = await asyncio.gather(*(guard.turn(decision, 0.2) for _ in range(20)))

        assert {turned.verdict.action for turned in later} == {Action.DEFER}
        assert guard.waiting == 1
        store.answers.set()
        assert (await first).turn is not None
    close(guard)


# -- leases -------------------------------------------------------------------------------------------------


async def test_late_lease_is_released(build):
    store = Hanging("take_and_get")
    guard = build(store)
    async with asyncio.timeout(ENDS):
        decision = await guard.check(ask())
        assert decision.verdict.action is Action.PASS
        assert store.leases == {}
        store.answers.set()
        await until(lambda: not guard._renewals._store_calls._pending)

    assert store.leases == {}
    close(guard)


async def test_lease_is_released_though_the_reply_was_lost(build):
    class Lossy(LeasingStore):
        def take(self, *args):
            super().take(*args)
            raise OutOfTime("the answer was lost")

    store = Lossy()
    guard = build(store)
    async with asyncio.timeout(ENDS):
        assert (await guard.check(ask())).verdict.action is Action.PASS

    assert store.leases == {}
    close(guard)


# -- the end ------------------------------------------------------------------------------------------------


async def test_settling_is_bounded(build):
    """This holds even if a fetch never ends."""
    answers = asyncio.Event()

    class Never(ScriptedFetcher):
        async def fetch(self, get):
            await answers.wait()
            return await super().fetch(get)

    guard = build(Hanging(*CALLS))
    guard._fetcher = Never({f"{A}/robots.txt": SLOWLY})
    asking = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: len(guard._renewals))
    async with asyncio.timeout(ENDS):
        await guard.drain()
        answers.set()
        await asking
    close(guard)


def test_closing_names_what_hangs(build, caplog):
    close(build(Hanging("close"), HangingAuditLog()))

    assert [record.getMessage() for record in caplog.records] == [
        "the audit log hangs; continuing without closing it",
        "the policy store hangs; continuing without closing it",
    ]


def test_a_fault_while_closing_is_not_swallowed(build):
    class Failing(HangingAuditLog):
        def close(self):
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        build(None, Failing()).close()


# -- names --------------------------------------------------------------------------------------------------


async def test_names_and_tokens_come_from_the_given_source(build):
    numbers = itertools.count(1)
    taken = []

    class Noting(LeasingStore):
        def take(self, origin, token, now, seconds):
            taken.append(token)
            return super().take(origin, token, now, seconds)

    guard = build(Noting(), tokens=lambda size: f"{size}x{next(numbers)}")
    decision = await guard.check(ask())
    close(guard)

    assert decision.id == "5x2-1"
    assert taken == ["8x3"]


# -- real ones ----------------------------------------------------------------------------------------------


async def test_a_redis_server_that_is_stopped(build, tmp_path):
    server = start_redis(tmp_path)
    try:
        guard = build(open_store(f"{server.url}?timeout=60"))
        os.kill(server.process.pid, signal.SIGSTOP)
        checked, _ = await use(guard)
        close(guard)
        assert checked is Action.PASS
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        server.process.kill()
        server.process.wait()


LOCKS = """
import os, signal, sqlite3, sys
there = sqlite3.connect(sys.argv[1], isolation_level=None)
there.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


async def test_a_database_whose_writer_is_stopped(build, tmp_path):
    store = SqliteStore(tmp_path / "policies.sqlite")
    there = [sys.executable, "-c", LOCKS, tmp_path / "policies.sqlite"]
    with subprocess.Popen(there, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"locked\n"
            guard = build(store)
            checked, _ = await use(guard)
            close(guard)
            assert checked is Action.PASS
        finally:
            writer.kill()
    store.close()
