"""Renewals: one per origin, in a process and across processes; bounded; each caller with its own
deadline."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.stores import LeasingStore
from support.waiting import until

from robots_guard.decisions import renewal
from robots_guard.decisions.access import Failed, Failure, Fetched, Limits
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import DamagedValue, StoreError
from robots_guard.guard import single_flight
from robots_guard.guard.counters import QUIET
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.sqlite import LeaseThenPolicy, SqliteStore
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks
from robots_guard.testing import CapturingAuditLog

# These tests read `_renewals`: what a guard's single flight still waits for has no public face.

A = origin_of("https://a.test")
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)


class Everywhere(ScriptedFetcher):
    """Every origin has the same robots.txt, behind a gate; `most` is the peak of concurrent
    fetches."""

    def __init__(self, outcome=RULES) -> None:
        super().__init__()
        self.outcome = outcome
        self.gate = asyncio.Event()
        self.under_way = self.most = 0

    async def fetch(self, get):
        self.gets.append(get)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        return self.outcome


def ask(target: str = "/private/x", origin=A) -> Question:
    return Question(origin=origin, target=target, agent="mybot")


class LeaseStore(SqliteStore):
    """A store that notes whether it has refused a lease."""

    has_refused = False

    def take(self, *lease):
        is_granted = super().take(*lease)
        self.has_refused |= not is_granted
        return is_granted


@pytest.fixture
def build(build_guard, tmp_path):
    def build(fetcher, *, shared=False, store=None, **options):
        if shared:
            store = SqliteStore(tmp_path / "policies.sqlite")
        return build_guard(fetcher, store=store, **options)

    return build


# -- in one process -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "sqlite"])
async def test_ten_thousand_askers_on_a_cold_origin_one_fetch(build, shared):
    fetcher = Everywhere()
    # 10,000 looks into a file, on any machine.
    guard = build(fetcher, shared=shared, decision_timeout=300.0)
    askers = [asyncio.ensure_future(guard.check(ask())) for _ in range(10_000)]
    await until(lambda: fetcher.gets and guard._renewals._waiting == 10_000)
    fetcher.gate.set()
    decisions = await asyncio.gather(*askers)

    assert {decision.verdict.reason for decision in decisions} == {Reason.DISALLOWED}
    assert len(fetcher.gets) == 1
    assert guard._renewals._waiting == 0
    assert len(guard._renewals) == 0


async def test_more_than_may_wait_are_deferred_and_recorded(build, monkeypatch):
    monkeypatch.setattr(single_flight, "WAITERS", 3)
    fetcher, audit_log = Everywhere(), CapturingAuditLog()
    guard = build(fetcher, audit_log=audit_log)
    askers = [asyncio.ensure_future(guard.check(ask())) for _ in range(3)]
    await until(lambda: fetcher.gets)
    refused = await guard.check(ask())
    fetcher.gate.set()
    await asyncio.gather(*askers)

    assert (refused.verdict.action, refused.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)
    assert refused.verdict.detail == "3 requests already wait for a robots.txt"
    assert [record.action for record in audit_log.records] == [
        "defer",
        "drop",
        "drop",
        "drop",
    ]
    assert (await guard.check(ask())).verdict.action is Action.DROP


async def test_each_caller_has_its_own_limit_and_the_fetch_continues(build):
    fetcher = Everywhere()
    guard = build(fetcher, decision_timeout=0.05)
    late = await asyncio.gather(*(guard.check(ask()) for _ in range(20)))

    assert {decision.verdict.action for decision in late} == {Action.DEFER}
    assert {decision.verdict.detail for decision in late} == {
        "no robots.txt within the decision timeout"
    }
    assert len(guard._renewals) == 1
    fetcher.gate.set()
    await until(lambda: len(guard._renewals) == 0)
    assert guard.peek(ask()).verdict.action is Action.DROP
    assert len(fetcher.gets) == 1


async def test_so_many_fetches_at_once_and_no_more(build):
    fetcher = Everywhere()
    guard = build(fetcher, shared=True)
    askers = [
        asyncio.ensure_future(guard.check(ask(origin=origin_of(f"https://{n}.test"))))
        for n in range(200)
    ]
    await until(lambda: fetcher.under_way == single_flight.FETCHES)
    await asyncio.sleep(0.05)
    at_first = len(fetcher.gets)
    fetcher.gate.set()
    decisions = await asyncio.gather(*askers)

    assert at_first == fetcher.most == single_flight.FETCHES == 64
    assert len(fetcher.gets) == 200
    assert {decision.verdict.action for decision in decisions} == {Action.DROP}


async def test_waiting_for_a_lease_does_not_block_other_fetches(build, monkeypatch, tmp_path):
    monkeypatch.setattr(single_flight, "FETCHES", 1)
    fetcher = Everywhere()
    fetcher.gate.set()
    store = LeaseStore(tmp_path / "policies.sqlite")
    guard = build(fetcher, store=store)
    other = SqliteStore(tmp_path / "policies.sqlite")
    other.take(A, "another's", time.time(), 35.0)
    waiting = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: store.has_refused)

    assert (
        await guard.check(ask(origin=origin_of("https://b.test")))
    ).verdict.action is Action.DROP
    assert not waiting.done()
    other.release(A, "another's")
    other.close()
    assert (await waiting).verdict.action is Action.DROP


async def test_stale_policy_is_not_refreshed_when_too_many_renewals_run(build, clock, monkeypatch):
    brief = Fetched(status=200, headers={"cache-control": "max-age=600"}, tls_verified=True)
    fetcher = ScriptedFetcher({"https://a.test/robots.txt": brief})
    guard = build(fetcher, clocks=Clocks(now=clock, monotonic=clock))
    await guard.check(ask())
    clock.advance(700)
    monkeypatch.setattr(single_flight, "WAITERS", 0)

    assert guard.peek(ask()).verdict.action is Action.PASS
    assert len(fetcher.gets) == 1


# -- among several ------------------------------------------------------------------------------------------


async def test_of_two_guards_on_one_store_one_fetches(build, tmp_path):
    one, two = Everywhere(), Everywhere()
    stores = [LeaseStore(tmp_path / "policies.sqlite") for _ in range(2)]
    guards = [
        build(fetcher, store=store) for fetcher, store in zip((one, two), stores, strict=True)
    ]
    askers = [asyncio.ensure_future(guard.check(ask())) for guard in guards for _ in range(50)]
    await until(lambda: one.gets or two.gets)
    await until(lambda: any(store.has_refused for store in stores))
    one.gate.set()
    two.gate.set()
    decisions = await asyncio.gather(*askers)

    assert {decision.verdict.reason for decision in decisions} == {Reason.DISALLOWED}
    assert len(one.gets) + len(two.gets) == 1


async def test_when_the_holder_has_died_the_next_takes_over_when_the_lease_ends(build, tmp_path):
    store, taken = SqliteStore(tmp_path / "policies.sqlite"), time.time()
    store.take(A, "dead", taken, 0.3)
    store.close()
    fetcher = Everywhere()
    fetcher.gate.set()
    async with asyncio.timeout(5):
        decision = await build(fetcher, shared=True, limits=Limits(total=1.0)).check(ask())

    assert decision.verdict.action is Action.DROP
    assert len(fetcher.gets) == 1
    assert time.time() >= taken + 0.3


@pytest.mark.parametrize(
    "verified", [True, False], ids=["late", "another's, which this integration does not trust"]
)
async def test_local_failure_replaces_no_shared_document(build, tmp_path, verified):
    """Another process fetched it meanwhile, or this one does not trust it: either way it is the
    last good copy."""
    theirs = Fetched(status=200, body=RULES.body, tls_verified=verified)
    fetcher = Everywhere(Failed(failure=Failure.TIMEOUT))
    guard = build(fetcher, shared=True)
    asking = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: fetcher.gets)
    other = SqliteStore(tmp_path / "policies.sqlite")
    document = renewal.begin(A, None, "scrapy").next(theirs, time.time()).policy.document
    other.put(Policy(origin=A, document=document), time.time())
    fetcher.gate.set()
    decision = await asking
    stored = other.get(A)
    other.close()

    assert decision.verdict.action is Action.DEFER if not verified else Action.DROP
    assert stored.trouble.failure is Failure.TIMEOUT
    assert stored.document == document


async def test_wait_for_an_endless_lease_is_bounded(build, monkeypatch):
    """The store contains a lease that does not expire."""

    class Stuck(LeaseThenPolicy, MemoryStore):
        is_local = True

        def take(self, *_):
            return False

        def release(self, *_):
            raise AssertionError("it is not ours")

    monkeypatch.setattr(single_flight, "MARGIN", 0.1)
    fetcher = Everywhere()
    fetcher.gate.set()
    async with asyncio.timeout(60):
        decision = await build(fetcher, store=Stuck(), limits=Limits(total=0.1)).check(ask())

    assert decision.verdict.reason is Reason.DISALLOWED
    assert len(fetcher.gets) == 1


async def test_lease_is_released_whatever_the_fetch_returns(build, tmp_path):
    class Broken(ScriptedFetcher):
        async def fetch(self, get):
            raise RuntimeError("boom")

    for fetcher in (
        Broken(),
        ScriptedFetcher(),
        ScriptedFetcher({"https://a.test/robots.txt": RULES}),
    ):
        await build(fetcher, shared=True).policy(A, renew=True)
        store = SqliteStore(tmp_path / "policies.sqlite")
        assert store.take(A, "next", time.time(), 35.0)
        store.release(A, "next")
        store.close()


async def test_a_lease_is_released_in_the_call_that_stores_the_policy(build):
    """If that fails, in a call of its own, which reports the failure."""
    threads = []

    class Noting(LeasingStore):
        fails = False

        def put(self, policy, now):
            threads.append(("put", threading.get_ident()))
            super().put(policy, now)

        def release(self, origin, token):
            threads.append(("release", threading.get_ident()))
            if self.fails:
                raise StoreError("no")
            super().release(origin, token)

    store = Noting()
    guard = build(ScriptedFetcher({"https://a.test/robots.txt": RULES}), store=store)
    await guard.policy(A, renew=True)
    (put, at), *releases = threads
    assert (put, releases) == ("put", [("release", at)])

    threads.clear()
    store.fails = True
    renewed = await guard.policy(A, renew=True)
    assert [name for name, _ in threads] == ["put", "release", "release"]
    assert renewed.document is not None
    assert guard.counts["store/error"] == 1


async def test_closing_guard_releases_its_leases(build, tmp_path):
    fetcher = Everywhere()
    guard = build(fetcher, shared=True)
    asking = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: fetcher.gets)  # so the lease is held
    guard.close()
    asking.cancel()
    store = SqliteStore(tmp_path / "policies.sqlite")

    assert store.take(A, "next", time.time(), 35.0)
    store.close()


async def test_settling_waits_for_fetches_but_not_for_anothers_lease(build, tmp_path, caplog):
    """At the end of a crawl running fetches are kept, and the rest does not delay the end by half a
    minute."""
    fetcher = Everywhere()
    guard = build(fetcher, shared=True)
    other = SqliteStore(tmp_path / "policies.sqlite")
    other.take(A, "another's", time.time(), 35.0)
    asking = [
        asyncio.ensure_future(guard.check(ask(origin=origin_of(url))))
        for url in ("https://a.test", "https://b.test")
    ]
    await until(lambda: fetcher.gets)
    settling = asyncio.ensure_future(guard.drain())
    await asyncio.sleep(0.02)
    assert not settling.done()
    fetcher.gate.set()
    async with asyncio.timeout(2):
        await settling

    assert [(await one).verdict.action for one in asking] == [Action.DEFER, Action.DROP]
    assert other.get(origin_of("https://b.test")) is not None
    assert other.get(A) is None
    assert "failed" not in caplog.text
    other.close()


async def test_settling_gives_up_a_fetch_that_does_not_come(build, caplog):
    fetcher = Everywhere()
    guard = build(fetcher)
    asking = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: fetcher.gets)
    async with asyncio.timeout(30):
        await guard._renewals.drain(0.05)

    assert caplog.messages == ["1 robots.txt fetches abandoned: not finished within 0.05 s"]
    fetcher.gate.set()
    assert (await asking).verdict.action is Action.DROP


async def test_policy_stored_by_another_process_during_the_wait_is_used(build, tmp_path):
    fetcher = Everywhere()
    store = LeaseStore(tmp_path / "policies.sqlite")
    guard = build(fetcher, store=store)
    other = SqliteStore(tmp_path / "policies.sqlite")
    other.take(A, "another's", time.time(), 35.0)
    asking = asyncio.ensure_future(guard.check(ask()))
    await until(lambda: store.has_refused)
    theirs = await build(ScriptedFetcher({"https://a.test/robots.txt": RULES})).policy(A)
    other.put(theirs, time.time())
    other.close()  # and never gives its lease back

    assert (await asking).policy == theirs
    assert fetcher.gets == []


async def test_a_store_that_hangs_takes_no_longer_than_the_time_for_a_decision(build):
    """There are more callers than threads: the last would wait for all earlier ones."""
    answers = threading.Event()

    class Hanging(LeasingStore):
        def get(self, origin):
            answers.wait(60)
            return super().get(origin)

    guard = build(Everywhere(), store=Hanging(), decision_timeout=0.2)
    asking = [guard.check(ask(origin=origin_of(f"https://a{number}.test"))) for number in range(20)]
    try:
        async with asyncio.timeout(60):
            decisions = await asyncio.gather(*asking)
    finally:
        answers.set()

    assert {decision.verdict.action for decision in decisions} == {Action.DEFER}
    assert all("policy store" in decision.verdict.detail for decision in decisions)


# -- with a broken store ------------------------------------------------------------------------------------


class Broken(LeasingStore):
    """A store of which the chosen calls work, and the others fail."""

    def __init__(self, *works: str) -> None:
        super().__init__()
        for name in {"get", "put", "take", "release"} - set(works):
            setattr(self, name, self._fail)

    def _fail(self, *_):
        raise StoreError("out of order")


@pytest.mark.parametrize("works", [[], ["get"], ["get", "put"], ["take", "release"], ["put"]])
async def test_with_a_broken_store_there_is_one_fetch_a_process(build, works, caplog):
    fetcher = Everywhere()
    guard = build(fetcher, store=Broken(*works))
    askers = [asyncio.ensure_future(guard.check(ask())) for _ in range(100)]
    await until(lambda: fetcher.gets)
    fetcher.gate.set()
    decisions = await asyncio.gather(*askers)

    assert {decision.verdict.reason for decision in decisions} == {Reason.DISALLOWED}
    assert len(fetcher.gets) == 1
    assert guard.counts["store/error"] > 0
    # Logged once a minute.
    assert caplog.text.count("policy store") + caplog.text.count("a lease was not") == 1
    assert guard.peek(ask()).verdict.action is Action.DROP


async def test_damaged_value_is_a_miss_with_its_own_warning(build, caplog):
    class Forged(Broken):
        def get(self, origin):
            raise DamagedValue("does not carry our MAC")

    store = Forged("get", "put", "take", "release")
    guard = build(ScriptedFetcher({"https://a.test/robots.txt": RULES}), store=store)

    assert (await guard.check(ask())).verdict.action is Action.DROP
    assert guard.counts["store/damaged"] == 2
    assert "does not carry our MAC" in caplog.text


async def test_failure_is_shared_so_that_the_next_guard_does_not_fetch(build):
    first = ScriptedFetcher({"https://a.test/robots.txt": Failed(failure=Failure.CONNECT)})
    second = ScriptedFetcher({"https://a.test/robots.txt": RULES})
    deferred = await build(first, shared=True).check(ask())
    again = await build(second, shared=True).check(ask())

    assert deferred.verdict.action is again.verdict.action is Action.DEFER
    assert second.gets == []


# -- one step by itself -------------------------------------------------------------------------------------


class Noting(LeasingStore):
    """Notes for how many seconds each lease is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = []

    def take(self, origin, token, now, seconds):
        self.taken.append(seconds)
        return super().take(origin, token, now, seconds)


async def test_a_lease_outlasts_its_fetch_by_the_margin(build):
    store = Noting()
    await build(
        ScriptedFetcher({"https://a.test/robots.txt": RULES}),
        store=store,
        limits=Limits(total=20.0),
    ).policy(A)

    assert store.taken == [20.0 + single_flight.MARGIN]


async def test_a_lease_is_waited_for_no_longer_than_twice_its_time(build, monkeypatch):
    patiences, begin = [], single_flight.lease.begin

    def noting(known, dialect, patience, **more):
        patiences.append(patience)
        return begin(known, dialect, patience, **more)

    monkeypatch.setattr(single_flight.lease, "begin", noting)
    guard = build(ScriptedFetcher({"https://a.test/robots.txt": RULES}), limits=Limits(total=20.0))
    await guard.policy(A)

    assert patiences == [2 * (20.0 + single_flight.MARGIN)]


async def test_each_hop_is_counted_once(build):
    moved = Fetched(status=301, headers={"location": "/r.txt"}, tls_verified=True)
    fetcher = ScriptedFetcher({"https://a.test/robots.txt": moved, "https://a.test/r.txt": RULES})
    guard = build(fetcher)
    await guard.policy(A)

    assert guard.counts["fetch/count"] == len(fetcher.gets) == 2


async def test_a_fault_of_our_own_is_named_in_the_policy(build):
    class Broken(ScriptedFetcher):
        async def fetch(self, get):
            raise ZeroDivisionError

    trouble = (await build(Broken()).policy(A)).trouble

    assert (trouble.failure, trouble.detail) == (Failure.INTERNAL, "ZeroDivisionError")


@pytest.mark.parametrize("part", ["reading", "writing"])
async def test_a_lease_that_is_granted_shows_that_the_store_works_again(build, caplog, part):
    time_now = [1_000.0]
    clocks = Clocks(now=lambda: time_now[0], monotonic=lambda: time_now[0])
    guard = build(Everywhere(), store=Noting(), clocks=clocks)
    guard._counters.warn("store/error", "gone: %s", StoreError("refused"), part=part)
    time_now[0] += QUIET

    assert await guard._renewals._take(single_flight._Job(A, None, Everywhere()))
    assert caplog.messages == ["gone: refused", "the policy store works again"]
