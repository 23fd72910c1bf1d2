"""Admission of requests: judged, given a turn, sent and answered by the id of the decision."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from audit.decisions import audit_log_in
from support.wires import wire

from robots_guard.audit.read.reader import Filter, entries
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Question, Verdict
from robots_guard.gateway import admission as gateway
from robots_guard.gateway.admission import Admission
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Clocks
from robots_guard.origin import origin_of
from robots_guard.protocol.html.page import Page, read_page

RULES = b"""
User-agent: mybot
Disallow: /private/
Crawl-delay: 10
User-agent: slowbot
Disallow: /secret/
Crawl-delay: 20
User-agent: *
Disallow: /members/
"""
FREE = b"User-agent: *\nDisallow: /private/\n"
SITE = "https://site.test"


@pytest.fixture
def admission_of(tmp_path, clock, build_guard):

    def build(rules, **options):
        clocks = Clocks(now=clock, monotonic=clock)
        outcome = Fetched(status=200, body=rules, tls_verified=True)
        guard = build_guard(
            ScriptedFetcher({f"{SITE}/robots.txt": outcome}),
            component="envoy",
            audit_log=audit_log_in(tmp_path, audit="all", component="envoy"),
            clocks=clocks,
            **options,
        )
        return Admission(guard, clocks)

    return build


@pytest.fixture
def free(admission_of):
    return admission_of(FREE)


@pytest.fixture
def paced(admission_of):
    return admission_of(RULES)


def ask(target="/open"):
    return Question(origin=origin_of(SITE), target=target, agent="mybot", client="192.0.2.1")


async def no_refusal(origin):
    return None


def test_a_request_that_is_not_tracked_must_not_be_sent(free):
    assert not free.mark_sent("x-1")


async def test_a_permitted_request_is_tracked_until_it_is_released(free):
    decision = await free.admit(ask())

    assert decision.verdict.action is Action.PASS
    assert free.mark_sent(decision.id)
    await free.mark_response_started(decision.id, 200)
    free.release(decision.id)
    assert len(free) == 0
    assert not free.mark_sent(decision.id)


async def test_a_refused_request_is_not_tracked(free):
    decision = await free.admit(ask("/private/x"))
    assert decision.verdict.action is Action.DROP
    assert len(free) == 0


async def test_turns_are_given_in_one_call(paced, clock):
    first = await paced.admit(ask("/1"))
    second = await paced.admit(ask("/2"))
    assert paced.mark_sent(first.id)
    assert (second.verdict.action, second.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)
    assert not paced.mark_sent(second.id)

    clock.advance(10)
    third = await paced.admit(ask("/2"))

    assert third.is_due
    assert third.question.deferral.id == second.id


async def test_a_turn_that_was_lost_while_connecting(paced, clock):
    first = await paced.admit(ask("/1"))
    clock.advance(11)
    second = await paced.admit(ask("/2"))
    assert second.is_due

    assert paced.refusal_of(first.id) is None
    await paced.renew_turns([first.id], 0.0)

    assert not paced.mark_sent(first.id)
    refusal = paced.refusal_of(first.id)
    assert (refusal.verdict.action, refusal.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)
    assert paced.mark_sent(second.id)
    assert (await paced.admit(ask("/1"))).question.deferral is not None  # it was deferred before


async def test_a_turn_that_grew_old_while_connecting_is_renewed(paced, clock):
    first = await paced.admit(ask("/1"))
    clock.advance(5)
    await paced.renew_turns([first.id], 0.0)
    assert paced.mark_sent(first.id)
    assert paced.refusal_of(first.id) is None
    clock.advance(9)
    assert (await paced.admit(ask("/2"))).verdict.action is Action.DEFER


async def test_a_renewed_turn_does_not_lapse_while_another_request_waits(paced, clock):
    first = await paced.admit(ask("/1"))
    clock.advance(11)
    second = await paced.admit(ask("/2"))
    clock.advance(1)

    await paced.renew_turns([first.id, second.id], patience=60.0)

    assert paced.refusal_of(first.id).verdict.action is Action.DEFER
    assert paced.mark_sent(second.id)


async def test_renewing_no_turns(paced):
    await paced.renew_turns([], 60.0)
    await paced.renew_turns(["unknown"], 60.0)
    assert paced.refusal_of("unknown") is None


async def test_a_retry_after_pauses_the_origin(free):
    busy = await free.admit(ask())
    free.mark_sent(busy.id)
    await free.mark_response_started(busy.id, 429, "30")

    following = await free.admit(ask("/next"))

    assert (following.verdict.action, following.verdict.reason) == (
        Action.DEFER,
        Reason.RETRY_AFTER,
    )


async def test_a_pause_that_begins_before_a_judged_request_is_sent(free):
    judged = await free.judge(wire(), ["mybot"], no_refusal)
    assert free.recheck(judged).is_due
    busy = await free.admit(ask())
    await free.mark_response_started(busy.id, 503, "30")
    assert not free.recheck(judged).is_due


async def test_a_request_is_judged_as_each_agent(paced):
    slowest = await paced.judge(wire(), ["third", "slowbot", "mybot"], no_refusal)
    assert (slowest.question.agent, slowest.verdict.delay.seconds) == ("slowbot", 20)
    members = wire(target="/members/x")
    assert (await paced.judge(members, ["mybot", "third"], no_refusal)).question.agent == "third"


async def test_the_integrations_own_refusal_is_recorded(free, tmp_path):
    async def refusal(origin):
        return Verdict(
            action=Action.DROP, reason=Reason.DESTINATION_REFUSED, detail=f"not {origin.host}"
        )

    decision = await free.judge(wire(), ["mybot"], refusal)
    (record,) = entries(tmp_path, Filter(kind=None, reason="destination-refused"))

    assert (record.id, record.detail, record.component) == (decision.id, "not site.test", "envoy")


async def test_an_ambiguous_request_needs_no_refusal(free):
    decision = await free.judge(wire(hosts=("other.test",)), ["mybot"], None)
    assert decision.verdict.reason is Reason.AMBIGUOUS_AUTHORITY


async def test_bad_input_ends_in_a_recorded_refusal(free, tmp_path):
    decision = await free.admit(msgspec.structs.replace(ask(), target=None))
    (record,) = entries(tmp_path, Filter(kind=None, reason="internal-error"))
    assert decision.verdict.action is Action.DROP
    assert record.id == decision.id


async def test_the_oldest_request_is_forgotten_first(free, monkeypatch):
    monkeypatch.setattr(gateway, "TRACKED", 2)
    ids = [(await free.admit(ask(f"/{number}"))).id for number in range(3)]
    assert [free.mark_sent(each) for each in ids] == [False, True, True]


# -- what a site states in its responses ----------------------------------------------------------

HTML = ("Content-Type", "text/html")
NOAI = ("X-Robots-Tag", "noai")
TRAINING = {"terms": {"purposes": "ai-train"}}


def head(*fields, status=200, method="GET"):
    return ResponseHead(status=status, headers=fields, method=method)


def page(content):
    return read_page(content, "text/html", f"{SITE}/open")


@pytest.fixture
async def training(admission_of):
    """An admission with a declared purpose, and the decision on a request that it tracks."""
    found = admission_of(FREE, **TRAINING)
    return found, await found.admit(ask())


async def test_a_response_is_refused_by_its_head(training):
    admission, request = training
    refused = admission.judge_head(request.id, head(HTML, NOAI))
    assert refused.verdict.reason is Reason.USAGE_RESERVED
    assert (refused.response.status, refused.response.request) == (200, request.id)


async def test_a_head_that_refuses_nothing_is_not_recorded_before_the_page(training):
    admission, request = training
    fields = head(HTML, ("X-Robots-Tag", "noindex"))
    assert admission.needs_page(request.id, fields)
    assert admission.judge_head(request.id, fields) is None
    decision = admission.judge_response(
        request.id, fields, page(b"<meta name=robots content=noai>")
    )
    assert decision.verdict.action is Action.DROP
    assert decision.verdict.uses.denied == ["ai-index", "ai-input", "ai-train", "search", "snippet"]


async def test_a_response_that_states_nothing_has_no_decision(training):
    admission, request = training
    assert admission.judge_response(request.id, head(HTML), page(b"<p>")) is None


async def test_an_incomplete_page_passes_and_says_so(training):
    admission, request = training
    decision = admission.judge_response(request.id, head(HTML), Page(is_incomplete=True))
    assert decision.verdict.action is Action.PASS
    assert decision.verdict.uses.is_incomplete


@pytest.mark.parametrize("fields", [head(HTML, method="HEAD"), head(HTML, status=304)])
async def test_silence_counts_only_where_there_is_content(admission_of, fields):
    admission = admission_of(FREE, terms={"purposes": "ai-train", "on_unknown": "deny"})
    request = await admission.admit(ask())
    assert admission.judge_response(request.id, fields) is None
    refused = admission.judge_response(request.id, head(HTML), page(b"<p>"))
    assert refused.verdict.action is Action.DROP


async def test_a_demand_for_payment_passes(training):
    admission, request = training
    decision = admission.judge_response(request.id, head(("crawler-price", "USD 1"), status=402))
    assert decision.verdict.action is Action.PASS
    assert decision.verdict.reason is Reason.PAYMENT_REQUIRED


async def test_a_response_to_a_request_that_is_not_tracked(training):
    admission, request = training
    admission.release(request.id)
    for judge in (admission.needs_page, admission.judge_head, admission.judge_response):
        with pytest.raises(KeyError):
            judge(request.id, head(HTML))


async def test_a_held_request_is_let_go_in_time_although_its_verdict_never_comes(build_guard):
    """A robots.txt that failed at first and hangs at the next try must not hold requests for ever."""
    clocks = Clocks(now=time.time, monotonic=time.monotonic)
    guard = build_guard(ScriptedFetcher({}), clocks=clocks)
    admission = Admission(guard, clocks)
    question = Question(origin=origin_of(SITE), target="/a", agent="mybot")
    until = time.time() + 0.01
    deferral = Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=until)
    deferred = guard.decide(question, deferral)

    async with asyncio.timeout(30):
        decision = await admission.wait_out(deferred, 0.5, asyncio.Event().wait)

    assert decision is deferred
