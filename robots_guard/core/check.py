"""A check: one request's way from question to verdict.

Knows no clock, no store, no host. Every way a request can go is in this file; each state's docstring says
what it wants, its `next` what may follow:

    begin    -> Lookup      the policy matters
    begin    -> Decided     it does not (a malformed target, the file itself)
    Lookup   -> Renewing    nothing is held, or what is held has expired
    Lookup   -> Judging     fresh, or stale and to be renewed behind the asker's back
    Renewing -> Judging     the origin's one renewal has settled
    Renewing -> Decided     it has not, and this asker may wait no longer
    Judging  -> Decided
"""

from __future__ import annotations

from dataclasses import dataclass

from robots_guard.core.access import Access
from robots_guard.core.freshness import Freshness
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Question, Terms, Verdict, deferred, judge, needs_no_policy
from robots_guard.rep.ruleset import Ruleset


@dataclass(frozen=True, slots=True)
class Decided:
    """The end. `renew` asks for a renewal in the background; nobody waits for it."""

    verdict: Verdict
    policy: Policy | None = None
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Judging:
    """Wants the document's rules, compiled for the question; None where it has none (`document` is None)."""

    question: Question
    terms: Terms
    policy: Policy
    document: Document | None
    renew: bool = False

    def next(self, rules: Ruleset | None, now: float) -> Decided:
        """Judge."""
        verdict = judge(self.question, self.policy, rules, self.terms, now)
        return Decided(verdict, self.policy, self.renew)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No policy for this asker: it has waited as long as it may, or too many wait already."""

    why: str


@dataclass(frozen=True, slots=True)
class Renewing:
    """Wants the policy that the origin's one renewal settles on; `held` is what there was before."""

    question: Question
    terms: Terms
    held: Policy | None

    def next(self, answer: Policy | Unanswered, now: float) -> Judging | Decided:
        """Whatever it is, judge by it: it is the newest there is. Without one, not yet."""
        if isinstance(answer, Unanswered):
            return Decided(deferred(answer.why, now))
        return _judging(self.question, self.terms, answer, now)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Wants the policy held for the origin, or None."""

    question: Question
    terms: Terms

    def next(self, held: Policy | None, now: float) -> Judging | Renewing:
        """Use it, use it and renew it, or renew it first."""
        if held is None:
            return Renewing(self.question, self.terms, None)
        match held.freshness(now, self.terms.dialect):
            case Freshness.FRESH:
                return _judging(self.question, self.terms, held, now)
            case Freshness.STALE:
                return _judging(self.question, self.terms, held, now, renew=True)
            case Freshness.EXPIRED:
                return Renewing(self.question, self.terms, held)


State = Lookup | Renewing | Judging | Decided


def begin(question: Question, terms: Terms) -> Lookup | Decided:
    """The first state of a check."""
    verdict = needs_no_policy(question, terms)
    return Decided(verdict) if verdict else Lookup(question, terms)


def _judging(question: Question, terms: Terms, policy: Policy, now: float, *, renew: bool = False) -> Judging:
    access, document = policy.access(now, terms.dialect)
    return Judging(question, terms, policy, document if access is Access.RULES else None, renew)
