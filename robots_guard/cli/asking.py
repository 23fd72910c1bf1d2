"""Questions as people and files put them, and their answers.

Three ways to an answer: by the guard (store, network, journal, as a door does it), by a policy in hand, and by
the text of a robots.txt. All go through the same states of core/check.py.
"""

from __future__ import annotations

import contextlib
from functools import partial

import msgspec
from cachetools import LRUCache

from robots_guard.audit.record import SCHEMA, Record, record_of, shown_url
from robots_guard.core import check, renewal
from robots_guard.core.access import Fetched
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Action, Decision, Question, Reason, Terms, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.guard import Guard
from robots_guard.origin import Origin, octets, split_url
from robots_guard.rep.ruleset import Ruleset, compile_rules

DOOR = "cli"
FILE = "file"  # the source of a verdict by a text in hand
COMPILED = 16  # rulesets a judge keeps
LARGEST = 64 * 1024 * 1024  # octets read of a file: enough to say how much of it is too much


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for a URL. `url` is in the form that was judged; `decision` is None if the guard was not asked."""

    url: str
    verdict: Verdict
    decision: Decision | None = None


def read_url(url: str) -> tuple[Origin, str] | Verdict:
    """The origin and target of a URL, or the verdict on one that has none."""
    try:
        return split_url(url)
    except NotGoverned as error:
        return Verdict(action=Action.PASS, reason=Reason.NOT_GOVERNED, detail=str(error))
    except MalformedURL as error:
        return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=str(error))


async def ask_guard(guard: Guard, url: str, agent: str) -> Answer:
    """The guard's answer: it may fetch, and it records."""
    read = read_url(url)
    if isinstance(read, Verdict):
        return _unasked(url, read)
    question = Question(origin=read[0], target=read[1], agent=agent)
    decision = guard.peek(question) or await guard.check(question)
    return _answer(decision)


def _answer(decision: Decision) -> Answer:
    question = decision.question
    return Answer(url=f"{question.origin}{question.target}", verdict=decision.verdict, decision=decision)


def _unasked(url: str, verdict: Verdict) -> Answer:
    """The answer for a URL that names no origin; the URL is shown as the bytes that were given."""
    with contextlib.suppress(MalformedURL):
        url = octets(url)
    return Answer(url=url, verdict=verdict)


class Judge:
    """Judges by documents in hand: no guard, no clock, no record. Keeps a few compiled."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._rules: LRUCache[tuple[str, str], Ruleset] = LRUCache(COMPILED)

    def by_text(self, body: bytes, url: str, agent: str, now: float) -> Answer:
        """The answer if this were the robots.txt of the URL's origin, fetched just now."""
        read = read_url(url)
        if isinstance(read, Verdict):
            return _unasked(url, read)
        question = Question(origin=read[0], target=read[1], agent=agent)
        policy = policy_of_text(question.origin, body, now)
        decision = Decision(
            id="",
            at=now,
            door=DOOR,
            question=question,
            verdict=self.by_policy(policy, question, now),
            policy=policy,
            dialect=self.terms.dialect.name,
            matching=self.terms.matching.name,
            source=FILE,
        )
        return _answer(decision)

    def by_policy(self, policy: Policy, question: Question, now: float, *, at_any_time: bool = False) -> Verdict:
        """The verdict by a policy, whatever its age; `at_any_time`, whatever its visiting times."""
        rules_of = partial(self.rules, agent=question.agent)
        return check.by_policy(question, self.terms, policy, rules_of, now, at_any_time=at_any_time)

    def rules(self, document: Document, agent: str) -> Ruleset:
        """A document compiled for an agent."""
        key = (document.sha256, agent)
        rules = self._rules.get(key)
        if rules is None:
            rules = compile_rules(document.body, self.terms.dialect, agent, self.terms.matching.name)
            self._rules[key] = rules
        return rules


def policy_of_text(origin: Origin, body: bytes, now: float) -> Policy:
    """The policy of an origin that answers with this robots.txt."""
    settled = renewal.begin(origin, None, FILE).next(Fetched(status=200, body=body, tls_verified=True), now)
    assert isinstance(settled, renewal.Settled)
    return settled.policy


def record_of_answer(answer: Answer) -> Record:
    """The answer in the journal's form. Without a fetch, or an origin, what belongs to them is None or empty."""
    if answer.decision is None:
        verdict = answer.verdict
        return Record(
            schema=SCHEMA,
            id="",
            at=None,
            door=DOOR,
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
    return msgspec.structs.replace(record, at=None, fetched_at=None, age=None, status=None, via=None, tls_verified=None)
