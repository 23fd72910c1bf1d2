"""The guard's decisions on responses, with the statements of its policies."""

from __future__ import annotations

import pytest
from support.guards import make_guard

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import AuditLogError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import origin_of
from robots_guard.protocol.html.page import read_page
from robots_guard.testing import CapturingAuditLog

A = "https://a.test"
QUESTION = Question(origin=origin_of(A), target="/page", agent="mybot")
PLAIN = b"User-agent: *\nDisallow: /private/"
NOINDEX = ResponseHead(status=200, headers=[("X-Robots-Tag", "noindex")])
SILENT = ResponseHead(status=200, headers=[("Content-Type", "text/html")])


def guard_for(body=PLAIN, *, audit_log=None, options=None, **terms):
    fetched = Fetched(status=200, body=body, tls_verified=True)
    fetcher = ScriptedFetcher({f"{A}/robots.txt": fetched})
    return make_guard(fetcher, terms=terms, audit_log=audit_log, **(options or {}))


async def ask(guard, question=QUESTION):
    return await guard.check(question)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Content-Signal: search=no", Reason.USAGE_RESERVED),
        (b"Content-Usage: /page search=n", Reason.USAGE_RESERVED),
        (b"Content-Usage: /other search=n", Reason.ALLOWED),
        (b"Noindex: /", Reason.USAGE_RESERVED),
        (b"Content-Signal: search=yes", Reason.ALLOWED),
        (b"Content-Signal: ai-train=no", Reason.ALLOWED),
    ],
)
async def test_what_a_robots_txt_reserves_is_refused_before_the_request(line, reason):
    guard = guard_for(b"User-agent: *\n" + line, purposes="search")
    decision = await ask(guard)
    assert decision.verdict.reason is reason
    if reason is Reason.USAGE_RESERVED:
        assert decision.verdict.action is Action.DROP
        assert (decision.verdict.rule.line, decision.verdict.rule.text) == (2, line.decode())


async def test_a_signal_permits_no_disallowed_request():
    body = b"User-agent: *\nDisallow: /\nContent-Signal: search=yes"
    decision = await ask(guard_for(body, purposes="search"))
    assert decision.verdict.reason is Reason.DISALLOWED


async def test_a_recorded_signal_names_the_setting_that_lets_it_pass():
    guard = guard_for(
        b"User-agent: *\nContent-Signal: search=no", purposes="search", signals="record"
    )
    decision = await ask(guard)
    assert (decision.verdict.action, decision.verdict.relaxed) == (Action.PASS, "signals=record")


async def test_the_rules_for_a_purpose_token_deny_the_purpose_only():
    body = b"User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nAllow: /"
    tokens = {"purpose_tokens": "ai-train=GPTBot"}
    refused = await ask(guard_for(body, purposes="ai-train", **tokens))
    assert refused.verdict.reason is Reason.USAGE_RESERVED
    assert (await ask(guard_for(body, purposes="search", **tokens))).verdict.reason == "allowed"
    assert (await ask(guard_for(body, purposes="ai-train"))).verdict.reason == "allowed"


# -- responses -------------------------------------------------------------------------------------


def decide(guard, head, page=None, **named):
    verdict = guard.responses.judge(QUESTION, head, page, **named)
    return None if verdict is None else guard.responses.record(QUESTION, head, verdict, "w-1")


def test_a_silent_response_needs_no_verdict():
    assert decide(guard_for(purposes="search"), SILENT) is None


def test_a_refused_response_is_recorded_and_counted():
    guard = guard_for(purposes="search", audit_log=(log := CapturingAuditLog()))
    decision = decide(guard, NOINDEX)

    assert decision.verdict.reason is Reason.USAGE_RESERVED
    assert (decision.response.status, decision.response.request) == (200, "w-1")
    assert decision.purposes == ("search",)
    assert [record.id for record in log.signals] == [decision.id]
    assert guard.counts["drop/usage-reserved"] == 1
    assert guard.counts["signals/search/x-robots-tag"] == 1


def test_what_a_page_states_counts_with_its_header_fields():
    guard = guard_for(purposes="ai-train")
    page = read_page(b'<meta name="robots" content="noai">', "text/html", f"{A}/page")
    assert decide(guard, NOINDEX).verdict.action is Action.PASS
    decision = decide(guard, NOINDEX, page)
    assert decision.verdict.action is Action.DROP
    assert {"search", "ai-train"} <= set(decision.verdict.uses.denied)


async def test_what_the_policy_states_is_part_of_the_evidence():
    guard = guard_for(b"User-agent: *\nContent-Signal: search=yes")
    await ask(guard)
    decision = decide(guard, SILENT)
    assert decision.verdict.uses.states["search"] == "allow"


def test_silence_is_refused_only_when_everything_has_been_read():
    guard = guard_for(purposes="search", on_unknown="deny")
    assert decide(guard, SILENT, is_final=False) is None
    assert decide(guard, SILENT).verdict.reason is Reason.USAGE_RESERVED


@pytest.mark.parametrize("settings", [{"signals": "off"}, {"signals": "off", "purposes": "search"}])
def test_signals_that_are_off_are_not_read(settings):
    assert decide(guard_for(**settings), NOINDEX) is None


def test_report_only_refuses_no_response():
    guard = guard_for(purposes="search", options={"report_only": True})
    verdict = decide(guard, NOINDEX).verdict
    assert (verdict.action, verdict.would) == (Action.PASS, Action.DROP)


def test_an_internal_error_refuses_a_response_whose_signals_are_enforced(monkeypatch):
    monkeypatch.setattr("robots_guard.guard.response_check.judge_response", lambda *_, **__: 1 / 0)
    assert decide(guard_for(purposes="search"), NOINDEX).verdict.reason is Reason.INTERNAL_ERROR
    assert decide(guard_for(), NOINDEX) is None


class FullLog(CapturingAuditLog):
    def write(self, decision):
        raise AuditLogError("no space left")


def test_a_response_that_cannot_be_recorded_is_refused_where_records_are_required():
    required = {"audit_required": True}
    guard = guard_for(audit_log=FullLog(), options=required)
    assert decide(guard, NOINDEX).verdict.reason is Reason.UNRECORDED
    assert decide(guard_for(audit_log=FullLog()), NOINDEX).verdict.action is Action.PASS
