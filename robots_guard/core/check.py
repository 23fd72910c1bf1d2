"""A check: one request's way from question to verdict.

Knows no clock, no store, no host. Every way a request can go is in this file; each state's docstring says
what it wants, its `next` what may follow:

    begin    -> Lookup      the policy matters
    begin    -> Opened      /robots.txt itself is requested: the policy matters only to the turn
    begin    -> Decided     it does not matter (a malformed target, an exemption)
    Lookup   -> Renewing    nothing is held, or what is held has expired
    Lookup   -> Judging     fresh, or stale and to be renewed behind the asker's back
    Lookup   -> Decided     the store has not said it, and this asker may wait no longer
    Renewing -> Judging     the origin's one renewal has settled
    Renewing -> Decided     it has not, and this asker may wait no longer
    Judging  -> Decided     by the rules; or they have not been compiled, and this asker may wait no longer
    Opened   -> Timing      a policy is held: its rules may ask for time between requests
    Opened   -> Decided     none is held, and none is fetched: an unknown delay cannot be kept
    Timing   -> Decided

A request that is let pass may still have to wait for its origin's turn. That is not part of the check, for between
the verdict and the wire lie caches and queues, and a turn is for what is sent: see `turns`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from robots_guard.core.access import Access
from robots_guard.core.freshness import Freshness
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import (
    Question,
    Reason,
    Terms,
    Verdict,
    deferred,
    judge,
    needs_no_policy,
    paced,
    taking_turns,
)
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

    def next(
        self, rules: Ruleset | Unanswered | None, now: float, *, held_off: bool = False, at_any_time: bool = False
    ) -> Decided:
        """Judge, and say what binds the request to a time; without the rules, not yet. `held_off`: the origin has asked
        for a pause; `at_any_time`: the question is not about now, so visiting times say nothing."""
        if isinstance(rules, Unanswered):
            return Decided(deferred(rules.why, now))
        verdict = judge(self.question, self.policy, rules, self.terms, now)
        verdict = paced(verdict, rules, self.terms, now, held_off=held_off, at_any_time=at_any_time)
        return Decided(verdict, self.policy, self.renew)


@dataclass(frozen=True, slots=True)
class Timing:
    """Wants the document's rules, compiled for the question, to find the delay of a request that is open anyway."""

    verdict: Verdict
    terms: Terms
    policy: Policy
    document: Document

    def next(self, rules: Ruleset | Unanswered | None, now: float, *, held_off: bool = False) -> Decided:
        """The verdict with the delay that the rules ask for; without the rules, an unknown delay cannot be kept.
        `held_off`: the origin has asked for a pause."""
        known = None if isinstance(rules, Unanswered) else rules
        return Decided(taking_turns(self.verdict, known, self.terms, now, held_off=held_off), self.policy)


@dataclass(frozen=True, slots=True)
class Opened:
    """The question is about /robots.txt itself, which no rule can close. Wants the policy held, or None.

    The age of the policy does not matter: the delay that the origin asked for yesterday is the best estimate for today.
    """

    verdict: Verdict
    terms: Terms

    def next(self, held: Policy | Unanswered | None, now: float, *, held_off: bool = False) -> Timing | Decided:
        """Apply the known delay, if there is one. `held_off`: the origin has asked for a pause."""
        if isinstance(held, Policy):
            access, document = held.access(now, self.terms.dialect)
            if access is Access.RULES and document is not None:
                return Timing(self.verdict, self.terms, held, document)
        return Decided(taking_turns(self.verdict, None, self.terms, now, held_off=held_off))


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No policy, or no rules of it, for this asker: it has waited as long as it may, or too many wait already."""

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

    def next(self, held: Policy | Unanswered | None, now: float) -> Judging | Renewing | Decided:
        """Use it, use it and renew it, or renew it first. Without an answer, not yet."""
        if isinstance(held, Unanswered):
            return Decided(deferred(held.why, now))
        if held is None:
            return Renewing(self.question, self.terms, None)
        match held.freshness(now, self.terms.dialect):
            case Freshness.FRESH:
                return _judging(self.question, self.terms, held, now)
            case Freshness.STALE:
                return _judging(self.question, self.terms, held, now, renew=True)
            case Freshness.EXPIRED:
                return Renewing(self.question, self.terms, held)


State = Lookup | Renewing | Judging | Opened | Timing | Decided


def begin(question: Question, terms: Terms) -> Lookup | Opened | Decided:
    """The first state of a check."""
    verdict = needs_no_policy(question, terms)
    if verdict is None:
        return Lookup(question, terms)
    if verdict.reason is Reason.ROBOTS_TXT and terms.action != "pass":  # what is exempt takes no turn either
        return Opened(verdict, terms)
    return Decided(verdict)


def by_policy(
    question: Question,
    terms: Terms,
    policy: Policy,
    rules_of: Callable[[Document], Ruleset],
    now: float,
    *,
    at_any_time: bool = False,
) -> Verdict:
    """The verdict by a policy in hand, whatever its age, for who asks no store and no origin. `rules_of` compiles its
    document for the question; `at_any_time` as in `Judging.next`."""
    state: State = begin(question, terms)
    if isinstance(state, Opened):
        state = state.next(policy, now)
    if isinstance(state, Timing):
        state = state.next(rules_of(state.document), now)
    if isinstance(state, Decided):
        return state.verdict
    judging = _judging(question, terms, policy, now)
    rules = rules_of(judging.document) if judging.document is not None else None
    return judging.next(rules, now, at_any_time=at_any_time).verdict


def _judging(question: Question, terms: Terms, policy: Policy, now: float, *, renew: bool = False) -> Judging:
    access, document = policy.access(now, terms.dialect)
    return Judging(question, terms, policy, document if access is Access.RULES else None, renew)
