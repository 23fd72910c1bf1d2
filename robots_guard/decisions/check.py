"""A check: the state machine that takes one request from question to verdict.

It uses no clock, store or framework. All transitions are in this module: the docstring of a state
says what the state needs, and its `next` takes that and returns the following state:

    begin      -> Lookup     the policy matters
    begin      -> Overridden an override exempts the request, or has it judged by a pinned robots.txt:
                             the policy only says what would have been
    begin      -> Opened     /robots.txt itself is requested: the policy only determines the delay
    begin      -> Timing     /robots.txt itself is requested, and the pinned one is known
    begin      -> Decided    the policy does not matter (a malformed target, a blocked site)
    Lookup     -> Renewing   no policy is cached, or the cached one has expired or lacks reservations
                             that are needed
    Lookup     -> Judging    it is fresh, or stale and to be renewed in the background
    Lookup     -> Decided    the store has not answered before this caller's timeout
    Renewing   -> Judging    the origin's single renewal has settled
    Renewing   -> Decided    it has not settled before this caller's timeout
    Overridden -> Judging    by the pinned robots.txt, whether or not the site's own is cached
    Overridden -> Comparing  the request is exempted, and a policy is cached and usable
    Overridden -> Decided    it is exempted, and none is: it is fetched in the background, for later
                             requests
    Judging    -> Decided    by the rules, or because they were not compiled before the timeout
    Judging    -> Comparing  a pinned robots.txt permits the request, and the site's own is known
    Comparing  -> Decided    with what the site's rules say, if they were compiled before the timeout
    Opened     -> Timing     a policy is cached: its rules may require a delay between requests
    Opened     -> Decided    none is cached, and none is fetched: an unknown delay is not enforced
    Timing     -> Decided

A request that passes may still have to wait for its origin's turn. Turns are not part of the check:
caches and queues lie between the verdict and the wire, and a turn belongs to what is sent; see
`guard/turns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from robots_guard.decisions.access import Access
from robots_guard.decisions.freshness import Freshness
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import (
    Action,
    Question,
    Terms,
    Verdict,
    compared,
    deferred,
    judge,
    needs_no_policy,
    paced,
    with_required_delay,
)
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import Origin, as_uri, split_url
from robots_guard.protocol.ruleset import Ruleset, compile_rules


class Decided(msgspec.Struct, frozen=True):
    """The final state. With `renew`, the policy is to be renewed in the background, or fetched if
    there is none."""

    verdict: Verdict
    policy: Policy | None = None
    renew: bool = False


class Comparing(msgspec.Struct, frozen=True):
    """An override lets the request pass. Needs the rules of the site's own document, compiled for the
    question, or None if `document` is None: would they permit it, too?"""

    decided: Decided
    question: Question
    terms: Terms
    policy: Policy
    document: Document | None

    def next(self, rules: Ruleset | TimedOut | None, now: float) -> Decided:
        """Judge by the site's own robots.txt. If its rules are not available in time, that is not
        known."""
        judged, policy = None, self.decided.policy
        if not isinstance(rules, TimedOut):
            own = self.policy
            if self.decided.verdict.reason is Reason.BYPASSED:
                # The exemption covers reservations, which need not be known here.
                own = msgspec.structs.replace(own, reservations=None)
            judged = judge(self.question, own, rules, self.terms, now)
            policy = policy or self.policy
        verdict = compared(self.decided.verdict, self.terms, judged)
        return msgspec.structs.replace(self.decided, verdict=verdict, policy=policy)


class Judging(msgspec.Struct, frozen=True):
    """Needs the document's rules, compiled for the question, or None if `document` is None.

    `own` is the site's own policy if the document is a pinned one.
    """

    question: Question
    terms: Terms
    policy: Policy
    document: Document | None
    renew: bool = False
    own: Policy | None = None

    def next(
        self,
        rules: Ruleset | TimedOut | None,
        now: float,
        *,
        is_paused: bool = False,
        at_any_time: bool = False,
    ) -> Decided | Comparing:
        """Judge, and add delay or visiting time. If the rules are not available in time, defer.

        `is_paused`: the origin has asked for a pause. `at_any_time`: the question is not about now,
        so visiting times do not apply.
        """
        decided = self.decide(rules, now, is_paused=is_paused, at_any_time=at_any_time)
        if not self.policy.is_pinned or decided.verdict.action is not Action.PASS:
            return decided
        return self._compare(decided, now)

    def _compare(self, decided: Decided, now: float) -> Decided | Comparing:
        """Compare a PASS by a pinned document with the site's own policy, if that is usable."""
        own = self.own
        if own is None or own.freshness(now, self.terms.dialect) is Freshness.EXPIRED:
            verdict = compared(decided.verdict, self.terms, None)
            return msgspec.structs.replace(decided, verdict=verdict)
        document = _rules_document(own, self.terms, now)
        return Comparing(decided, self.question, self.terms, own, document)

    def decide(
        self,
        rules: Ruleset | TimedOut | None,
        now: float,
        *,
        is_paused: bool = False,
        at_any_time: bool = False,
    ) -> Decided:
        """Do as `next` does, without a comparison with the site's own robots.txt."""
        if isinstance(rules, TimedOut):
            return Decided(deferred(rules.why, now))
        verdict = judge(self.question, self.policy, rules, self.terms, now)
        verdict = paced(
            verdict, rules, self.terms, now, is_paused=is_paused, at_any_time=at_any_time
        )
        return Decided(verdict, self.policy, self.renew)


class Timing(msgspec.Struct, frozen=True):
    """Needs the document's rules, compiled for the question, to find the delay of a request that
    passes anyway."""

    verdict: Verdict
    terms: Terms
    policy: Policy
    document: Document

    def next(
        self, rules: Ruleset | TimedOut | None, now: float, *, is_paused: bool = False
    ) -> Decided:
        """Add the delay that the rules require. If the rules are not available in time, they add
        none.

        `is_paused`: the origin has asked for a pause.
        """
        if isinstance(rules, TimedOut):
            rules = None
        verdict = with_required_delay(self.verdict, rules, self.terms, now, is_paused=is_paused)
        return Decided(verdict, self.policy)


class Opened(msgspec.Struct, frozen=True):
    """The question is about /robots.txt itself, which no rule can disallow. Needs the cached
    policy, or None.

    The age of the policy does not matter: yesterday's delay is the best estimate for today's.
    """

    verdict: Verdict
    terms: Terms

    def next(
        self, cached: Policy | TimedOut | None, now: float, *, is_paused: bool = False
    ) -> Timing | Decided:
        """Find the known delay, if there is one. `is_paused`: the origin has asked for a pause."""
        if isinstance(cached, Policy):
            document = _rules_document(cached, self.terms, now)
            if document is not None:
                return Timing(self.verdict, self.terms, cached, document)
        return Decided(
            with_required_delay(self.verdict, None, self.terms, now, is_paused=is_paused)
        )


class Overridden(msgspec.Struct, frozen=True):
    """An override decides without the site's own policy: it exempts the request, with this `verdict`,
    or has it judged by a pinned document. Needs the policy, cached, or None: none is fetched before
    the request is made."""

    question: Question
    terms: Terms
    verdict: Verdict | None = None

    def next(self, cached: Policy | TimedOut | None, now: float) -> Judging | Comparing | Decided:
        """Judge by the pinned document, or compare with the policy if one is known that is not too
        old."""
        own = cached if isinstance(cached, Policy) else None
        if self.verdict is None:
            return _judging(self.question, self.terms, own, now)
        if own is None:
            return Decided(self.verdict, renew=cached is None)
        freshness = own.freshness(now, self.terms.dialect)
        if freshness is Freshness.EXPIRED:
            return Decided(self.verdict, renew=True)
        return self._compare(self.verdict, own, now, renew=freshness is Freshness.STALE)

    def under(self, policy: Policy, now: float) -> Judging | Comparing:
        """Judge by the pinned document, or compare with the policy, whatever its age."""
        if self.verdict is None:
            return _judging(self.question, self.terms, policy, now)
        return self._compare(self.verdict, policy, now)

    def _compare(
        self, verdict: Verdict, policy: Policy, now: float, *, renew: bool = False
    ) -> Comparing:
        terms = msgspec.structs.replace(self.terms, action="judge")
        document = _rules_document(policy, terms, now)
        return Comparing(Decided(verdict, renew=renew), self.question, terms, policy, document)


class TimedOut(msgspec.Struct, frozen=True):
    """The policy or its compiled rules were not available in time, or too many callers were
    waiting."""

    why: str


class Renewing(msgspec.Struct, frozen=True):
    """Needs the result of the origin's single renewal; `cached` is the policy cached before."""

    question: Question
    terms: Terms
    cached: Policy | None

    def next(self, answer: Policy | TimedOut, now: float) -> Judging | Decided:
        """Judge by the renewed policy, whatever it says. Without one, defer."""
        if isinstance(answer, TimedOut):
            return Decided(deferred(answer.why, now))
        return _judging(self.question, self.terms, answer, now)


class Lookup(msgspec.Struct, frozen=True):
    """Needs the policy cached for the origin, or None."""

    question: Question
    terms: Terms

    def next(self, cached: Policy | TimedOut | None, now: float) -> Judging | Renewing | Decided:
        """Use the policy, use it and renew it, or renew it first. Without an answer, defer."""
        if isinstance(cached, TimedOut):
            return Decided(deferred(cached.why, now))
        if cached is None:
            return Renewing(self.question, self.terms, None)
        # In this order, because every request takes this path and the second takes longer.
        lacks = cached.lacks_reservations and needs_reservations(self.question, self.terms)
        match cached.freshness(now, self.terms.dialect, needs_reservations=lacks):
            case Freshness.FRESH:
                return _judging(self.question, self.terms, cached, now)
            case Freshness.STALE:
                return _judging(self.question, self.terms, cached, now, renew=True)
            case Freshness.EXPIRED:
                return Renewing(self.question, self.terms, cached)

    def under(self, policy: Policy, now: float) -> Judging:
        """Judge by the policy, whatever its age."""
        return _judging(self.question, self.terms, policy, now)


State = Lookup | Overridden | Renewing | Judging | Comparing | Opened | Timing | Decided


def needs_reservations(question: Question, terms: Terms) -> bool:
    """Whether reservations may refuse the question. They do not apply to the guard's own requests,
    which only find out what the site permits."""
    return terms.needs_reservations and not question.is_own


def begin(question: Question, terms: Terms) -> Lookup | Overridden | Opened | Timing | Decided:
    """The first state of a check.

    A pinned document replaces the site's robots.txt only. What the site reserves in its tdmrep.json
    is looked up or fetched as ever, if it may refuse the question.
    """
    verdict = needs_no_policy(question, terms)
    if verdict is None and (terms.pinned is None or needs_reservations(question, terms)):
        return Lookup(question, terms)
    if verdict is None or (verdict.reason is Reason.BYPASSED and not question.is_own):
        return Overridden(question, terms, verdict)
    # Exempt requests take no turn.
    if verdict.reason is Reason.ROBOTS_TXT and terms.action != "pass":
        if terms.pinned is not None:
            policy = Policy(origin=question.origin, document=terms.pinned)
            return Timing(verdict, terms, policy, terms.pinned)
        return Opened(verdict, terms)
    return Decided(verdict)


def begin_under(
    question: Question, terms: Terms, policy: Policy, now: float
) -> Judging | Comparing | Opened | Timing | Decided:
    """The first state of a check under a given policy, whatever its age."""
    state = begin(question, terms)
    return state.under(policy, now) if isinstance(state, Lookup | Overridden) else state


def judge_offline(
    question: Question,
    terms: Terms,
    policy: Policy,
    now: float,
    *,
    rules_of: Callable[[Document], Ruleset] | None = None,
    at_any_time: bool = False,
) -> Verdict:
    """Return the verdict under a given policy regardless of its age, without store or network
    access. Under a pin, the given policy is the site's own.

    `rules_of` gives the compiled rules of the policy's document; without it they are compiled here.
    `at_any_time` as in `Judging.next`.
    """
    rules_of = rules_of or partial(compiled, terms=terms, agent=question.agent)
    state = begin_under(question, terms, policy, now)
    if isinstance(state, Opened):
        state = state.next(policy, now)
    while not isinstance(state, Decided):
        rules = rules_of(state.document) if state.document is not None else None
        if isinstance(state, Judging):
            state = state.next(rules, now, at_any_time=at_any_time)
        else:
            state = state.next(rules, now)
    return state.verdict


def applied_policy(origin: Origin, own: Policy | None, terms: Terms) -> Policy | None:
    """Return the policy that applies to an origin: its own, with the pinned document if there is
    one."""
    if terms.pinned is None or (own is not None and own.is_pinned):
        return own
    return (own or Policy(origin=origin)).with_pinned(terms.pinned)


def _judging(
    question: Question, terms: Terms, own: Policy | None, now: float, *, renew: bool = False
) -> Judging:
    """Judge by the policy that applies. Without a pinned document, that is the given one."""
    policy = applied_policy(question.origin, own, terms)
    assert policy is not None
    document = _rules_document(policy, terms, now)
    return Judging(question, terms, policy, document, renew, own if terms.pinned else None)


def _rules_document(policy: Policy, terms: Terms, now: float) -> Document | None:
    """Return the document of a policy if its rules decide."""
    access, document = policy.access(now, terms.dialect)
    return document if access is Access.RULES else None


def compiled(document: Document, terms: Terms, agent: str) -> Ruleset:
    """Return the rules of a document under these terms, compiled for an agent."""
    return compile_rules(
        document.body, terms.dialect, agent, terms.matching.name, purpose_tokens=terms.tokens
    )


def read_url(url: str, *, escapes: bool = True) -> tuple[Origin, str] | Verdict:
    """Return the origin and target of a URL, or the verdict on a URL that has none.

    With `escapes`, characters outside ASCII become escapes, as every client sends them.
    """
    try:
        origin, target = split_url(url)
        return origin, as_uri(target, url) if escapes and not url.isascii() else target
    except NotGoverned as error:
        return Verdict(action=Action.PASS, reason=Reason.NOT_GOVERNED, detail=str(error))
    except MalformedURL as error:
        return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=str(error))
