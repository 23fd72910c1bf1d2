"""The guard over scripted ports: one renewal per origin, independent cancellation, and refusals
after errors."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time

import msgspec
import pytest
from support.stores import LeasingStore
from support.waiting import until

import robots_guard.guard.rules as rules_module
from robots_guard.decisions.access import Failed, Failure, Fetched, Limits
from robots_guard.decisions.events import FailedOpen
from robots_guard.decisions.pacing import DelaySource, RequiredDelay, Turn
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Deferral, Question, Verdict
from robots_guard.errors import AuditLogError, StoreError, UnconfirmedRecord
from robots_guard.guard.counters import QUIET
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.guard.turn_check import FRESH_FOR
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

# These tests read `_renewals`, `_turns` and `_cache`, which have no public face, and replace
# `_checks.run_from_memory` to cause a fault.

A = origin_of("https://a.test")
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)


class Script:
    """A fetcher that returns outcomes by URL, and waits for a gate if there is one."""

    via = "script"

    def __init__(self, *outcomes, gate: asyncio.Event | None = None) -> None:
        self.outcomes = list(outcomes)
        self.gate = gate
        self.asked: list[str] = []
        self.limits: list[Limits] = []
        self.public_only: list[bool] = []

    async def fetch(self, get):
        self.asked.append(get.url)
        self.limits.append(get.limits)
        self.public_only.append(get.public_only)
        if self.gate:
            await self.gate.wait()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Records(list):
    """An audit log that keeps decisions, or fails."""

    broken = False

    def write(self, decision):
        if self.broken:
            raise AuditLogError("disk full")
        self.append(decision)

    def note(self, event, **named):
        pass

    def close(self):
        pass


def keeper(noted):
    """An audit log's `note`, which keeps what can be tried again."""

    def note(event, *, is_tried_again):
        assert is_tried_again
        noted.append(event)

    return note


class BrokenStore(LeasingStore):
    def get(self, origin):
        raise StoreError("database is locked")

    def put(self, policy, now):
        raise StoreError("database is locked")


@pytest.fixture
def audit_log():
    return Records()


@pytest.fixture
def build(build_guard, clock, audit_log):
    def build(fetcher, store=None, wall=clock, **options):
        clocks = Clocks(now=wall, monotonic=wall)
        return build_guard(fetcher, store=store, audit_log=audit_log, clocks=clocks, **options)

    return build


def ask(target: str = "/", origin=A) -> Question:
    return Question(origin=origin, target=target, agent="mybot")


async def test_the_first_check_fetches_and_the_rest_are_answered_at_once(build):
    fetcher = Script(RULES)
    guard = build(fetcher)

    assert guard.peek(ask()) is None
    first = await guard.check(ask("/private/x"))
    second = guard.peek(ask("/private/x"))

    assert (first.verdict.action, first.source) == (Action.DROP, "fetch")
    assert (second.verdict.action, second.source) == (Action.DROP, "memory")
    assert fetcher.asked == ["https://a.test/robots.txt"]


async def test_fifty_callers_share_one_fetch_though_one_is_cancelled(build):
    gate = asyncio.Event()
    fetcher = Script(RULES, gate=gate)
    guard = build(fetcher)
    askers = [asyncio.ensure_future(guard.check(ask(f"/{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    askers[0].cancel()  # the caller that began the fetch
    await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*askers, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(answer.verdict.action is Action.PASS for answer in answers[1:])
    assert len(fetcher.asked) == 1
    assert not guard._renewals


async def test_a_failing_fetcher_answers_every_waiter_with_a_refusal(build):
    guard = build(Script(RuntimeError("boom")))
    answers = await asyncio.gather(*(guard.check(ask(f"/{n}")) for n in range(3)))

    assert {answer.verdict.action for answer in answers} == {Action.DEFER}
    assert {answer.verdict.reason for answer in answers} == {Reason.FETCHER_FAILED}
    assert not guard._renewals


async def test_eager_tasks_leave_no_renewal_behind(build):
    """mitmproxy 12 runs spawned work at once, possibly to its end, before spawn returns."""
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("eager tasks need Python 3.12")
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    guard = build(Script(RULES))

    assert (await guard.check(ask())).verdict.action is Action.PASS
    assert not guard._renewals


async def test_a_stale_policy_is_renewed_once_in_the_background(build, clock):
    brief = Fetched(
        status=200, body=b"", headers={"cache-control": "max-age=600"}, tls_verified=True
    )
    fetcher = Script(brief, RULES)
    guard = build(fetcher)
    await guard.check(ask())
    clock.advance(700)
    answers = [guard.peek(ask("/private/x")).verdict.action for _ in range(5)]
    await until(lambda: not guard._renewals)

    assert answers == [Action.PASS] * 5
    assert len(fetcher.asked) == 2
    assert guard.peek(ask("/private/x")).verdict.action is Action.DROP


async def test_an_expired_policy_is_not_used(build, clock):
    guard = build(Script(RULES, Fetched(status=404, tls_verified=True)))
    await guard.check(ask())
    clock.advance(86_400)

    assert guard.peek(ask("/private/x")) is None
    assert (await guard.check(ask("/private/x"))).verdict.reason is Reason.UNRESTRICTED


async def test_policy_stored_by_another_integration_is_used_without_a_fetch(build):
    store = LeasingStore()
    await build(Script(RULES), store).check(ask())
    second = Script(Failed(failure=Failure.DNS))
    decision = await build(second, store).check(ask("/private/x"))

    assert decision.source == "store"
    assert decision.verdict.action is Action.DROP
    assert second.asked == []


async def test_a_broken_store_is_a_miss_and_counted(build, caplog):
    guard = build(Script(RULES), BrokenStore())
    decision = await guard.check(ask("/private/x"))

    assert decision.verdict.action is Action.DROP
    assert guard.counts["store/error"] == 4  # looking, looking with the lease and without, putting
    assert caplog.text.count("policy store") == 1  # logged once a minute


async def test_recovery_of_a_store_is_logged_once(build, clock, caplog, monkeypatch):
    guard = build(Script(RULES), BrokenStore())
    await guard.check(ask())
    for name in ("get", "put"):
        monkeypatch.setattr(BrokenStore, name, getattr(LeasingStore, name))
    clock.advance(QUIET)
    for host in "bc":
        await guard.check(ask(origin=origin_of(f"https://{host}.test")))

    assert [message.partition(":")[0] for message in caplog.messages] == [
        "the policy store cannot be read; continuing without it",
        "the policy store works again",
    ]


async def test_recovery_of_the_audit_log_is_logged_once(build, clock, audit_log, caplog):
    guard = build(Script(RULES))
    await guard.check(ask())
    audit_log.broken = True
    guard.peek(ask("/private/x"))
    audit_log.broken = False
    clock.advance(QUIET)
    for _ in range(2):
        guard.peek(ask("/private/x"))

    assert caplog.messages == [
        "a decision could not be recorded: disk full",
        "the audit log works again",
    ]


async def test_a_policy_over_unverified_tls_is_a_miss_for_an_integration_that_verifies(build):
    store = LeasingStore()
    unverified = Fetched(status=200, body=b"")
    await build(Script(unverified), store, demands_verified=False).check(ask())
    fetcher = Script(RULES)

    assert (await build(fetcher, store).check(ask("/private/x"))).verdict.action is Action.DROP
    assert len(fetcher.asked) == 1


async def test_unreachable_origin_is_not_retried_early(build, clock):
    fetcher = Script(Fetched(status=503, tls_verified=True), RULES)
    guard = build(fetcher)
    first = await guard.check(ask())
    for _ in range(5):
        assert guard.peek(ask()).verdict.action is Action.DEFER
    clock.now = first.verdict.until
    assert guard.peek(ask()) is None

    assert (await guard.check(ask())).verdict.action is Action.PASS
    assert len(fetcher.asked) == 2


async def test_http_and_https_are_two_origins(build):
    fetcher = Script(RULES)
    guard = build(fetcher)
    await guard.check(ask())
    await guard.check(ask(origin=origin_of("http://a.test")))

    assert fetcher.asked == ["https://a.test/robots.txt", "http://a.test/robots.txt"]


async def test_all_hops_share_the_total_time(build, clock):
    class Slow(Script):
        async def fetch(self, get):
            clock.advance(12)
            return await super().fetch(get)

    fetcher = Slow(Fetched(status=301, headers={"location": "/r"}), RULES)
    await build(fetcher).check(ask())

    assert [limits.total for limits in fetcher.limits] == [30, 18]


async def test_a_redirect_from_a_public_site_is_fetched_from_public_addresses_only(build):
    moved = Fetched(status=301, headers={"location": "/r.txt"}, tls_verified=True, public=True)
    fetcher = Script(moved, RULES)
    await build(fetcher).check(ask())

    assert fetcher.public_only == [False, True]


async def test_a_large_file_is_compiled_off_the_event_loop(build, monkeypatch):
    threads = []
    guard = build(
        Script(
            Fetched(
                status=200, body=b"User-agent: *\nDisallow: /private/\n" * 4000, tls_verified=True
            )
        )
    )
    compile_here = rules_module.compiled
    compiled = lambda *a: (threads.append(threading.current_thread()), compile_here(*a))[1]  # noqa: E731
    monkeypatch.setattr(rules_module, "compiled", compiled)

    assert (await guard.check(ask("/private/x"))).verdict.action is Action.DROP
    assert threads != [threading.main_thread()]
    assert guard.peek(ask("/private/x")).verdict.action is Action.DROP


async def test_internal_exception_refuses(build, monkeypatch, audit_log):
    guard = build(Script(RULES))
    await guard.check(ask())
    monkeypatch.setattr("robots_guard.decisions.check.judge", lambda *_: 1 / 0)

    for decision in (guard.peek(ask()), await guard.check(ask())):
        assert decision.verdict.action is Action.DROP
        assert decision.verdict.reason is Reason.INTERNAL_ERROR
    assert len(audit_log) == 3


async def test_every_decision_is_recorded_before_it_is_released(build, audit_log):
    guard = build(Script(RULES))
    decision = await guard.check(ask("/private/x"))

    assert audit_log == [decision]
    assert decision.id
    assert decision.policy.document.sha256


async def test_a_refusal_that_cannot_be_recorded_is_still_a_refusal(build, audit_log):
    guard = build(Script(RULES))
    audit_log.broken = True

    assert (await guard.check(ask("/private/x"))).verdict.action is Action.DROP
    assert guard.counts["audit_log/error"] == 1


@pytest.fixture
def faulty(audit_log):
    """Makes the next writes to the audit log fail in a way that it does not foresee."""
    write, faults = audit_log.write, []

    def fail(decision):
        if faults:
            raise faults.pop()
        write(decision)

    audit_log.write = fail
    return lambda times: faults.extend(
        [UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no such character")] * times
    )


async def test_fault_in_the_audit_log_refuses_any_decision(build, audit_log, faulty):
    guard = build(Script(RULES))
    await guard.check(ask())
    exempt = Verdict(action=Action.PASS, reason=Reason.BYPASSED)

    decisions = []
    for target in ("/open", "/private/x"):
        faulty(1)
        decisions.append(guard.peek(ask(target)))
        faulty(1)
        decisions.append(await guard.check(ask(target)))
    faulty(1)
    decisions.append(guard.decide(ask(), exempt))

    assert {(one.verdict.action, one.verdict.reason) for one in decisions} == {
        (Action.DROP, Reason.INTERNAL_ERROR)
    }
    assert audit_log[1:] == decisions, "the refusals could be recorded"
    assert guard.counts["drop/internal-error"] == guard.counts["audit_log/error"] == 5


@pytest.mark.parametrize("required", [False, True])
async def test_lasting_fault_refuses_without_a_record(build, audit_log, faulty, required):
    guard = build(Script(RULES), audit_required=required)
    await guard.check(ask())
    faulty(2)
    decision = guard.peek(ask("/open"))

    assert (decision.verdict.action, decision.verdict.reason) == (
        Action.DROP,
        Reason.INTERNAL_ERROR,
    )
    assert len(audit_log) == 1


async def test_where_nothing_is_refused_a_fault_refuses_only_what_is_refused_in_every_mode(
    build, faulty
):
    guard = build(Script(RULES), report_only=True)
    await guard.check(ask())
    faulty(1)
    reported = guard.peek(ask("/open"))
    faulty(1)
    ambiguous = guard.decide(ask(), Verdict(action=Action.DROP, reason=Reason.AMBIGUOUS_AUTHORITY))

    assert (reported.verdict.action, reported.verdict.would) == (Action.PASS, Action.DROP)
    assert ambiguous.verdict.action is Action.DROP


async def test_fault_while_taking_a_turn_refuses(build, clock, audit_log, faulty, monkeypatch):
    guard = build(Script(SLOW))
    first, second, third = (
        await guard.check(ask("/a")),
        guard.peek(ask("/b")),
        guard.peek(ask("/c")),
    )
    await guard.turn(first)
    faulty(1)
    unrecorded = await guard.turn(second)
    monkeypatch.setattr(MemoryStore, "reserve", lambda *_: 1 / 0)
    broken = await guard.turn(third)

    for decision in (unrecorded, broken):
        assert (decision.verdict.action, decision.verdict.reason) == (
            Action.DROP,
            Reason.INTERNAL_ERROR,
        )
        assert not decision.is_due
    assert audit_log[-2:] == [unrecorded, broken]


async def test_integration_verdict_survives_unreadable_overrides(build, monkeypatch):
    guard = build(Script(RULES))
    monkeypatch.setattr("robots_guard.guard.overrides.OverridesFile.terms", lambda *_: 1 / 0)
    decision = guard.decide(ask(), Verdict(action=Action.PASS, reason=Reason.BYPASSED))

    assert (decision.verdict.action, decision.verdict.reason) == (
        Action.DROP,
        Reason.INTERNAL_ERROR,
    )


async def test_a_fault_while_unrecorded_passes_are_noted_refuses_nothing(build, audit_log):
    guard = build(Script(RULES))
    await guard.check(ask())
    audit_log.broken = True
    guard.peek(ask("/unrecorded"))
    audit_log.broken = False
    audit_log.note = lambda event, **named: 1 / 0

    assert guard.peek(ask("/open")).verdict.action is Action.PASS


async def test_knows_says_whether_peek_will_answer(build, clock):
    guard = build(Script(RULES))
    assert guard.fresh_for(A) is None
    await guard.check(ask())
    assert guard.fresh_for(A) is not None
    clock.advance(100_000)
    assert guard.fresh_for(A) is None


async def test_fresh_for_is_the_rest_of_the_lifetime(build, clock):
    brief = Fetched(
        status=200, body=b"", headers={"cache-control": "max-age=600"}, tls_verified=True
    )
    guard = build(Script(brief))
    assert guard.fresh_for(A) is None
    await guard.check(ask())
    assert guard.fresh_for(A) == 600
    clock.advance(200)
    assert guard.fresh_for(A) == 400
    clock.advance(500)
    assert guard.fresh_for(A) == 0, "it is stale, and still usable"
    clock.advance(100_000)
    assert guard.fresh_for(A) is None


class SlowStore(LeasingStore):
    """A store whose first look-up reads at once and returns late."""

    def __init__(self):
        super().__init__()
        self.slow = iter([True])
        self.has_read = threading.Event()
        self.gate = threading.Event()

    def get(self, origin):
        found = super().get(origin)
        if next(self.slow, False):
            self.has_read.set()
            assert self.gate.wait(60)
        return found


async def test_lookup_that_began_before_a_renewal_ended_starts_no_other(build):
    fetcher, store = Script(RULES), SlowStore()
    guard = build(fetcher, store)
    late = asyncio.ensure_future(guard.check(ask("/late")))
    await until(store.has_read.is_set)
    await guard.check(ask("/early"))
    store.gate.set()

    assert (await late).verdict.action is Action.PASS
    assert len(fetcher.asked) == 1


@pytest.mark.parametrize("failure", [Failure.TLS, Failure.REFUSED, Failure.INTERNAL])
async def test_local_failure_is_not_shared(build, failure):
    """One integration does not trust the certificate; another that does is not affected."""
    store = LeasingStore()
    assert (
        await build(Script(Failed(failure=failure)), store).check(ask())
    ).verdict.action is Action.DEFER

    assert (
        await build(Script(RULES), store).check(ask("/private/x"))
    ).verdict.action is Action.DROP


async def test_failure_of_the_site_is_shared(build):
    store = LeasingStore()
    await build(Script(Fetched(status=503, tls_verified=True)), store).check(ask())
    other = Script(RULES)

    assert (await build(other, store).check(ask())).verdict.action is Action.DEFER
    assert other.asked == []


async def test_failure_is_used_though_its_document_is_not_trusted(build):
    """The failure is used; the document still serves the integrations that may use it."""
    store = LeasingStore()
    unverified, again = Fetched(status=200, body=RULES.body), Script(RULES)
    await build(Script(unverified), store, demands_verified=False).check(ask())
    await build(Script(Failed(failure=Failure.TIMEOUT)), store).check(ask())

    assert (await build(again, store).check(ask())).verdict.action is Action.DEFER
    decision = await build(again, store, demands_verified=False).check(ask("/private/x"))
    assert (decision.verdict.reason, decision.verdict.stale) == (Reason.DISALLOWED, True)
    assert again.asked == []


async def test_unverified_failure_is_ignored_by_an_integration_that_verifies(build):
    store = LeasingStore()
    await build(Script(Fetched(status=503)), store, demands_verified=False).check(ask())

    assert (
        await build(Script(RULES), store).check(ask("/private/x"))
    ).verdict.action is Action.DROP


# -- pacing and deferring ---------------------------------------------------------------------------------------

SLOW = Fetched(
    status=200, body=b"User-agent: *\nCrawl-delay: 10\nDisallow: /private/", tls_verified=True
)


def answer(body: bytes) -> Fetched:
    return Fetched(status=200, body=body, tls_verified=True)


async def test_permitted_request_takes_its_turn(build, clock, audit_log):
    guard = build(Script(SLOW))
    first = await guard.check(ask("/a"))
    second = guard.peek(ask("/b"))

    assert (first.verdict.delay.by, first.verdict.delay.seconds, first.verdict.delay.line) == (
        "crawl-delay",
        10.0,
        2,
    )
    assert (await guard.turn(first)).turn is not None
    put_off = await guard.turn(second)
    assert (put_off.verdict.action, put_off.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)
    assert put_off.verdict.until == clock() + 10
    assert put_off.verdict.rule.text == "Crawl-delay: 10"
    assert audit_log[-1] is put_off
    clock.advance(10)
    assert (await guard.turn(second)).turn is not None


async def test_turn_counts_from_sending_and_then_from_the_response(build, clock):
    guard = build(Script(SLOW))
    decision = await guard.turn(await guard.check(ask("/a")))
    assert guard.mark_sent(decision) is decision, "at once"

    clock.advance(0.1)
    decision = guard.mark_sent(decision)
    await asyncio.sleep(0)
    assert (await guard.turn(guard.peek(ask("/b")))).verdict.until == pytest.approx(clock() + 10)
    clock.advance(0.1)
    await guard.mark_response_started(decision)
    assert (await guard.turn(guard.peek(ask("/b")))).verdict.until == pytest.approx(clock() + 10)


async def test_request_sent_long_after_its_turn_needs_a_new_one(build, clock):
    guard = build(Script(SLOW))
    decision = await guard.turn(await guard.check(ask("/a")))
    clock.advance(0.6)

    assert not guard.mark_sent(decision).is_due
    decision = await guard.turn(decision)
    assert guard.mark_sent(decision) is decision
    clock.advance(9.5)
    assert (await guard.turn(guard.peek(ask("/b")))).verdict.until == pytest.approx(clock() + 0.5)


async def test_turn_is_not_used_after_another_process_took_one(build, clock):
    store = LeasingStore()
    guard, other = build(Script(SLOW), store), build(Script(SLOW), store)
    decision = await guard.turn(await guard.check(ask("/a")))
    clock.advance(10)
    assert (await other.turn(await other.check(ask("/b")))).turn is not None

    put_off = await guard.turn(decision)

    assert (put_off.verdict.reason, put_off.turn) == (Reason.CRAWL_DELAY, None)
    assert put_off.verdict.until == pytest.approx(clock() + 10)


async def test_a_decision_without_pace_needs_no_turn(build):
    guard = build(Script(RULES))
    decision = await guard.check(ask("/a"))

    assert decision.verdict.delay is None
    assert await guard.turn(decision) is decision


async def test_refused_request_takes_no_turn(build):
    assert (await build(Script(SLOW)).check(ask("/private/"))).verdict.delay is None


async def test_robots_txt_takes_a_turn_where_a_delay_is_known(build, clock):
    guard = build(Script(SLOW))
    await guard.turn(await guard.check(ask("/a")))
    asked = guard.peek(ask("/robots.txt"))
    put_off = await guard.turn(asked)
    clock.advance(10)

    assert (asked.verdict.action, asked.verdict.reason, asked.source) == (
        Action.PASS,
        Reason.ROBOTS_TXT,
        "memory",
    )
    assert (put_off.verdict.action, put_off.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)
    assert put_off.verdict.rule.text == "Crawl-delay: 10"
    assert (await guard.turn(asked)).turn is not None
    assert (await guard.turn(guard.peek(ask("/b")))).verdict.reason is Reason.CRAWL_DELAY, (
        "it counts for others"
    )


async def test_robots_txt_is_requested_at_once_where_nothing_is_known(build):
    fetcher = Script(SLOW)
    guard = build(fetcher)
    decision = guard.peek(ask("/robots.txt"))

    assert (decision.verdict.action, decision.verdict.delay) == (Action.PASS, None)
    assert fetcher.asked == []


async def test_delay_known_only_to_the_store_applies_to_robots_txt(build):
    store = LeasingStore()
    await build(Script(SLOW), store).check(ask("/a"))
    fetcher = Script(SLOW)
    another = build(fetcher, store)

    assert another.peek(ask("/robots.txt")) is None
    assert (await another.check(ask("/robots.txt"))).verdict.delay.seconds == 10.0
    assert another.peek(ask("/robots.txt")).verdict.delay.seconds == 10.0
    assert fetcher.asked == []


async def test_failing_store_does_not_block_robots_txt(build):
    guard = build(Script(SLOW), BrokenStore())
    decision = await guard.check(ask("/robots.txt"))

    assert (decision.verdict.action, decision.verdict.reason) == (Action.PASS, Reason.ROBOTS_TXT)


async def test_delay_of_a_large_file_is_read_off_the_event_loop(build, monkeypatch):
    guard = build(Script(SLOW))
    await guard.policy(A)
    monkeypatch.setattr(rules_module, "COMPILE_IN_THREAD_ABOVE", 1)

    assert guard.peek(ask("/robots.txt")) is None
    assert (await guard.check(ask("/robots.txt"))).verdict.delay.seconds == 10.0


async def test_pause_applies_to_robots_txt_too(build):
    guard = build(Script(RULES))
    before = guard.peek(ask("/robots.txt"))
    await guard.note_pause(A, 60)

    assert (await guard.turn(guard.peek(ask("/robots.txt")))).verdict.reason is Reason.RETRY_AFTER
    assert (await guard.turn(guard.recheck_pause(before))).verdict.reason is Reason.RETRY_AFTER


async def test_warm_path_makes_no_further_store_calls(build):
    class Counting(LeasingStore):
        gets = 0

        def get(self, origin):
            self.gets += 1
            return super().get(origin)

    store = Counting()
    guard = build(Script(SLOW), store)
    await guard.check(ask("/a"))
    before = store.gets
    for target in ("/a", "/private/", "/robots.txt"):
        assert guard.peek(ask(target)) is not None

    assert store.gets == before


async def test_a_turn_from_a_shared_store(build, clock):
    store = LeasingStore()
    one, another = build(Script(SLOW), store), build(Script(SLOW), store)
    first, second = await one.check(ask("/a")), await another.check(ask("/b"))

    assert (await one.turn(first)).turn is not None
    assert (await another.turn(second)).verdict.reason is Reason.CRAWL_DELAY


async def test_a_turn_counts_from_when_its_request_is_sent_and_then_answered(build, clock):
    guard = build(Script(RULES), terms={"min_delay": 10.0})
    first = await guard.turn(await guard.check(ask("/a")))

    clock.advance(0.1)
    first = guard.mark_sent(first)
    clock.advance(0.2)
    await guard.mark_response_started(first)

    clock.advance(9.95)
    assert (await guard.turn(guard.peek(ask("/b")))).verdict.until == pytest.approx(clock() + 0.05)
    assert guard.mark_sent(guard.peek(ask("/b"))).turn is None


async def test_pause_applies_to_all_requests_of_the_origin(build, clock):
    guard = build(Script(RULES))
    await guard.check(ask("/a"))

    await guard.note_pause(A, 60)

    decision = await guard.turn(guard.peek(ask("/b")))
    assert (decision.verdict.action, decision.verdict.reason) == (Action.DEFER, Reason.RETRY_AFTER)
    assert decision.verdict.until == clock() + 60
    clock.advance(60)
    assert guard.peek(ask("/b")).verdict.delay is None


async def test_min_delay_applies_to_sites_without_a_file(build):
    guard = build(Script(Fetched(status=404, tls_verified=True)), terms={"min_delay": 2.0})
    decision = await guard.check(ask("/a"))

    assert (decision.verdict.reason, decision.verdict.delay.by) == (
        Reason.UNRESTRICTED,
        "min-delay",
    )


async def test_visit_time_defers_until_it_begins(build, clock):
    clock.now = 1_800_000_000.0  # 08:00 UTC
    guard = build(Script(answer(b"User-agent: *\nVisit-time: 0900-1000\nDisallow: /private/")))

    early = await guard.check(ask("/a"))
    refused = guard.peek(ask("/private/"))
    clock.advance(3600)
    in_time = guard.peek(ask("/a"))

    assert (early.verdict.action, early.verdict.reason) == (Action.DEFER, Reason.VISIT_TIME)
    assert (early.verdict.until, early.verdict.rule.line) == (1_800_003_600.0, 2)
    assert refused.verdict.reason is Reason.DISALLOWED
    assert in_time.verdict.reason is Reason.ALLOWED


@pytest.mark.parametrize(
    ("terms", "relaxed"),
    [({"max_delay": 3.0}, "max_delay=3"), ({"max_delay": 0.0}, "max_delay=0"), ({}, None)],
)
async def test_a_delay_that_is_cut_is_recorded(build, terms, relaxed):
    guard = build(Script(SLOW), terms=terms)

    assert (await guard.check(ask("/a"))).verdict.relaxed == relaxed


async def test_a_visiting_time_that_is_ignored_is_recorded(build):
    guard = build(
        Script(answer(b"User-agent: *\nVisit-time: 0900-1000\nDisallow:")),
        terms={"visit_time": "ignore"},
    )

    verdict = (await guard.check(ask("/a"))).verdict

    assert (verdict.action, verdict.relaxed) == (Action.PASS, "visit_time=ignore")


async def test_a_line_that_cannot_be_read_is_recorded(build):
    guard = build(Script(answer(b"User-agent: *\nCrawl-delay: soon\nDisallow:")))

    verdict = (await guard.check(ask("/a"))).verdict

    assert (verdict.delay, verdict.detail) == (
        None,
        "line 2 is unreadable and ignored: Crawl-delay: soon",
    )


async def test_disallowed_request_can_be_deferred(build, clock):
    guard = build(Script(RULES), terms={"on_disallowed": "defer", "max_defer": 200_000.0})
    first = await guard.check(ask("/private/x"))

    assert (first.verdict.action, first.verdict.reason) == (Action.DEFER, Reason.DISALLOWED)
    assert first.verdict.until == clock() + 86_400  # when the file is renewed
    assert first.verdict.rule.line == 2

    again = msgspec.structs.replace(ask("/private/x"), deferral=Deferral(first.id, first.at))
    clock.advance(86_400)
    second = await guard.check(again)
    assert (second.verdict.action, second.question.deferral.id) == (Action.DEFER, first.id)
    clock.advance(200_000 - 86_400)
    last = await guard.check(again)
    assert (last.verdict.action, last.verdict.reason) == (Action.DROP, Reason.DISALLOWED)


async def test_deferred_request_passes_after_the_file_changed(build, clock):
    guard = build(
        Script(RULES, answer(b"")), terms={"on_disallowed": "defer", "max_defer": 200_000.0}
    )
    first = await guard.check(ask("/private/x"))
    clock.advance(90_000)

    second = await guard.check(
        msgspec.structs.replace(ask("/private/x"), deferral=Deferral(first.id, first.at))
    )

    assert second.verdict.action is Action.PASS


@pytest.mark.parametrize("respect", [True, False])
async def test_retry_after_of_robots_txt_applies_to_pages(build, clock, respect):
    later = Fetched(status=503, headers={"retry-after": "120"}, tls_verified=True)
    guard = build(Script(RULES, later), respect_retry_after=respect)
    await guard.check(ask("/a"))
    clock.advance(90_000)

    decision = await guard.check(ask("/a"))

    assert decision.verdict.stale
    assert (decision.verdict.delay is not None) is respect


# -- trouble, and its end -------------------------------------------------------------------------------------


async def test_site_that_is_down_again_after_a_day_is_deferred(build, clock):
    """No request was made in between, so none has waited for `max_defer`."""
    guard = build(Script(Failed(failure=Failure.TIMEOUT)))
    assert (await guard.check(ask("/a"))).verdict.action is Action.DEFER
    clock.advance(86_400)

    again = await guard.check(ask("/a"))

    assert (again.verdict.action, again.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)
    assert again.verdict.until > clock()


async def test_site_that_stays_down_is_dropped_eventually(build, clock):
    guard = build(Script(Failed(failure=Failure.TIMEOUT)))
    began, decision = clock(), await guard.check(ask("/a"))
    while decision.verdict.action is Action.DEFER:
        assert clock() - began < 900
        clock.advance(decision.verdict.until - clock())
        decision = await guard.check(ask("/a"))

    assert decision.verdict.action is Action.DROP
    assert clock() - began == pytest.approx(900)


# -- what a decision says, and what is counted and noted ----------------------------------------------------------


async def test_a_decision_says_when_it_was_made_where_its_policy_came_from_and_how_long_it_took(
    build, clock
):
    class Slow(Script):
        async def fetch(self, get):
            clock.advance(3)
            return await super().fetch(get)

    store = LeasingStore()
    guard, other = build(Slow(RULES), store), build(Script(RULES), store)
    began = clock()
    first, second = await guard.check(ask()), guard.peek(ask())
    third, exempt = await other.check(ask()), await other.check(ask("/a b"))

    assert (first.source, first.at, first.elapsed) == ("fetch", began + 3, 3)
    assert (second.source, second.at, second.elapsed) == ("memory", began + 3, 0)
    assert third.source == "store"
    assert (exempt.source, exempt.policy) == ("", None)
    assert {
        (each.component, each.dialect, each.matching) for each in (first, second, third, exempt)
    } == {("test", "rfc9309", "standard")}


async def test_decisions_of_a_guard_are_numbered_under_a_name_of_its_own(build):
    guard = build(Script(RULES), tokens=lambda count: "ab" * count)
    decisions = [
        await guard.check(ask()),
        guard.peek(ask()),
        guard.decide(ask(), Verdict(action=Action.PASS, reason=Reason.BYPASSED)),
    ]

    assert [decision.id for decision in decisions] == [
        f"ababababab-{number}" for number in (1, 2, 3)
    ]


async def test_internal_error_names_no_policy(build, monkeypatch):
    guard = build(Script(RULES))
    await guard.check(ask())
    monkeypatch.setattr("robots_guard.decisions.check.begin", lambda *_: 1 / 0)

    for decision in (guard.peek(ask()), await guard.check(ask())):
        assert (decision.verdict.reason, decision.policy, decision.source) == (
            Reason.INTERNAL_ERROR,
            None,
            "",
        )


async def test_sent_request_that_is_not_allowed_is_counted(build):
    guard = build(Script(RULES))
    await guard.check(ask())
    sent = msgspec.structs.replace(ask("/private/x"), sent=True)
    for question in (
        sent,
        ask("/private/x"),
        sent,
        msgspec.structs.replace(ask("/open"), sent=True),
    ):
        guard.peek(question)

    assert guard.counts["escaped"] == 2
    assert guard.counts["drop/disallowed"] == 3
    assert guard.counts["pass/allowed"] == 2


@pytest.mark.parametrize("reports", [False, True])
async def test_refusal_passes_in_report_only_mode_only(build, reports):
    guard = build(Script(RULES), report_only=reports)
    checked, peeked = await guard.check(ask("/private/x")), guard.peek(ask("/private/y"))

    for decision in (checked, peeked):
        assert decision.verdict.action is (Action.PASS if reports else Action.DROP)
        assert decision.verdict.would is (Action.DROP if reports else None)


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("action", [Action.DROP, Action.DEFER])
async def test_a_refusal_survives_an_audit_log_that_cannot_be_written(
    build, audit_log, action, required
):
    """It remains the same refusal, and does not count as an unrecorded PASS."""
    guard, noted = build(Script(RULES), audit_required=required), []
    await guard.check(ask())
    audit_log.note = keeper(noted)
    refusal = Verdict(action=action, reason=Reason.UNREACHABLE, detail="as it was")
    audit_log.broken = True
    decision = guard.decide(ask(), refusal)
    audit_log.broken = False
    guard.peek(ask("/open"))

    assert decision.verdict == refusal
    assert noted == []


@pytest.mark.parametrize("required", [False, True])
async def test_unrecorded_pass_is_returned_only_where_no_record_is_required(
    build, audit_log, required
):
    guard, noted = build(Script(RULES), audit_required=required), []
    await guard.check(ask())
    audit_log.note = keeper(noted)
    audit_log.broken = True
    decisions = [guard.peek(ask("/a")), guard.peek(ask("/b"))]
    audit_log.broken = False
    after = [guard.peek(ask("/c")), guard.peek(ask("/d"))]

    unrecorded = (Action.DROP, Reason.UNRECORDED)
    expected = unrecorded if required else (Action.PASS, Reason.ALLOWED)
    assert [(each.verdict.action, each.verdict.reason) for each in decisions] == [
        expected,
        expected,
    ]
    event = FailedOpen(
        at=after[0].at, setting="audit_required", count=2, detail="allowed unrecorded"
    )
    assert noted == ([] if required else [event]), "said once"


async def test_unrecorded_passes_are_recorded_as_soon_as_possible(build, audit_log):
    noted = []

    def full(event, **named):
        raise AuditLogError("disk full")

    guard = build(Script(RULES))
    await guard.check(ask())
    audit_log.broken = True
    guard.peek(ask("/a"))
    audit_log.broken, audit_log.note = False, full
    guard.peek(ask("/b"))
    audit_log.note = keeper(noted)
    guard.peek(ask("/c"))

    assert [event.count for event in noted] == [1]


async def test_unrecorded_passes_are_recorded_once_though_not_durably(build, audit_log):
    noted = []

    def written(event, **named):
        noted.append(event)
        raise UnconfirmedRecord("Input/output error")

    guard = build(Script(RULES))
    await guard.check(ask())
    audit_log.broken = True
    guard.peek(ask("/a"))
    audit_log.broken, audit_log.note = False, written
    for path in ("/b", "/c"):
        guard.peek(ask(path))

    assert [event.count for event in noted] == [1]


async def test_each_reading_of_the_overrides_is_recorded_with_its_problems(
    build, audit_log, clock, tmp_path
):
    noted, path = [], tmp_path / "overrides.toml"
    audit_log.note = noted.append
    about = 'owner = "ann"\nreason = "a test"\naction = "drop"\n'
    path.write_text(
        f'[[override]]\nid = "in-force"\norigin = "https://a.test"\nexpires = 2100-01-01\n{about}'
        f'[[override]]\nid = "over"\norigin = "https://b.test"\nexpires = 2020-01-01\n{about}'
        f'[[override]]\nid = "wrong"\norigin = "b"\nexpires = 2100-01-01\n{about}'
    )
    guard = build(Script(RULES), overrides=path)
    guard.peek(ask())
    (event,) = noted

    assert (event.at, event.source, event.count) == (clock(), str(path), 1)
    assert event.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [problem.partition(":")[0] for problem in event.problems] == ["wrong", "over"]
    assert event.problems[1] == "over: it has expired: renew it or remove it"


# -- preparing and rechecking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
async def test_prepared_question_is_answered_at_once_and_nothing_is_decided_before(
    build, audit_log, large
):
    body = RULES.body + b"\n#" + b"x" * (rules_module.COMPILE_IN_THREAD_ABOVE if large else 0)
    guard, fetcher = build(script := Script(answer(body))), Script(answer(body))
    await guard.prefetch(ask("/private/x"), fetcher)

    assert (fetcher.asked, script.asked, audit_log) == (["https://a.test/robots.txt"], [], [])
    assert guard.peek(ask("/private/x")).verdict.reason is Reason.DISALLOWED
    await guard.prefetch(ask("/private/x"))
    assert (len(fetcher.asked), script.asked) == (1, [])


async def test_preparing_for_an_unreachable_origin_raises_nothing(build, audit_log):
    guard = build(Script(RuntimeError("a fault of the fetcher")))
    await guard.prefetch(ask())

    assert audit_log == []


async def test_a_policy_is_fetched_once_unless_it_is_to_be_renewed(build, clock):
    guard = build(script := Script(RULES))
    first, again = await guard.policy(A), await guard.policy(A)
    clock.advance(10)
    renewed = await guard.policy(A, renew=True)

    assert again is first
    assert renewed.settled_at == first.settled_at + 10
    assert len(script.asked) == 2
    clock.advance(100_000)
    assert (await guard.policy(A)).settled_at == clock()


async def test_rechecked_decision_needs_a_turn_after_a_new_pause(build, clock):
    guard = build(Script(RULES))
    decision, itself = await guard.check(ask()), await guard.check(ask("/robots.txt"))
    exempt = guard.decide(ask(), Verdict(action=Action.PASS, reason=Reason.BYPASSED))
    assert [guard.recheck_pause(each) for each in (decision, itself, exempt)] == [
        decision,
        itself,
        exempt,
    ]

    await guard.note_pause(A, 60)

    pause = RequiredDelay(by=DelaySource.RETRY_AFTER, seconds=0.0)
    assert [guard.recheck_pause(each).verdict.delay for each in (decision, itself)] == [
        pause,
        pause,
    ]
    assert guard.recheck_pause(exempt) is exempt
    assert guard.counts["pauses"] == 1
    clock.advance(60)
    assert guard.recheck_pause(decision) is decision


async def test_rechecked_decision_that_needs_a_turn_is_unchanged(build):
    guard = build(Script(SLOW))
    decision = await guard.check(ask())
    await guard.note_pause(A, 60)

    assert guard.recheck_pause(decision) is decision


async def test_a_delay_that_was_learned_after_a_pause_had_begun_is_kept_behind_it(build, clock):
    guard = build(Script(SLOW))
    decisions = [await guard.check(ask("/robots.txt")) for _ in range(2)]
    await guard.note_pause(A, 60)
    first, second = map(guard.recheck_pause, decisions)
    await guard.policy(A)
    clock.advance(60)

    assert (await guard.turn(first)).verdict.action is Action.PASS
    put_off = (await guard.turn(second)).verdict
    assert (put_off.reason, put_off.until, put_off.rule.text) == (
        Reason.CRAWL_DELAY,
        clock() + 10,
        "Crawl-delay: 10",
    )


async def test_a_delay_that_is_learned_while_a_request_waits_for_the_end_of_a_pause_is_kept(
    build, clock
):
    guard = build(Script(SLOW))
    decision = await guard.check(ask("/robots.txt"))
    await guard.note_pause(A, 0.2)
    waiting = asyncio.ensure_future(guard.turn(guard.recheck_pause(decision), 5))
    await until(lambda: guard.waiting)
    await guard.policy(A)
    clock.advance(0.2)
    guard._turns._local.reserve(A, 0.0, clock)  # another takes a turn meanwhile

    put_off = (await waiting).verdict
    assert (put_off.reason, put_off.until) == (Reason.CRAWL_DELAY, clock() + 10)


PACED = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 10", tls_verified=True)
BRIEF = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 0.5", tls_verified=True)
SHUT = Fetched(
    status=200, body=b"User-agent: *\nDisallow: /private/\nCrawl-delay: 10", tls_verified=True
)


async def test_a_request_that_waits_out_a_pause_is_not_sent_when_a_robots_txt_that_forbids_it_is_read_meanwhile(
    build, clock, audit_log
):
    unread = Failed(failure=Failure.TIMEOUT)
    guard = build(Script(unread, SHUT), terms={"on_unreachable": "allow"})
    await guard.note_pause(A, 0.2)
    decision = await guard.check(ask("/private/x"))
    waiting = asyncio.ensure_future(guard.turn(decision, 5))
    await until(lambda: guard.waiting)
    await guard.policy(A, renew=True)
    clock.advance(0.2)

    refused = await waiting
    assert (refused.verdict.action, refused.verdict.reason, refused.turn) == (
        Action.DROP,
        Reason.DISALLOWED,
        None,
    )
    assert audit_log == [decision, refused]
    assert refused.id != decision.id
    assert refused.policy.document.body == SHUT.body


@pytest.mark.parametrize("store", [None, LeasingStore()], ids=["alone", "shared"])
async def test_a_request_that_waits_for_its_turn_is_not_sent_when_a_robots_txt_that_forbids_it_is_read_meanwhile(
    build, clock, monkeypatch, store
):
    guard = build(Script(PACED, SHUT), store=store)

    async def sleep(seconds):
        clock.advance(seconds)
        await guard.policy(A, renew=True)

    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    first, second, third = [await guard.check(ask(f"/{path}")) for path in ("a", "private/b", "c")]
    assert (await guard.turn(first)).is_due

    refused = await guard.turn(second, 15)
    assert (refused.verdict.action, refused.verdict.reason, refused.is_due) == (
        Action.DROP,
        Reason.DISALLOWED,
        False,
    )
    assert (await guard.turn(third)).is_due  # the one that was refused has taken no turn


async def test_robots_txt_read_while_a_turn_is_granted_applies(build, clock):
    class Slow(LeasingStore):
        def reserve(self, *args):
            clock.advance(0.1)
            guard._cache._memory.put(shut, clock())
            return super().reserve(*args)

    guard = build(Script(PACED), store=Slow())
    decision = await guard.check(ask("/private/x"))
    clock.advance(0.001)
    shut = await build(Script(SHUT)).policy(A)

    assert (await guard.turn(decision)).verdict.reason is Reason.DISALLOWED


async def test_a_delay_that_grows_while_a_request_waits_is_kept(build, clock, monkeypatch):
    slower = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 60", tls_verified=True)
    guard = build(Script(PACED, slower))

    async def sleep(seconds):
        clock.advance(seconds)
        await guard.policy(A, renew=True)

    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    first, second = [await guard.check(ask(f"/{path}")) for path in "ab"]
    began = clock()
    await guard.turn(first)

    put_off = (await guard.turn(second, 15)).verdict
    assert (put_off.reason, put_off.until, put_off.rule.text) == (
        Reason.CRAWL_DELAY,
        began + 60,
        "Crawl-delay: 60",
    )


async def test_a_delay_that_shrinks_while_a_request_waits_is_kept_as_it_was_recorded(
    build, clock, monkeypatch
):
    guard = build(Script(PACED, BRIEF))
    first, second = [await guard.check(ask(f"/{path}")) for path in "ab"]
    began = clock()
    await guard.turn(first)
    await guard.policy(A, renew=True)
    clock.advance(1)

    put_off = await guard.turn(second)
    assert (put_off.verdict.until, put_off.verdict.delay.seconds) == (began + 10, 10)
    # The one that has the rule that the record names.
    assert put_off.policy.document.body == PACED.body


async def test_a_request_whose_turn_is_granted_at_once_is_judged_once(
    build, clock, monkeypatch, audit_log
):
    guard = build(Script(PACED))
    decision = await guard.check(ask("/a"))
    monkeypatch.setattr(guard._checks, "run_from_memory", None)

    assert (await guard.turn(decision)).is_due
    assert audit_log == [decision]


async def test_request_that_waits_for_its_turn_is_recorded_once(
    build, clock, monkeypatch, audit_log
):
    async def sleep(seconds):
        clock.advance(seconds)

    guard = build(Script(PACED))
    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    decisions = [await guard.check(ask(f"/{path}")) for path in "ab"]
    turns = [await guard.turn(decision, 15) for decision in decisions]

    assert [turn.id for turn in turns] == [decision.id for decision in audit_log]


async def test_an_exemption_is_not_judged_again(build, clock):
    bypassed = Verdict(action=Action.PASS, reason=Reason.BYPASSED)
    guard = build(Script(SHUT))
    decision = guard.decide(ask("/private/x"), bypassed)
    await guard.policy(A)
    clock.advance(60)

    assert await guard.turn(guard.recheck_pause(decision)) is decision


async def test_request_forbidden_meanwhile_passes_in_report_only_mode_and_is_recorded(build, clock):
    guard = build(Script(PACED, SHUT), report_only=True)
    decision = await guard.check(ask("/private/x"))
    await guard.policy(A, renew=True)
    clock.advance(1)

    turned = await guard.turn(decision)
    assert turned.is_due
    assert (turned.verdict.action, turned.verdict.would) == (Action.PASS, Action.DROP)


@pytest.mark.parametrize(
    ("learned", "kept"), [(b"", 10.0), (b"\nCrawl-delay: 4", 10.0), (b"\nCrawl-delay: 40", 40.0)]
)
async def test_a_turn_says_which_delay_it_was_taken_with(build, clock, learned, kept):
    guard = build(Script(SLOW, answer(RULES.body + learned)))
    decision = await guard.check(ask("/open"))
    clock.advance(1)
    await guard.policy(A, renew=True)

    turned = await guard.turn(decision)
    assert turned.verdict.delay.seconds == kept
    assert turned.turn is not None


async def test_where_pauses_are_not_respected_none_is_kept_or_counted(build):
    guard = build(Script(RULES), respect_retry_after=False)
    await guard.note_pause(A, 60)

    assert not guard.is_paused(A)
    assert guard.counts["pauses"] == 0


async def test_turn_says_how_long_it_was_waited_for(build, clock, monkeypatch):
    async def sleep(seconds):
        clock.advance(seconds)

    guard = build(Script(SLOW))
    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    first = await guard.turn(await guard.check(ask("/a")))
    second = await guard.turn(guard.peek(ask("/b")), patience=15)
    third = await guard.turn(guard.peek(ask("/c")), patience=5)

    assert second.turn_taken_at == clock() == second.turn.asked == first.turn.asked + 10
    assert (third.verdict.action, third.turn) == (Action.DEFER, None)
    assert third.id != second.id


# -- after a fork -----------------------------------------------------------------------------------------------------


def in_child(work):
    """Return what `work` returns in a forked child, as text."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writes, work().encode())
        os._exit(0)
    os.close(writes)
    output = os.read(reads, 1000).decode()
    os.close(reads)
    os.waitpid(pid, 0)
    return output


def test_no_decision_of_a_forked_child_has_an_id_of_its_parents(build):
    guard = build(Script(RULES))
    question = ask("/robots.txt")

    theirs = in_child(lambda: " ".join(guard.peek(question).id for _ in range(3))).split()
    ours = [guard.peek(question).id for _ in range(3)]
    assert len({*theirs, *ours}) == 6


def test_forked_child_has_its_own_place_in_the_turn_queue(build, tmp_path):
    def crowd():
        async def first_turn():
            return (await guard.turn(await guard.check(ask("/a")), 1)).turn

        return str(asyncio.run(first_turn()).crowd)

    guard = build(Script(BRIEF), store=SqliteStore(tmp_path / "policies.sqlite"), wall=time.time)
    assert in_child(crowd) == "1"
    assert crowd() == "2"


async def test_forked_child_does_not_record_unrecorded_passes_of_its_parent(build, audit_log):
    guard, noted = build(Script(RULES)), []
    await guard.check(ask())
    audit_log.note = keeper(noted)
    audit_log.broken = True
    guard.peek(ask("/a"))
    audit_log.broken = False

    def child() -> str:
        guard.peek(ask("/b"))
        return str(len(noted))

    assert in_child(child) == "0"
    guard.peek(ask("/c"))
    assert [event.count for event in noted] == [1]


# -- the terms of an origin, and what is taken away -----------------------------------------------------------------


@pytest.fixture
def overridden(tmp_path):
    """A file of overrides with one for A."""

    def write(change):
        path = tmp_path / "overrides.toml"
        about = 'owner = "ann"\nreason = "a test"\nexpires = 2100-01-01\n'
        path.write_text(f'[[override]]\nid = "ours"\norigin = "https://a.test"\n{about}{change}\n')
        return path

    return write


async def test_a_verdict_of_the_integration_names_the_override_of_its_origin(build, overridden):
    guard = build(Script(RULES), overrides=overridden('action = "drop"'))
    verdict = Verdict(action=Action.DROP, reason=Reason.AMBIGUOUS_AUTHORITY)

    assert guard.decide(ask(), verdict).override.id == "ours"
    assert guard.decide(ask(origin=origin_of("https://b.test")), verdict).override is None


async def test_how_long_a_policy_may_be_used_depends_on_the_origins_own_dialect(
    build, clock, overridden
):
    guard = build(Script(RULES), overrides=overridden('dialect = "koster1996"'))
    plain = build(Script(RULES))
    await guard.check(ask())
    await plain.check(ask())
    clock.advance(2 * 86_400)

    assert guard.fresh_for(A) is not None
    assert plain.fresh_for(A) is None


async def test_delay_for_a_time_of_day_applies_to_robots_txt(build, clock):
    clock.now = 1_800_000_000.0  # 08:00 UTC
    guard = build(Script(answer(b"User-agent: *\nRequest-rate: 1/9s 0900-1000")))
    await guard.policy(A)

    assert guard.peek(ask("/robots.txt")).verdict.delay is None
    clock.advance(3600)
    assert guard.peek(ask("/robots.txt")).verdict.delay.seconds == 9


async def test_refusal_for_a_faulty_record_contains_no_suspect_data(build, faulty):
    guard = build(Script(RULES))
    await guard.check(ask())
    faulty(1)
    refused = guard.peek(ask("/open"))

    assert (refused.policy, refused.source) == (None, "")


async def test_turn_used_later_than_just_now_counts_from_then(build, clock):
    guard = build(Script(SLOW))
    taken = await guard.turn(await guard.check(ask("/a")))
    clock.now = FRESH_FOR
    decision = msgspec.structs.replace(taken, turn=Turn(stamp=0.0, asked=0.0), turn_taken_at=0.0)
    left = guard.mark_sent(decision)

    assert (left.turn_taken_at, left.turn.stamp, left.turn.asked) == (clock(), clock(), clock())
    assert guard.mark_sent(left) is left


async def test_no_request_waits_for_its_turn_in_report_only_mode(build, clock, monkeypatch):
    async def sleep(seconds):
        clock.advance(seconds)

    guard = build(Script(SLOW), report_only=True)
    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    await guard.turn(await guard.check(ask("/a")), patience=15)
    began = clock()
    second = await guard.turn(guard.peek(ask("/b")), patience=15)

    assert clock() == began
    assert (second.verdict.action, second.verdict.would, second.is_due) == (
        Action.PASS,
        Action.DEFER,
        True,
    )


@pytest.mark.parametrize("followed", [False, True])
async def test_the_record_of_a_redirect_says_what_led_to_the_page_and_whether_it_was_reached(
    build, audit_log, followed
):
    """A fetcher that follows redirects itself reaches the page before it can be judged."""

    def moved(to, **options):
        return Fetched(status=302, headers={"location": to}, tls_verified=True, **options)

    script = Script(moved("/hop"), moved("https://b.test/private/x", was_followed=followed), RULES)
    guard = build(script)
    await guard.check(ask())
    judged = audit_log[0]

    assert (judged.question.origin, judged.question.target) == (
        origin_of("https://b.test"),
        "/private/x",
    )
    assert (judged.question.robots_txt_of, judged.source) == (A, "fetch")
    assert (judged.question.sent, judged.question.led_by) == (
        followed,
        "https://a.test/hop" if followed else "",
    )
    assert (judged.verdict.action, judged.verdict.reason) == (Action.DROP, Reason.DISALLOWED)
    assert guard.counts["escaped"] == int(followed)


@pytest.mark.parametrize(("delay", "is_fetched"), [(15, True), (16, False)])
async def test_a_redirect_waits_for_its_turn_as_long_as_there_is_time_to_fetch_after_it(
    build, clock, monkeypatch, delay, is_fetched
):
    """Of the 30 seconds for all hops together, 5 are for connecting and 10 for the first byte."""

    async def sleep(seconds):
        clock.advance(seconds)

    b = origin_of("https://b.test")
    moved = Fetched(status=302, headers={"location": "https://b.test/page"}, tls_verified=True)
    guard = build(script := Script(answer(b"User-agent: *\nCrawl-delay: %d" % delay), moved, RULES))
    monkeypatch.setattr(AsyncioRuntime, "sleep", staticmethod(sleep))
    await guard.turn(await guard.check(ask(origin=b)))
    began = clock()
    await guard.check(ask())

    assert ("https://b.test/page" in script.asked) is is_fetched
    assert clock() - began == (delay if is_fetched else 0)
