"""Reservations: the guard fetches a site's /.well-known/tdmrep.json after its robots.txt, if that
permits it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.waiting import until

from robots_guard.decisions import policy
from robots_guard.decisions.access import MAX_RESERVATIONS, Failed, Failure, Fetched, Limits
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question, Terms
from robots_guard.errors import AuditLogError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of
from robots_guard.testing import CapturingAuditLog

A, B = origin_of("https://a.test"), origin_of("https://b.test")
ROBOTS, TDMREP = f"{A}/robots.txt", f"{A}/.well-known/tdmrep.json"
FILE = b'[{"location": "/reserved/*", "tdm-reservation": 1}]'
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)
RESERVED = Fetched(status=200, body=FILE, tls_verified=True)


def ask(target: str = "/page", origin=A) -> Question:
    return Question(origin=origin, target=target, agent="mybot")


def rules(text: str) -> Fetched:
    return Fetched(status=200, body=text.encode(), tls_verified=True)


def moved(url: str, **more) -> Fetched:
    return Fetched(status=301, headers={"location": url}, tls_verified=True, **more)


def fetched_urls(guard: Guard) -> list[str]:
    return [get.url for get in guard.fetcher.gets]


@pytest.fixture
def build(build_guard, tmp_path):
    def build(script, *, shared=False, store=None, audit_log=None, terms=None, **options):
        fetcher = script if isinstance(script, ScriptedFetcher) else ScriptedFetcher(script)
        audit_log = audit_log or CapturingAuditLog()
        if shared:
            store = SqliteStore(tmp_path / "policies.sqlite")
        options = {"agent": "mybot", "terms": {"purposes": "tdm", **(terms or {})}, **options}
        guard = build_guard(fetcher, store=store, audit_log=audit_log, **options)
        guard.fetcher, guard.log = fetcher, audit_log
        return guard

    return build


# -- one renewal, two files -------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "sqlite"])
async def test_both_files_are_fetched_once_and_kept_together(build, shared):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, shared=shared)
    decisions = await asyncio.gather(*(guard.check(ask()) for _ in range(50)))

    assert {decision.verdict.action for decision in decisions} == {Action.PASS}
    assert fetched_urls(guard) == [ROBOTS, TDMREP]
    assert decisions[0].policy.reservations.body == FILE
    assert guard.peek(ask()).policy.reservations.body == FILE
    assert guard.fresh_for(A) is not None


@pytest.mark.parametrize(
    "terms",
    [
        {"purposes": ""},
        {"purposes": "search,ai-input"},
        {"purposes": "tdm", "signals": "off"},
    ],
    ids=str,
)
async def test_they_are_not_fetched_if_no_purpose_needs_them(build, terms):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, terms=terms)

    assert (await guard.check(ask())).policy.reservations is None
    assert fetched_urls(guard) == [ROBOTS]


@pytest.mark.parametrize(
    ("terms", "action"),
    [
        ({}, Action.DROP),
        ({"purposes": "ai-train"}, Action.DROP),
        ({"signals": "record"}, Action.PASS),
    ],
    ids=str,
)
async def test_a_reserved_page_is_refused_before_it_is_requested(build, terms, action):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, terms=terms)
    reserved = (await guard.check(ask("/reserved/x"))).verdict

    assert reserved.action is action
    assert reserved.action is Action.PASS or reserved.reason is Reason.USAGE_RESERVED
    assert guard.peek(ask("/page")).verdict.action is Action.PASS


async def test_reservations_do_not_keep_the_guard_from_asking_again(build):
    """Reservations are about the use of pages, not about the request for a tdmrep.json."""
    everything = b'[{"location": "/", "tdm-reservation": 1}]'
    all_reserved = Fetched(status=200, body=everything, tls_verified=True)
    guard = build({ROBOTS: RULES, TDMREP: all_reserved})
    await guard.policy(A)
    guard.fetcher.script[TDMREP] = Fetched(status=404)
    refused = await guard.check(ask())
    held = await guard.policy(A, renew=True)

    assert refused.verdict.reason is Reason.USAGE_RESERVED
    assert (held.reservations.status, held.reservations.failure) == (404, "")
    assert guard.peek(ask()).verdict.action is Action.PASS


async def test_a_policy_that_lacks_them_is_renewed_once_before_it_is_used(build, monkeypatch):
    script = {ROBOTS: RULES, TDMREP: Failed(failure=Failure.TIMEOUT)}
    guard = build(script)
    monkeypatch.setattr(Terms, "needs_reservations", property(lambda _: False))
    await guard.check(ask())
    monkeypatch.undo()

    assert guard.fresh_for(A) is None
    assert guard.peek(ask()) is None
    for _ in range(3):
        decision = await guard.check(ask())
        assert decision.policy.reservations.failure == "timeout"
        assert decision.verdict.action is Action.PASS
    assert fetched_urls(guard) == [ROBOTS, ROBOTS, TDMREP]


async def test_an_unreachable_site_is_not_asked_for_them(build):
    guard = build({ROBOTS: Fetched(status=503), TDMREP: RESERVED})

    assert (await guard.check(ask())).verdict.reason is Reason.UNREACHABLE
    assert fetched_urls(guard) == [ROBOTS]


async def test_another_process_has_fetched_them(build):
    """The second process finds in the store what the first one fetched, under the lease too."""
    first = build({ROBOTS: RULES, TDMREP: RESERVED}, shared=True)
    second = build({}, shared=True)
    await first.check(ask())

    assert (await second.check(ask())).policy.reservations.body == FILE
    assert fetched_urls(second) == []


async def test_two_processes_that_both_lack_them_fetch_them_once(build, monkeypatch):
    gate = asyncio.Event()

    async def slow(_):
        await gate.wait()
        return RESERVED

    script = {ROBOTS: RULES, TDMREP: slow}
    one, other = build(script, shared=True), build(script, shared=True)
    monkeypatch.setattr(Terms, "needs_reservations", property(lambda _: False))
    await one.check(ask())
    await other.check(ask())
    monkeypatch.undo()
    asking = [asyncio.ensure_future(guard.check(ask())) for guard in (one, other)]
    async with asyncio.timeout(60):
        await until(lambda: TDMREP in fetched_urls(one) + fetched_urls(other))
        gate.set()
        decisions = await asyncio.gather(*asking)

    assert [decision.policy.reservations.body for decision in decisions] == [FILE, FILE]
    assert (fetched_urls(one) + fetched_urls(other)).count(TDMREP) == 1


async def test_a_process_without_the_need_leaves_them_out_of_date(build, monkeypatch, tmp_path):
    """Its renewal keeps the last answer, and the next process that needs them fetches them again."""
    needy = build({ROBOTS: RULES, TDMREP: RESERVED}, shared=True)
    await needy.check(ask())
    monkeypatch.setattr(Terms, "needs_reservations", property(lambda _: False))
    other = build({ROBOTS: RULES}, shared=True)
    renewed = await other.policy(A, renew=True)
    monkeypatch.undo()
    third = build({ROBOTS: RULES, TDMREP: Fetched(status=503)}, shared=True)
    held = (await third.check(ask())).policy

    assert renewed.lacks_reservations
    assert fetched_urls(other) == [ROBOTS]
    assert fetched_urls(third) == [ROBOTS, TDMREP]
    assert (held.reservations.body, held.reservations.failure) == (FILE, "status 503")


async def test_a_failure_of_one_agent_is_not_anothers(build):
    """Both share a store. The rules forbid the file to one of them only."""
    script = {ROBOTS: rules("User-agent: mybot\nDisallow: /.well-known/"), TDMREP: RESERVED}
    mine, again = build(script, shared=True), build(script, shared=True)
    theirs = build(script, shared=True, agent="another")
    await mine.check(ask())
    first = (await again.check(ask())).policy
    second = (await theirs.check(ask())).policy

    assert first.reservations.failure == "disallowed"
    assert fetched_urls(again) == []
    assert second.reservations.body == FILE
    assert fetched_urls(theirs) == [ROBOTS, TDMREP]


# -- it obeys ---------------------------------------------------------------------------------------


async def test_a_file_that_the_rules_forbid_is_not_fetched_and_the_record_says_why(build):
    guard = build({ROBOTS: rules("User-agent: mybot\nDisallow: /.well-known/"), TDMREP: RESERVED})
    decision = await guard.check(ask())
    own, page = guard.log.records

    assert fetched_urls(guard) == [ROBOTS]
    assert decision.verdict.action is Action.PASS
    assert decision.policy.reservations.failure == "disallowed"
    assert (own.url, own.action, own.robots_txt_of) == (TDMREP, "drop", str(A))
    assert (own.rule, own.agent) == ("Disallow: /.well-known/", "mybot")
    assert page.url == f"{A}/page"


async def test_the_document_just_fetched_counts_and_not_the_cached_one(build, monkeypatch):
    """A stale policy forbids the file; the new one, which is not cached yet, does not."""
    slow = rules("User-agent: *\nCrawl-delay: 0.01\nDisallow: /.well-known/")
    guard = build({ROBOTS: slow, TDMREP: RESERVED})
    await guard.check(ask())
    guard.fetcher.script[ROBOTS] = rules("User-agent: *\nCrawl-delay: 0.01\n")
    held = await guard.policy(A, renew=True)
    guard.fetcher.script[ROBOTS] = slow
    last = await guard.policy(A, renew=True)

    assert fetched_urls(guard) == [ROBOTS, ROBOTS, TDMREP, ROBOTS]
    assert held.reservations.body == FILE
    assert last.reservations.failure == "disallowed"
    assert last.reservations.body == FILE, "the last answer still holds"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_site_that_is_closed_is_not_asked_for_them(build, status):
    guard = build({ROBOTS: Fetched(status=status, tls_verified=True), TDMREP: RESERVED})

    assert (await guard.check(ask())).verdict.reason is Reason.RESTRICTED
    assert fetched_urls(guard) == [ROBOTS]


async def test_a_closed_site_that_the_operator_opens_is_asked(build):
    script = {ROBOTS: Fetched(status=403, tls_verified=True), TDMREP: RESERVED}
    guard = build(script, terms={"on_restricted": "allow"})

    assert (await guard.check(ask())).policy.reservations.body == FILE


async def test_the_request_takes_the_turn_of_the_origin(build):
    guard = build({ROBOTS: rules("User-agent: *\nCrawl-delay: 60\n"), TDMREP: RESERVED})
    decision = await guard.turn(await guard.check(ask()))

    assert fetched_urls(guard) == [ROBOTS, TDMREP]
    assert (decision.verdict.action, decision.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)


@pytest.mark.parametrize("report_only", [False, True])
async def test_without_a_turn_in_time_they_are_not_available(build, report_only):
    script = {ROBOTS: rules("User-agent: *\nCrawl-delay: 60\n"), TDMREP: RESERVED}
    guard = build(script, report_only=report_only)
    await guard.check(ask())
    held = await guard.policy(A, renew=True)

    assert fetched_urls(guard) == [ROBOTS, TDMREP, ROBOTS]
    assert held.reservations.failure.startswith("crawl-delay")
    assert held.reservations.body == FILE
    assert held.trouble is None


async def test_a_pause_of_the_origin_is_kept(build):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED})
    await guard.note_pause(A, 600.0)
    held = await guard.policy(A)

    assert fetched_urls(guard) == [ROBOTS]
    assert held.reservations.failure.startswith("retry-after")


async def test_their_own_retry_after_pauses_the_pages_too(build):
    busy = Fetched(status=503, headers={"retry-after": "60"}, tls_verified=True)
    guard = build({ROBOTS: RULES, TDMREP: busy})
    decision = await guard.check(ask())

    assert decision.policy.reservations.failure == "status 503"
    assert guard.is_paused(A)


async def test_what_cannot_be_recorded_is_not_fetched_where_the_audit_is_required(build):
    class Full(CapturingAuditLog):
        def write(self, decision):
            raise AuditLogError("disk full")

    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, audit_log=Full(), audit_required=True)
    held = await guard.policy(A)

    assert fetched_urls(guard) == [ROBOTS]
    assert held.reservations.failure.startswith("unrecorded")


# `_checks` is replaced, because nothing that a site sends makes a check fail.
async def test_an_internal_error_stops_the_request_but_keeps_the_document(build, monkeypatch):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED})
    monkeypatch.setattr(guard._checks, "run_under", lambda *_: 1 / 0)
    held = await guard.policy(A)

    assert fetched_urls(guard) == [ROBOTS]
    assert held.reservations.failure == "internal-error"
    assert held.document.body == RULES.body


async def test_an_override_of_the_site_counts(build, tmp_path):
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(
        '[[override]]\nid = "no-a"\norigin = "https://a.test"\naction = "drop"\n'
        'owner = "ann"\nreason = "a test"\nexpires = 2100-01-01\n'
    )
    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, overrides=overrides)

    assert (await guard.policy(A)).reservations.failure == "blocked"
    assert fetched_urls(guard) == [ROBOTS]


# -- how it is fetched ------------------------------------------------------------------------------


async def test_the_fetch_has_the_limits_of_the_renewal(build):
    limits = Limits(connect=2.0, first_byte=3.0, total=9.0)
    guard = build({ROBOTS: RULES, TDMREP: RESERVED}, limits=limits)
    await guard.check(ask())
    first, second = guard.fetcher.gets

    assert (first.limits.max_body, second.limits.max_body) == (512_000, MAX_RESERVATIONS)
    assert second.limits.connect == 2.0
    assert second.limits.total <= first.limits.total <= 9.0
    assert (second.verbatim, second.elsewhere, second.public_only) == (True, False, False)


async def test_a_file_that_hangs_delays_the_answer_only_to_the_deadline(build):
    gate = asyncio.Event()

    async def hang(get):
        try:
            await asyncio.wait_for(gate.wait(), get.limits.total)
        except TimeoutError:
            return Failed(failure=Failure.TIMEOUT)
        return RESERVED

    limits = Limits(connect=0.1, first_byte=0.1, total=0.4)
    guard = build({ROBOTS: RULES, TDMREP: hang}, limits=limits)
    began = time.monotonic()
    decision = await guard.check(ask())

    assert decision.verdict.action is Action.PASS
    assert decision.policy.reservations.failure == "timeout"
    assert time.monotonic() - began < 30


async def test_redirects_within_the_origin_are_followed_and_each_is_judged(build):
    guard = build(
        {
            ROBOTS: rules("User-agent: *\nDisallow: /closed/"),
            TDMREP: moved("/open/tdm.json", public=True),
            f"{A}/open/tdm.json": moved("/closed/tdm.json"),
            f"{A}/closed/tdm.json": RESERVED,
        }
    )
    held = await guard.policy(A)

    assert fetched_urls(guard) == [ROBOTS, TDMREP, f"{A}/open/tdm.json"]
    assert [get.public_only for get in guard.fetcher.gets] == [False, False, True]
    assert held.reservations.failure == "disallowed"
    assert guard.log.records[-1].url == f"{A}/closed/tdm.json"


async def test_no_redirect_leaves_the_origin(build):
    guard = build({ROBOTS: RULES, TDMREP: moved(f"{B}/tdm.json"), f"{B}/tdm.json": RESERVED})
    held = await guard.policy(A)

    assert fetched_urls(guard) == [ROBOTS, TDMREP]
    assert held.reservations.failure == f"redirect-refused: to {B}"


async def test_a_policy_for_a_redirect_needs_none(build):
    """B's policy only judges the guard's own request there."""
    guard = build(
        {
            ROBOTS: moved(f"{B}/a.txt"),
            TDMREP: RESERVED,
            f"{B}/robots.txt": RULES,
            f"{B}/a.txt": RULES,
            f"{B}/.well-known/tdmrep.json": RESERVED,
        }
    )
    await guard.check(ask())
    before = fetched_urls(guard)
    later = await guard.check(ask("/page", B))

    assert before == [ROBOTS, f"{B}/robots.txt", f"{B}/a.txt", TDMREP]
    assert later.policy.reservations.body == FILE
    assert fetched_urls(guard)[4:] == [f"{B}/robots.txt", f"{B}/.well-known/tdmrep.json"]


async def test_each_fetch_is_recorded_with_its_file(build):
    guard = build({ROBOTS: RULES, TDMREP: RESERVED})
    await guard.check(ask())

    assert [(made.url, made.file, made.origin) for made in guard.log.events] == [
        (ROBOTS, "robots.txt", str(A)),
        (TDMREP, "tdmrep.json", str(A)),
    ]


async def test_the_next_renewal_asks_whether_it_has_changed(build):
    tagged = Fetched(status=200, body=FILE, headers={"etag": '"1"'}, tls_verified=True)

    def answer(get):
        return Fetched(status=304) if get.headers else tagged

    guard = build({ROBOTS: RULES, TDMREP: answer})
    first = await guard.policy(A)
    second = await guard.policy(A, renew=True)

    assert guard.fetcher.gets[-1].headers == (("If-None-Match", '"1"'),)
    assert second.reservations.body == FILE
    assert second.reservations.fetched_at >= first.reservations.fetched_at


LARGE = b"[" + b",".join([b'{"location": "/a*b", "tdm-reservation": 1}'] * 1000) + b"]"


async def test_a_large_file_is_read_in_a_thread_and_once(build, monkeypatch):
    threads = []
    monkeypatch.setattr(
        policy, "read_file", lambda body: threads.append(threading.current_thread())
    )
    guard = build({ROBOTS: RULES, TDMREP: Fetched(status=200, body=LARGE, tls_verified=True)})
    await guard.policy(A)

    assert guard.peek(ask()) is None
    await guard.check(ask())
    assert guard.peek(ask()).verdict.action is Action.PASS
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_large_file_that_is_not_read_in_time_defers(build, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(policy, "read_file", lambda body: gate.wait(60))
    answer = Fetched(status=200, body=LARGE, tls_verified=True)
    guard = build({ROBOTS: RULES, TDMREP: answer}, decision_timeout=0.3)
    decision = await guard.check(ask())
    gate.set()

    assert (decision.verdict.action, decision.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)


async def test_a_stale_policy_serves_while_both_files_are_renewed(build):
    """The answer does not wait for a tdmrep.json that is on its way."""
    gate = asyncio.Event()
    stale = Fetched(
        status=200, body=RULES.body, headers={"cache-control": "max-age=1"}, tls_verified=True
    )
    watch = Clock()
    guard = build({ROBOTS: stale, TDMREP: RESERVED}, clocks=watch.clocks)
    await guard.check(ask())

    async def slow(_):
        await gate.wait()
        return RESERVED

    guard.fetcher.script[TDMREP] = slow
    watch.offset = 400.0
    decision = guard.peek(ask())
    await until(lambda: len(guard.fetcher.gets) == 4)
    meanwhile = guard.peek(ask())
    gate.set()
    await guard.drain()

    assert decision.verdict.action is meanwhile.verdict.action is Action.PASS
    assert guard.peek(ask()).policy.reservations.fetched_at > decision.policy.document.fetched_at


class Clock:
    """A clock that can be set forward."""

    offset = 0.0

    @property
    def clocks(self):
        from robots_guard.ports import Clocks

        return Clocks(now=lambda: time.time() + self.offset, monotonic=time.monotonic)
