"""Verdicts: a question in, an action and its reason out.

The audit log, Scrapy's stats, response headers and flow metadata use the same strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from robots_guard.decisions.access import Access, Failure, Scope
from robots_guard.decisions.freshness import RETRY_MIN
from robots_guard.decisions.pacing import (
    DelaySource,
    RequiredDelay,
    Turn,
    Wait,
    reopening,
    required_delay,
)
from robots_guard.decisions.policy import Document, FetchTrouble, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.site_settings import PolicySettings
from robots_guard.decisions.uses import PurposeRefusal, Uses, read_uses, refusal_of, relaxation
from robots_guard.origin import ROBOTS_TXT, Origin
from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.directives import Pace
from robots_guard.protocol.paths import Matching, malformed
from robots_guard.protocol.ruleset import Ruleset, Ruling
from robots_guard.protocol.signals.statement import Statement
from robots_guard.text import span

REPORT_ONLY = "report_only"  # in `Verdict.relaxed`
BY_OVERRIDE = "override="  # begins `Verdict.relaxed`, before the id of the override
REJUDGE_MIN = 30.0  # seconds until a request that a rule forbids is judged again at the earliest
#: The reason of a deferral, by the scope of the trouble.
REASONS = {
    Scope.SITE: Reason.UNREACHABLE,
    Scope.ROUTE: Reason.ROUTE_FAILED,
    Scope.FETCHER: Reason.FETCHER_FAILED,
}


class Action(StrEnum):
    """What the integration does with a request."""

    PASS = "pass"  # noqa: S105  (an action, not a password)
    DROP = "drop"
    DEFER = "defer"


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """The owner, reason and expiry (seconds since 1970) of an override; see `overrides`."""

    id: str
    owner: str
    reason: str
    expires: float


class Terms(PolicySettings, frozen=True, kw_only=True):
    """The operator's settings for judging questions.

    A setting that allows more than the default is named in each verdict that it changes. `override`
    is the override that sets these terms, if one does. `pinned` is the document by which it has
    requests judged, instead of the site's own robots.txt.
    """

    dialect: Dialect
    matching: Matching
    action: Literal["judge", "pass", "drop"] = "judge"  # the last two whatever the site's rules say
    override: Exemption | None = None
    pinned: Document | None = None


class Deferral(msgspec.Struct, frozen=True):
    """The first deferral of the same question: the id of its decision, and its time."""

    id: str
    since: float  # seconds since 1970


class Subresource(msgspec.Struct, frozen=True):
    """A part of a page that a browser loads: what it is for (Sec-Fetch-Dest), and the origin of the
    page if the browser demands that it may read it (CORS)."""

    destination: str
    origin: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May this be requested?

    `target` is the request target on the wire, one Latin-1 character per byte; `agent` the product
    token judged; `deferral` is set if the question was deferred before. The rest is for the record
    only: `led_by` is the URL of the judged request from which a component continued to this one (a
    download handler that follows redirects itself); `sent` says whether the request has already
    reached the site; `robots_txt_of` is set if the request is the guard's own: the origin whose
    robots.txt redirects here, or whose tdmrep.json this is; `subresource` is set if a refusal is
    answered with a placeholder.
    """

    origin: Origin
    target: str
    agent: str
    method: str = "GET"
    user_agent: str = ""
    client: str = ""
    deferral: Deferral | None = None
    led_by: str = ""
    sent: bool = False
    robots_txt_of: Origin | None = None
    subresource: Subresource | None = None

    @property
    def is_own(self) -> bool:
        """Whether the request is the guard's own."""
        return self.robots_txt_of is not None


class RuleRef(msgspec.Struct, frozen=True):
    """The deciding rule: its line number, the text of that line, and the User-agent values of its
    group."""

    line: int
    text: str
    group: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question.

    `until` (DEFER) is when to ask again, in seconds since 1970. With `delay` (PASS), the request
    needs the origin's turn before it is sent (`Guard.turn`).
    """

    action: Action
    reason: Reason
    rule: RuleRef | None = None
    group: str | None = None  # the group that applied, also when none of its rules did
    form: str | None = None  # the normal form in which the rule matched
    until: float | None = None
    relaxed: str | None = None  # the setting without which this would not have passed
    detail: str | None = None
    stale: bool = False  # judged by the last good document while the site is in trouble
    delay: RequiredDelay | None = None  # the delay that the site or the operator requires
    would: Action | None = None  # the action without report-only, the exemption or the pin
    uses: Uses | None = None  # the uses that the site's signals deny and allow, if they were read
    is_follow_only: bool = False  # the page may be used for its links only

    @property
    def is_only_reported(self) -> bool:
        """Whether the request passes only because nothing is refused (report-only)."""
        if self.would is None or self.reason is Reason.BYPASSED:
            return False
        return not (self.relaxed or "").startswith(BY_OVERRIDE)


class ResponseRef(msgspec.Struct, frozen=True, kw_only=True):
    """The response that a decision is about: its status, and the id of the decision on its
    request."""

    status: int
    request: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its circumstances, for the audit log and the integration. `turn` is the turn
    taken, if any."""

    id: str
    at: float  # seconds since 1970
    component: str
    question: Question
    verdict: Verdict
    policy: Policy | None = None
    dialect: str = ""
    matching: str = ""
    source: str = ""  # where the policy came from: memory, store, fetch; empty if none was needed
    elapsed: float = 0.0  # seconds from question to verdict
    override: Exemption | None = None  # the override that set the terms
    turn: Turn | None = None
    turn_taken_at: float = 0.0  # when it was requested, by the local clock, in seconds since 1970
    response: ResponseRef | None = None  # set if the decision is on a response
    purposes: tuple[str, ...] = ()  # the declared purposes, if the decision is on a response

    @property
    def placeholder(self) -> str | None:
        """What the placeholder stands for that answers a refused request; None if none does."""
        subresource = self.question.subresource
        if subresource is None or self.verdict.action is Action.PASS:
            return None
        return subresource.destination

    @property
    def has_escaped(self) -> bool:
        """Whether the request reached the site before it was judged, and is not allowed."""
        verdict = self.verdict
        return self.question.sent and (
            verdict.action is not Action.PASS or verdict.is_only_reported
        )

    @property
    def is_due(self) -> bool:
        """Whether the request may be sent now: it passes, and has its turn if it needs one."""
        verdict = self.verdict
        # Report-only: it never waits.
        needs_turn = verdict.delay is not None and not verdict.is_only_reported
        return verdict.action is Action.PASS and (not needs_turn or self.turn is not None)


def needs_no_policy(question: Question, terms: Terms) -> Verdict | None:
    """The verdict on a question that no robots.txt can change, or None."""
    if terms.matching.refuses_malformed and (fault := malformed(question.target)):
        return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=fault)
    if question.target == ROBOTS_TXT and terms.dialect.exempts_robots_txt:
        return Verdict(action=Action.PASS, reason=Reason.ROBOTS_TXT)
    if terms.action == "pass":
        return Verdict(
            action=Action.PASS, reason=Reason.BYPASSED, relaxed=f"{BY_OVERRIDE}{_id(terms)}"
        )
    if terms.action == "drop":
        return Verdict(action=Action.DROP, reason=Reason.BLOCKED)
    return None


def _id(terms: Terms) -> str:
    if terms.override:
        return terms.override.id
    return ""


def compared(verdict: Verdict, terms: Terms, judged: Verdict | None) -> Verdict:
    """Return a PASS that is due to an override, with what the site's own robots.txt says.

    `judged` is the verdict by that, or None if it is not known. Of an exempted request, it adds the
    action that would have been, and the rule behind it. A PASS by a pinned robots.txt has a rule
    of its own: it is relaxed if the site's own does not permit the request, and if that is not known.
    """
    if verdict.reason is Reason.BYPASSED:
        if judged is None:
            return verdict
        return msgspec.structs.replace(
            verdict,
            would=judged.action,
            rule=judged.rule,
            group=judged.group,
            form=judged.form,
            detail=judged.detail,
            stale=judged.stale,
        )
    if judged is not None and judged.action is Action.PASS:
        return verdict
    relaxed = f"{BY_OVERRIDE}{_id(terms)}"
    if judged is None:
        return msgspec.structs.replace(verdict, relaxed=verdict.relaxed or relaxed)
    detail = verdict.detail or f"the site's own robots.txt: {_own_words(judged)}"
    return msgspec.structs.replace(verdict, would=judged.action, relaxed=relaxed, detail=detail)


def _own_words(judged: Verdict) -> str:
    """Why a site's own robots.txt does not let a request pass."""
    if judged.rule is None:
        return judged.reason.value
    return f"line {judged.rule.line} says {judged.rule.text!r}"


def as_report_only(verdict: Verdict) -> Verdict:
    """Return the report-only form of a verdict: it passes, and `would` is the action otherwise taken."""
    if verdict.action is Action.PASS:
        return verdict
    return msgspec.structs.replace(
        verdict, action=Action.PASS, would=verdict.action, relaxed=REPORT_ONLY
    )


def deferred(why: str, now: float) -> Verdict:
    """The verdict if no policy was available in time.

    `on_unreachable` does not apply, because the site may be reachable.
    """
    return Verdict(
        action=Action.DEFER, reason=Reason.UNREACHABLE, until=now + RETRY_MIN, detail=why
    )


def judge(
    question: Question, policy: Policy, rules: Ruleset | None, terms: Terms, now: float
) -> Verdict:
    """Judge a question by a policy. `rules` is its document compiled for the question, or None if
    it has no rules.

    A signal of the policy can refuse a request that the rules allow, but it never permits a request
    that they forbid. Signals do not apply to the guard's own requests, which only find out what sites permit.
    """
    verdict = _by_access(question, policy, rules, terms, now)
    if question.is_own or verdict.action is not Action.PASS:
        return verdict
    if terms.purposes and terms.reads_signals:
        return _by_signals(verdict, question, policy, rules, terms, now)
    return verdict


def _by_access(
    question: Question, policy: Policy, rules: Ruleset | None, terms: Terms, now: float
) -> Verdict:
    access, document = policy.access(now, terms.dialect)
    stale = policy.trouble is not None and document is not None
    match access:
        case Access.RULES:
            assert rules is not None
            return _by_rules(question, policy, rules, terms, now, stale=stale)
        case Access.UNRESTRICTED:
            return _unrestricted(policy, document, terms, stale)
        case Access.RESTRICTED:
            return _restricted(document, terms, stale)
        case Access.UNREACHABLE:
            return _unreachable(policy, terms, now)


def _by_rules(
    question: Question, policy: Policy, rules: Ruleset, terms: Terms, now: float, *, stale: bool
) -> Verdict:
    origin = question.origin
    ruling = rules.judge(question.target, origin.host, origin.port, origin.scheme)
    verdict = Verdict(
        action=Action.PASS if ruling.allowed else Action.DROP,
        reason=_reason(ruling),
        rule=_rule_ref(ruling),
        group=ruling.group,
        form=ruling.form,
        detail=_detail(ruling),
        stale=stale,
    )
    if verdict.action is Action.DROP and terms.on_disallowed == "defer":
        return _defer_disallowed(verdict, question, policy, terms, now)
    return verdict


def policy_statements(target: str, policy: Policy, rules: Ruleset | None) -> tuple[Statement, ...]:
    """The statements of an origin's policy about one target."""
    stated: tuple[Statement, ...] = ()
    if rules is not None:
        stated = rules.statements(target)
    return stated + policy.reservation_statements(target)


def _by_signals(
    verdict: Verdict,
    question: Question,
    policy: Policy,
    rules: Ruleset | None,
    terms: Terms,
    now: float,
) -> Verdict:
    """Refuse a request if the policy states that a declared purpose is not permitted."""
    statements = policy_statements(question.target, policy, rules)
    return judge_before_request(verdict, statements, question.agent, terms, now)


def judge_before_request(
    verdict: Verdict, statements: Sequence[Statement], agent: str, terms: Terms, now: float
) -> Verdict:
    """Refuse a permitted request if statements that are known before it deny a declared purpose.

    A purpose that is unknown is not refused yet, because the response can still permit it.
    """
    is_exempt = terms.action == "pass"
    if not statements or is_exempt or verdict.action is not Action.PASS:
        return verdict
    uses = read_uses(statements, agent, terms, now)
    refusal = refusal_of(uses, terms, is_final=False)
    if refusal is None:
        relaxed = relaxation(statements, agent, terms, now)
        return msgspec.structs.replace(verdict, relaxed=relaxed) if relaxed else verdict
    if not terms.enforces_signals:
        return msgspec.structs.replace(verdict, relaxed=f"signals={terms.signals}", uses=uses)
    return refused_by_signal(verdict, refusal, uses)


def refused_by_signal(verdict: Verdict, refusal: PurposeRefusal, uses: Uses) -> Verdict:
    """Turn a PASS into the refusal of a purpose."""
    rule = None
    statement = refusal.statement
    if statement is not None and statement.line is not None:
        rule = RuleRef(statement.line, statement.raw, verdict.group or "")
    return msgspec.structs.replace(
        verdict,
        action=Action.DROP,
        reason=Reason.USAGE_RESERVED,
        rule=rule,
        form=None,
        detail=refusal.detail,
        uses=uses,
    )


def _defer_disallowed(
    verdict: Verdict,
    question: Question,
    policy: Policy,
    terms: Terms,
    now: float,
) -> Verdict:
    """Defer a disallowed request until robots.txt is renewed, for at most `max_defer` in all.

    A deferral that began later than now shows that the clock was set back: it counts from now.
    """
    since = now
    if question.deferral:
        since = min(question.deferral.since, now)
    if not now < since + terms.max_defer:
        return verdict
    renewed = max(policy.expires_at(terms.dialect), now + REJUDGE_MIN)
    return msgspec.structs.replace(
        verdict, action=Action.DEFER, until=min(renewed, since + terms.max_defer)
    )


def paced(
    verdict: Verdict,
    rules: Ruleset | None,
    terms: Terms,
    now: float,
    *,
    is_paused: bool = False,
    at_any_time: bool = False,
) -> Verdict:
    """Add the visiting times and the delay that apply to a verdict.

    `is_paused`: the origin has asked for a pause. `at_any_time`: the question is not about now, so
    visiting times do not apply.
    """
    pace = rules.pace if rules is not None else None
    if verdict.action is not Action.PASS or verdict.reason is Reason.ROBOTS_TXT:
        return verdict
    if pace is None and not terms.min_delay and not is_paused:  # the usual case
        return verdict
    opening = None
    if not at_any_time:
        opening = reopening(pace, now)
    if opening is not None and terms.visit_time == "keep":
        line, opens = opening
        rule = RuleRef(line.number, line.text, verdict.group or "")
        return Verdict(
            action=Action.DEFER,
            reason=Reason.VISIT_TIME,
            rule=rule,
            group=verdict.group,
            until=opens,
        )
    if opening is not None:
        verdict = msgspec.structs.replace(verdict, relaxed="visit_time=ignore")
    return with_required_delay(verdict, rules, terms, now, is_paused=is_paused)


def with_required_delay(
    verdict: Verdict, rules: Ruleset | None, terms: Terms, now: float, *, is_paused: bool = False
) -> Verdict:
    """Add the required delay to a PASS. `is_paused`: the origin has asked for a pause."""
    pace = rules.pace if rules is not None else None
    if pace is None and not terms.min_delay and not is_paused:
        return verdict
    required = required_delay(pace, terms.min_delay, terms.max_delay, now)
    if required is None and is_paused:
        required = RequiredDelay(by=DelaySource.RETRY_AFTER, seconds=0.0)
    relaxed = verdict.relaxed
    if required is not None and required.bounded:
        relaxed = f"max_delay={terms.max_delay:g}"
    detail = verdict.detail or _describe_unreadable(pace)
    return msgspec.structs.replace(verdict, delay=required, relaxed=relaxed, detail=detail)


def _describe_unreadable(pace: Pace | None) -> str | None:
    """The first line on delays or visiting times that is unreadable: it is ignored, and that is
    recorded."""
    if pace is None or not pace.odd:
        return None
    first = pace.odd[0]
    return f"line {first.number} is unreadable and ignored: {first.text}"


def not_yet(verdict: Verdict, wait: Wait, now: float) -> Verdict:
    """The verdict on a request that passes, but must wait for its turn."""
    required = verdict.delay
    assert required is not None
    by = DelaySource.RETRY_AFTER if wait.by_retry_after else required.by
    rule = None
    if required.line is not None and by is required.by:
        rule = RuleRef(required.line, required.text, verdict.group or "")
    return Verdict(
        action=Action.DEFER,
        reason=Reason(by.value),
        rule=rule,
        group=verdict.group,
        until=now + wait.seconds,
        relaxed=verdict.relaxed,
        stale=verdict.stale,
        delay=required,
    )


def _reason(ruling: Ruling) -> Reason:
    if ruling.allowed:
        if ruling.exempt:
            return Reason.ROBOTS_TXT
        return Reason.ALLOWED
    if ruling.mirror_of:
        return Reason.MIRROR
    return Reason.DISALLOWED


def _rule_ref(ruling: Ruling) -> RuleRef | None:
    if ruling.rule is None:
        return None
    return RuleRef(ruling.rule.line, ruling.rule.text, ruling.group or "")


def _detail(ruling: Ruling) -> str | None:
    if ruling.mirror_of:
        return f"main host {ruling.mirror_of}"
    if ruling.ambiguous:
        return f"ambiguous={ruling.ambiguous}"
    if ruling.disagree:
        return f"disagree={','.join(ruling.disagree)}"
    return None


def _unrestricted(policy: Policy, document: Document | None, terms: Terms, stale: bool) -> Verdict:
    """Pass because there is no file.

    If the dialect treats another outcome as no file, which is the operator's choice, it is named as
    the reason in `relaxed`.
    """
    status = document.status if document else None
    detail = None
    if status in (401, 403):
        detail = f"robots.txt answered {status}"
    elif document is None:
        detail = _describe(policy.trouble)
    relaxed = f"dialect={terms.dialect.name}" if detail else None
    return Verdict(
        action=Action.PASS, reason=Reason.UNRESTRICTED, relaxed=relaxed, detail=detail, stale=stale
    )


def _restricted(document: Document | None, terms: Terms, stale: bool) -> Verdict:
    detail = f"robots.txt answered {document.status}" if document else None
    if terms.on_restricted == "allow":
        return Verdict(
            action=Action.PASS,
            reason=Reason.RESTRICTED,
            relaxed="on_restricted=allow",
            detail=detail,
            stale=stale,
        )
    return Verdict(action=Action.DROP, reason=Reason.RESTRICTED, detail=detail, stale=stale)


def _unreachable(policy: Policy, terms: Terms, now: float) -> Verdict:
    trouble = policy.trouble
    reason = Reason.UNREACHABLE
    if trouble is not None and trouble.failure is not Failure.REDIRECT_DISALLOWED:
        reason = REASONS[trouble.scope]
    detail = _describe(trouble)
    if terms.on_unreachable == "allow":
        return Verdict(
            action=Action.PASS,
            reason=reason,
            relaxed="on_unreachable=allow",
            detail=detail,
        )
    if terms.on_unreachable == "defer" and trouble:
        if now - trouble.since < terms.max_defer:
            until = min(trouble.next_try, trouble.since + terms.max_defer)
            return Verdict(action=Action.DEFER, reason=reason, until=until, detail=detail)
        detail = f"{detail}; for {span(now - trouble.since)}, longer than max_defer"
    return Verdict(action=Action.DROP, reason=reason, detail=detail)


def _describe(trouble: FetchTrouble | None) -> str | None:
    if trouble is None:
        return None
    if trouble.status is None:
        return f"{trouble.failure}: {trouble.detail}{trouble.by}"
    return f"robots.txt answered {trouble.status}{trouble.by}"
