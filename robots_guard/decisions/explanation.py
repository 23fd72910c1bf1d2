"""Explanations: a verdict and its grounds in the policy, for people who ask why.

The grounds are the groups that apply and why, the rules that match, the lines on delays, and the
verdicts of the other dialects on the same question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from robots_guard.decisions.access import Access
from robots_guard.decisions.check import compiled, judge_offline
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.verdict import Question, Terms, Verdict
from robots_guard.protocol.dialect import DIALECTS, Dialect
from robots_guard.protocol.directives import Pace
from robots_guard.protocol.lines import Line, excerpt
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import Rule


class Chosen(NamedTuple):
    """The groups that a dialect selects, why it does, and the numbers of their User-agent lines."""

    dialect: str
    title: str | None
    why: str
    lines: list[int]


class DialectVerdict(NamedTuple):
    """The verdict of another dialect on the same question, under the same policy."""

    dialect: str
    verdict: Verdict
    differs: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict and its grounds. `document` is set if its rules were applied; without a policy
    there are no grounds."""

    verdict: Verdict
    terms: Terms
    policy: Policy | None = None
    document: Document | None = None
    chosen: list[Chosen] = field(default_factory=list)
    pace: Pace | None = None
    matches: list[Rule] = field(default_factory=list)
    others: list[DialectVerdict] = field(default_factory=list)

    @property
    def time(self) -> list[tuple[Line, str]]:
        """The group's lines on delays and visiting hours, in order, each with its effect: `binds`,
        `odd` (invalid) or empty."""
        if self.pace is None:
            return []
        lines = {*self.pace.lines, *self.pace.odd}
        return [(line, self._effect(line)) for line in sorted(lines, key=lambda line: line.number)]

    def _effect(self, line: Line) -> str:
        assert self.pace is not None
        if line in self.pace.odd:
            return "odd"
        required = self.verdict.delay
        if required and required.line == line.number:
            return "binds"
        return ""

    @property
    def context(self) -> list[tuple[int, str]]:
        """The deciding line and the lines around it, with their numbers."""
        if self.document is None or self.verdict.rule is None:
            return []
        return excerpt(self.document.body, self.verdict.rule.line)


def explain(
    question: Question, verdict: Verdict, policy: Policy, terms: Terms, now: float
) -> Explanation:
    """Collect the grounds of a verdict at `now`."""
    access, document = policy.access(now, terms.dialect)
    others = list(_other_verdicts(question, verdict, policy, terms, now))
    if access is not Access.RULES or document is None:
        return Explanation(verdict, terms, policy, others=others)
    rules = compiled(document, terms, question.agent)
    return Explanation(
        verdict=verdict,
        terms=terms,
        policy=policy,
        document=document,
        chosen=list(_chosen_groups(document, terms.dialect, question.agent)),
        pace=rules.pace,
        matches=rules.matches(question.target),
        others=others,
    )


def _chosen_groups(document: Document, dialect: Dialect, agent: str) -> Iterator[Chosen]:
    for part in dialect.parts or (dialect,):
        selection = parse(document.body, part).select(agent)
        lines = [line for group in selection.groups for line, _, _ in group.agents]
        yield Chosen(part.name, selection.title, selection.why, lines)


def _other_verdicts(
    question: Question, verdict: Verdict, policy: Policy, terms: Terms, now: float
) -> Iterator[DialectVerdict]:
    """Yield the other dialects' verdicts under the same policy, even if such a dialect would have
    refetched it."""
    for name, dialect in DIALECTS.items():
        if name != terms.dialect.name:
            other = judge_offline(
                question, msgspec.structs.replace(terms, dialect=dialect), policy, now
            )
            yield DialectVerdict(name, other, _outcome(other) != _outcome(verdict))


def _outcome(verdict: Verdict) -> tuple[str, float]:
    """Return the action and the required delay in seconds."""
    return verdict.action, verdict.delay.seconds if verdict.delay else 0.0
