"""The sentence about a decision that every integration logs."""

from __future__ import annotations

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, decision

from robots_guard.audit.privacy import Privacy
from robots_guard.decisions.policy import PINNED, Document, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.uses import read_uses
from robots_guard.decisions.verdict import Action, Exemption, RuleRef, Verdict
from robots_guard.gateway.errors import log_line_of
from robots_guard.protocol.signals.headers import header_statements

RULE = "line 2 of its robots.txt says 'Disallow: /private/', group '*'"
JANE = Exemption(id="gone", owner="jane", reason="they asked by letter", expires=AT + 9)


def verdict(action, reason, **more):
    return Verdict(action=action, reason=reason, **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            decision("https://a.test/private/x", DROP),
            f"drop (disallowed): GET https://a.test/private/x: {RULE} [agent mybot, id w-1]",
        ),
        (
            decision("https://a.test/x", DEFER),
            "defer (unreachable): GET https://a.test/x: dns: no such host; retry in 30 s"
            " [agent mybot, id w-1]",
        ),
        (
            decision("https://a.test/x", PASS),
            "pass (allowed): GET https://a.test/x: No rule that applies forbids the request"
            " [agent mybot, id w-1]",
        ),
        (
            decision(
                "https://a.test/x",
                msgspec.structs.replace(
                    DROP, action=Action.PASS, would=Action.DROP, relaxed="report_only"
                ),
            ),
            f"pass (disallowed): GET https://a.test/x: {RULE}; it would be a drop, but report_only"
            " lets it pass [agent mybot, id w-1]",
        ),
        (
            decision("https://a.test/x", verdict(Action.DROP, Reason.BLOCKED), override=JANE),
            "drop (blocked): GET https://a.test/x: The operator has blocked the site; override gone"
            " of jane (they asked by letter) [agent mybot, id w-1]",
        ),
    ],
)
def test_sentence(given, expected):
    assert log_line_of(given) == expected


def test_a_rule_of_a_pinned_robots_txt_is_not_the_sites():
    document = Document(status=200, url="", sha256="0" * 64, fetched_at=900.0, via=PINNED)
    given = decision("https://a.test/private/x", DROP)
    policy = Policy(origin=given.question.origin, document=document)

    line = log_line_of(msgspec.structs.replace(given, policy=policy))

    assert RULE.replace("its", "the pinned", 1) in line


def test_a_purpose_that_is_refused_comes_first():
    uses = read_uses(
        header_statements([("X-Robots-Tag", "noai")], 200), "mybot", SignalSettings(), 0.0
    )
    detail = "ai-train: x-robots-tag (header) says X-Robots-Tag: noai"
    refused = verdict(
        Action.DROP, Reason.USAGE_RESERVED, uses=uses, detail=detail, rule=RuleRef(2, "x", "*")
    )

    assert log_line_of(decision("https://a.test/x", refused)).startswith(
        f"drop (usage-reserved): GET https://a.test/x: {detail} [agent"
    )


@pytest.mark.parametrize(
    ("privacy", "shown"),
    [
        (Privacy(), "https://a.test/x?token=REDACTED&q=1:"),
        (Privacy(query="drop"), "https://a.test/x:"),
    ],
)
def test_urls_are_redacted_as_in_the_audit_log(privacy, shown):
    given = decision("https://a.test/", DROP, target="/x?token=abc&q=1")

    assert shown in log_line_of(given, privacy)


def test_hostile_text_stays_one_printable_line_of_bounded_length():
    rule = RuleRef(2, "Disallow: /\x1b[2J\n" + "x" * 500_000, "*\u202e" * 10_000)
    hostile = verdict(
        Action.DROP, Reason.UNREACHABLE, detail="http://me:sesame@b.test/\x1b\r\n" + "y" * 9000
    )
    for each in (verdict(Action.DROP, Reason.DISALLOWED, rule=rule), hostile):
        given = decision("https://a.test/", each, target="/\xff\r\n" + "z" * 9000, method="GET\x07")
        text = log_line_of(given)
        assert text.isprintable()
        assert "sesame" not in text
        assert len(text) < 4000


@pytest.mark.parametrize("agent", ["bot\nforged line", "\x1b[31mbot", "\u202ebot", "b" * 100_000])
def test_an_agent_can_neither_control_a_line_nor_fill_it(agent):
    made = decision("https://a.test/private")
    question = msgspec.structs.replace(made.question, agent=agent)
    line = log_line_of(msgspec.structs.replace(made, question=question))

    assert line.isprintable()
    assert len(line) < 1000
