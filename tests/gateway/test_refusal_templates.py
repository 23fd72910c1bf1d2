"""Replies made from templates are those of `reply_to`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.policy import PINNED, Document, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.uses import read_uses
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Question,
    ResponseRef,
    RuleRef,
    Subresource,
    Verdict,
)
from robots_guard.gateway.refusal import reply_to
from robots_guard.gateway.refusal_templates import KEPT, RefusalTemplates
from robots_guard.invocation import Invocation
from robots_guard.origin import Origin
from robots_guard.protocol.signals.headers import header_statements

HTML = "text/html,*/*;q=0.8"
CONTACTS = ("", "https://example.org/?a=<b>&c", "crawl@example.org")
INVOCATION = Invocation({"audit_log": "/var/log/a file"})

TEXT = st.text(st.characters(codec="latin-1"), max_size=30)
TARGETS = st.one_of(
    TEXT.map("/".__add__),
    st.sampled_from(["*", "/<b>&\"'", "/a\\b\x00\x7f", "/" + "x" * 5000, "/" + '"' * 2100]),
)
RULES = st.none() | st.builds(RuleRef, line=st.integers(1, 9), text=TEXT, group=TEXT)
USES = read_uses(
    header_statements([("Content-Usage", "train-ai=n")], status=200), "mybot", SignalSettings(), 0.0
)
VERDICTS = st.builds(
    Verdict,
    action=st.sampled_from([Action.DROP, Action.DEFER]),
    reason=st.sampled_from(Reason),
    rule=RULES,
    group=st.none() | TEXT,
    until=st.none() | st.floats(0, 4e9),
    detail=st.none() | TEXT,
    uses=st.sampled_from([None, USES]),
)
QUESTIONS = st.builds(
    Question,
    origin=st.sampled_from([Origin("https", "site.test", 443), Origin("http", "::1", 8080)]),
    target=TARGETS,
    agent=st.sampled_from(["mybot", "other<bot>"]),
    method=st.sampled_from(["GET", "POST"]),
    subresource=st.sampled_from([None, None, Subresource("image", "https://page.test")]),
)


def policy_by(via):
    document = Document(status=200, url="", sha256="0" * 64, fetched_at=900.0, via=via)
    return Policy(origin=Origin("https", "site.test", 443), document=document)


DECISIONS = st.builds(
    Decision,
    id=st.one_of(st.from_regex(r"\A[0-9a-f]{1,10}-[0-9]{1,9}\Z"), TEXT),
    at=st.floats(0, 4e9),
    component=st.just("proxy"),
    question=QUESTIONS,
    verdict=VERDICTS,
    response=st.none() | st.just(ResponseRef(status=200)),
    purposes=st.sampled_from([(), ("search",)]),
    policy=st.sampled_from([None, *(policy_by(each) for each in ("direct", PINNED))]),
)


@given(
    st.lists(
        st.tuples(DECISIONS, st.sampled_from(["GET", "HEAD"]), st.sampled_from(["", HTML])),
        max_size=3,
    ),
    st.sampled_from(CONTACTS),
)
def test_templates_result_in_the_replies_of_reply_to(asked, contact):
    templates = RefusalTemplates(contact, INVOCATION)
    for decision, method, accept in asked * 2:  # the second time, there is a template
        assert templates.reply_to(decision, method, accept) == reply_to(
            decision, method=method, accept=accept, contact=contact, invocation=INVOCATION
        )


def refusal(target="/private/x", number=1, policy=None, detail=None):
    return Decision(
        id=f"ab-{number}",
        at=1000.0,
        component="proxy",
        question=Question(origin=Origin("https", "site.test", 443), target=target, agent="mybot"),
        verdict=Verdict(
            action=Action.DROP,
            reason=Reason.DISALLOWED,
            rule=RuleRef(2, "Disallow: /private/", "*"),
            detail=detail,
        ),
        policy=policy,
    )


@pytest.fixture
def composed(monkeypatch):
    """The number of replies that were composed."""
    calls = []

    def compose(*arguments, **options):
        calls.append(arguments)
        return reply_to(*arguments, **options)

    monkeypatch.setattr("robots_guard.gateway.refusal_templates.reply_to", compose)
    return calls


def test_a_page_is_rendered_once_for_a_rule(composed):
    templates = RefusalTemplates()
    replies = {
        templates.reply_to(refusal(f"/private/{number}", number), accept=HTML).body
        for number in range(10)
    }
    assert (len(replies), len(composed)) == (10, 1)


def test_replies_that_differ_otherwise_have_different_templates(composed):
    templates = RefusalTemplates()
    for decision in (refusal(), refusal(detail="because"), refusal(detail="for this")):
        for accept in ("", HTML):
            assert templates.reply_to(decision, accept=accept) == reply_to(decision, accept=accept)
    assert len(composed) == 6


def test_a_newer_robots_txt_has_a_new_template():
    templates = RefusalTemplates()
    for fetched_at in (1000.0, 1000.5, 2000.0):
        url = "https://site.test/robots.txt"
        document = Document(status=200, url=url, sha256="", fetched_at=fetched_at, via="direct")
        policy = Policy(origin=Origin("https", "site.test", 443), document=document)
        decision = refusal(policy=policy)
        assert templates.reply_to(decision, accept=HTML) == reply_to(decision, accept=HTML)


def test_the_number_of_templates_is_bounded(composed):
    templates = RefusalTemplates()
    for number in range(KEPT + 1):
        templates.reply_to(refusal(detail=str(number)))
    templates.reply_to(refusal(detail="0"))  # the oldest has been forgotten
    assert len(composed) == KEPT + 2
