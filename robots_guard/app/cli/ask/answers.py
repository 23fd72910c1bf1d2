"""Answers to whether a URL may be requested.

An answer comes from the guard (guard_answers.py), from a given policy, or from the text of a robots.txt. All three
use the state machine of decisions/check.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial

import click
import msgspec
from cachetools import LRUCache

from robots_guard.audit.record import SCHEMA, Record, record_of, shown_url
from robots_guard.decisions import check, renewal
from robots_guard.decisions.component import Component
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.verdict import Action, Decision, Question, Terms, Verdict
from robots_guard.errors import MalformedURL
from robots_guard.origin import Origin, objection, wire_text
from robots_guard.protocol.ruleset import Ruleset

FILE = "file"  # the source of a verdict that is based on a given text
COMPILED = 16  # compiled rulesets that a judge caches
STATUS = {Action.PASS: 0, Action.DROP: 1, Action.DEFER: 3}  # exit statuses
#: Bytes read from a file: far above the size cap, so that the excess can be reported.
LARGEST = 64 * 1024 * 1024


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for a URL. `url` is in the form that was judged; `decision` is None for a URL without an origin."""

    url: str
    verdict: Verdict
    decision: Decision | None = None


def answer_of(decision: Decision) -> Answer:
    """Return a decision as an answer."""
    question = decision.question
    return Answer(
        url=f"{question.origin}{question.target}", verdict=decision.verdict, decision=decision
    )


def answer_without_origin(url: str, verdict: Verdict) -> Answer:
    """Return the answer for a URL without an origin; the URL is shown as the bytes that were given."""
    with contextlib.suppress(MalformedURL):
        url = wire_text(url)
    return Answer(url=url, verdict=verdict)


class Judge:
    """Judges by given documents, without guard, clock or record. Caches a few compiled rulesets."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._rules: LRUCache[tuple[str, str], Ruleset] = LRUCache(COMPILED)

    def by_text(self, body: bytes, url: str, agent: str, now: float) -> Answer:
        """Return the answer as if this were the robots.txt of the URL's origin, fetched just now."""
        read = check.read_url(url)
        if isinstance(read, Verdict):
            return answer_without_origin(url, read)
        origin, target = read
        question = Question(origin=origin, target=target, agent=agent)
        policy = policy_of_text(origin, body, now)
        decision = Decision(
            id="",
            at=now,
            component=Component.CLI,
            question=question,
            verdict=self.judge_offline(policy, question, now),
            policy=policy,
            dialect=self.terms.dialect.name,
            matching=self.terms.matching.name,
            source=FILE,
        )
        return answer_of(decision)

    def judge_offline(
        self, policy: Policy, question: Question, now: float, *, at_any_time: bool = False
    ) -> Verdict:
        """Return the verdict under a policy regardless of its age; with `at_any_time`, also of its Visit-time."""
        rules_of = partial(self._compiled, agent=question.agent)
        return check.judge_offline(
            question, self.terms, policy, now, rules_of=rules_of, at_any_time=at_any_time
        )

    def _compiled(self, document: Document, agent: str) -> Ruleset:
        """Return a document's rules, compiled for an agent."""
        key = (document.sha256, agent)
        rules = self._rules.get(key)
        if rules is None:
            rules = check.compiled(document, self.terms, agent)
            self._rules[key] = rules
        return rules


def policy_of_text(origin: Origin, body: bytes, now: float) -> Policy:
    """Return the policy of an origin that answers with this robots.txt."""
    return renewal.policy_of_text(origin, body, FILE, now)


def record_of_answer(answer: Answer) -> Record:
    """Return the answer as an audit record. Without a fetch, or without an origin, their fields are None or empty."""
    if answer.decision is None:
        verdict = answer.verdict
        return Record(
            schema=SCHEMA,
            id="",
            at=None,
            component=Component.CLI,
            agent="",
            url=shown_url(answer.url),
            origin="",
            action=verdict.action.value,
            reason=verdict.reason.value,
            detail=verdict.detail,
        )
    record = record_of(answer.decision)
    if answer.decision.source != FILE:
        return record
    return msgspec.structs.replace(
        record, at=None, fetched_at=None, age=None, status=None, via=None, tls_verified=None
    )


def absolute(urls: Iterable[str]) -> None:
    """Raise UsageError if there is no URL, or one that is not absolute."""
    if not urls:
        raise click.UsageError(
            "no URL is given: give at least one, such as https://example.com/page"
        )
    for url in urls:
        sentence = objection(url)
        if sentence is not None:
            raise click.UsageError(sentence)
