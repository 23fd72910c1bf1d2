"""Explanations: the grounds of a verdict, without store or network."""

from __future__ import annotations

from decisions.test_check import NOW, SHUT, TERMS, policy_from, question

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.check import judge_offline
from robots_guard.decisions.explanation import Explanation, explain
from robots_guard.protocol.dialect import DIALECTS


def explained(target: str, policy) -> Explanation:
    verdict = judge_offline(question(target), TERMS, policy, NOW)
    return explain(question(target), verdict, policy, TERMS, NOW)


def test_grounds_are_the_group_its_lines_and_what_matches():
    it = explained("/private/x", policy_from(Fetched(status=200, body=SHUT), NOW))

    assert [(each.title, each.lines) for each in it.chosen] == [("*", [1])]
    assert [line.number for line, _ in it.time] == [3, 4]
    assert [rule.line for rule in it.matches] == [2]
    assert it.context == list(enumerate(SHUT.decode().splitlines(), 1))


def test_every_other_dialect_gives_its_verdict():
    it = explained("/", policy_from(Fetched(status=403), NOW))

    assert {other.dialect for other in it.others} == DIALECTS.keys() - {TERMS.dialect.name}
    assert [other.dialect for other in it.others if other.differs] == ["google"]
    assert (it.document, it.matches, it.context) == (None, [], [])
