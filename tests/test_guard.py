"""The guard over scripted ports: one renewal an origin, nobody's cancellation is the others', closed on our faults."""

from __future__ import annotations

import asyncio
import threading

import pytest

from robots_guard.core.access import Failed, Failure, Fetched, Limits
from robots_guard.core.verdict import Action, Question, Reason, Terms
from robots_guard.errors import JournalError, StoreError
from robots_guard.guard import Clocks, Guard
from robots_guard.origin import origin_of
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.runtime import AsyncioRuntime
from robots_guard.stores.memory import MemoryStore

A = origin_of("https://a.test")
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)


class Script:
    """A fetcher that gives outcomes by URL, and waits for a gate if there is one."""

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
    """A journal that keeps decisions, or fails."""

    broken = False

    def write(self, decision):
        if self.broken:
            raise JournalError("disk full")
        self.append(decision)

    def close(self):
        pass


class BrokenStore(MemoryStore):
    def get(self, origin):
        raise StoreError("database is locked")

    def put(self, policy, now):
        raise StoreError("database is locked")


@pytest.fixture
def journal():
    return Records()


@pytest.fixture
def build(clock, journal):
    guards = []

    def build(fetcher, store=None, **options):
        options.setdefault("demands_verified", True)
        guard = Guard(
            door="test",
            terms=Terms(dialect=dialect("rfc9309"), matching=matching("standard")),
            runtime=AsyncioRuntime(),
            memory=MemoryStore(),
            store=store,
            fetcher=fetcher,
            journal=journal,
            clocks=Clocks(now=clock, monotonic=clock),
            limits=Limits(),
            **options,
        )
        guards.append(guard)
        return guard

    yield build
    for guard in guards:
        guard.close()


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


async def test_fifty_askers_one_cancelled_one_fetch(build):
    gate = asyncio.Event()
    fetcher = Script(RULES, gate=gate)
    guard = build(fetcher)
    askers = [asyncio.ensure_future(guard.check(ask(f"/{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    askers[0].cancel()  # the one who began the fetch
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
    assert {answer.verdict.reason for answer in answers} == {Reason.UNREACHABLE}
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
    brief = Fetched(status=200, body=b"", headers={"cache-control": "max-age=600"}, tls_verified=True)
    fetcher = Script(brief, RULES)
    guard = build(fetcher)
    await guard.check(ask())
    clock.advance(700)
    answers = [guard.peek(ask("/private/x")).verdict.action for _ in range(5)]
    await asyncio.sleep(0.01)

    assert answers == [Action.PASS] * 5
    assert len(fetcher.asked) == 2
    assert guard.peek(ask("/private/x")).verdict.action is Action.DROP


async def test_an_expired_policy_is_not_used(build, clock):
    guard = build(Script(RULES, Fetched(status=404, tls_verified=True)))
    await guard.check(ask())
    clock.advance(86_400)

    assert guard.peek(ask("/private/x")) is None
    assert (await guard.check(ask("/private/x"))).verdict.reason is Reason.UNRESTRICTED


async def test_what_another_door_stored_is_used_without_a_fetch(build):
    store = MemoryStore()
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
    assert guard.counts["store/error"] == 3  # looking, looking again, putting
    assert caplog.text.count("policy store") == 1  # said once a minute


async def test_a_policy_over_unverified_tls_is_a_miss_for_a_door_that_verifies(build):
    store = MemoryStore()
    unverified = Fetched(status=200, body=b"")
    await build(Script(unverified), store, demands_verified=False).check(ask())
    fetcher = Script(RULES)

    assert (await build(fetcher, store).check(ask("/private/x"))).verdict.action is Action.DROP
    assert len(fetcher.asked) == 1


async def test_an_unreachable_origin_is_not_asked_again_before_its_time(build, clock):
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


async def test_all_hops_together_have_the_total_time(build, clock):
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
    guard = build(Script(Fetched(status=200, body=b"User-agent: *\nDisallow: /private/\n" * 4000, tls_verified=True)))
    compile_here = guard._compile
    monkeypatch.setattr(guard, "_compile", lambda *a: (threads.append(threading.current_thread()), compile_here(*a))[1])

    assert (await guard.check(ask("/private/x"))).verdict.action is Action.DROP
    assert threads != [threading.main_thread()]
    assert guard.peek(ask("/private/x")).verdict.action is Action.DROP


async def test_our_own_exception_refuses(build, monkeypatch, journal):
    guard = build(Script(RULES))
    await guard.check(ask())
    monkeypatch.setattr("robots_guard.core.check.judge", lambda *_: 1 / 0)

    for decision in (guard.peek(ask()), await guard.check(ask())):
        assert decision.verdict.action is Action.DROP
        assert decision.verdict.reason is Reason.INTERNAL_ERROR
    assert len(journal) == 3


async def test_every_decision_is_recorded_before_it_is_released(build, journal):
    guard = build(Script(RULES))
    decision = await guard.check(ask("/private/x"))

    assert journal == [decision]
    assert decision.id
    assert decision.policy.document.sha256


async def test_a_refusal_that_cannot_be_recorded_is_still_a_refusal(build, journal):
    guard = build(Script(RULES))
    journal.broken = True

    assert (await guard.check(ask("/private/x"))).verdict.action is Action.DROP
    assert guard.counts["journal/error"] == 1


async def test_knows_says_whether_peek_will_answer(build, clock):
    guard = build(Script(RULES))
    assert not guard.knows(A)
    await guard.check(ask())
    assert guard.knows(A)
    clock.advance(100_000)
    assert not guard.knows(A)


class SlowStore(MemoryStore):
    """The first to look sees what there is, and is told late."""

    def __init__(self):
        super().__init__()
        self.slow = iter([True])
        self.gate = threading.Event()

    def get(self, origin):
        found = super().get(origin)
        if next(self.slow, False):
            assert self.gate.wait(10)
        return found


async def test_who_looked_in_the_store_before_a_renewal_ended_does_not_begin_another(build):
    fetcher, store = Script(RULES), SlowStore()
    guard = build(fetcher, store)
    late = asyncio.ensure_future(guard.check(ask("/late")))
    await asyncio.sleep(0.05)  # so that it is in the store
    await guard.check(ask("/early"))
    store.gate.set()

    assert (await late).verdict.action is Action.PASS
    assert len(fetcher.asked) == 1


@pytest.mark.parametrize("failure", [Failure.TLS, Failure.REFUSED, Failure.INTERNAL])
async def test_a_trouble_that_lies_with_who_asked_is_not_shared(build, failure):
    """One door does not trust the certificate; another, which does, is not held back by that."""
    store = MemoryStore()
    assert (await build(Script(Failed(failure=failure)), store).check(ask())).verdict.action is Action.DEFER

    assert (await build(Script(RULES), store).check(ask("/private/x"))).verdict.action is Action.DROP


async def test_a_trouble_of_the_site_is_shared(build):
    store = MemoryStore()
    await build(Script(Fetched(status=503, tls_verified=True)), store).check(ask())
    other = Script(RULES)

    assert (await build(other, store).check(ask())).verdict.action is Action.DEFER
    assert other.asked == []


async def test_an_unverified_trouble_is_not_believed_by_a_door_that_verifies(build):
    store = MemoryStore()
    await build(Script(Fetched(status=503)), store, demands_verified=False).check(ask())

    assert (await build(Script(RULES), store).check(ask("/private/x"))).verdict.action is Action.DROP
