"""Verdicts: a question in, an action and its reason out.

The same strings stand in the journal, in Scrapy's stats, in response headers and in flow metadata.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from robots_guard.core.access import REDIRECT_LIMITS, Access
from robots_guard.core.freshness import RETRY_MIN
from robots_guard.core.pacing import Demand, Pacer, Turn, closed, demand
from robots_guard.core.policy import Document, Policy, Trouble
from robots_guard.errors import SettingsError
from robots_guard.origin import ROBOTS_TXT, Origin
from robots_guard.plain import span
from robots_guard.rep.dialect import Dialect
from robots_guard.rep.pace import Pace
from robots_guard.rep.paths import Matching, malformed
from robots_guard.rep.ruleset import Ruleset, Ruling


class Action(StrEnum):
    """What the door does with a request."""

    PASS = "pass"  # noqa: S105  (an action, no password)
    DROP = "drop"
    DEFER = "defer"


class Reason(StrEnum):
    """Why. A closed list."""

    ALLOWED = "allowed"  # the rules admit it, or none speaks of it
    UNRESTRICTED = "unrestricted"  # the site has no robots.txt
    ROBOTS_TXT = "robots-txt"  # the exact path /robots.txt, always open (RFC 9309 section 2.2.2)
    NOT_GOVERNED = "not-governed"  # not http(s)
    BYPASSED = "bypassed"  # the operator exempted this request
    BLOCKED = "blocked"  # the operator wants nothing of this origin
    DISALLOWED = "disallowed"  # a rule forbids it
    MIRROR = "mirror"  # the Host directive names another main host
    RESTRICTED = "restricted"  # 401 or 403 on robots.txt
    UNREACHABLE = "unreachable"  # robots.txt cannot be had
    CRAWL_DELAY = Pacer.CRAWL_DELAY.value  # allowed, but not yet: the last request was too short a while ago
    REQUEST_RATE = Pacer.REQUEST_RATE.value
    VISIT_TIME = Pacer.VISIT_TIME.value  # allowed, but not at this time of the day
    RETRY_AFTER = Pacer.RETRY_AFTER.value  # allowed, but the origin has asked for a pause
    MIN_DELAY = Pacer.MIN_DELAY.value  # allowed, but the operator wants longer pauses
    MALFORMED_TARGET = "malformed-target"
    AMBIGUOUS_AUTHORITY = "ambiguous-authority"
    DESTINATION_REFUSED = "destination-refused"  # an address or port the operator has not allowed
    NOT_INTERCEPTED = "not-intercepted"  # TLS that its client lets nobody look into
    NOT_HTTP = "not-http"  # bytes in a tunnel that are no HTTP request
    NOT_JUDGED = "not-judged"  # stopped at the write: not the request that was let pass
    UNRECORDED = "unrecorded"  # allowed, but the journal that must tell of it cannot be written
    INTERNAL_ERROR = "internal-error"  # our own fault: refused all the same


MAX_DELAY = 300.0  # seconds; what is longer is a mistake, or a wish that a Disallow expresses better


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """Who has made an exception, why and until when (seconds since 1970); see `overrides`."""

    id: str
    owner: str
    reason: str
    expires: float


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator wants questions judged. Choices that open more than the default are named on each
    verdict they change. `override` is the exception that these are the terms of, if they are one's."""

    dialect: Dialect
    matching: Matching
    on_restricted: str = "drop"  # drop | allow
    on_unreachable: str = "defer"  # defer | drop | allow
    on_redirect_limit: str = "unreachable"  # unreachable | allow
    on_disallowed: str = "drop"  # drop | defer
    max_defer: float = 900.0  # seconds of trouble, or of being set aside, after which a deferral becomes a drop
    min_delay: float = 0.0  # seconds between two requests to an origin, at least
    max_delay: float = MAX_DELAY  # seconds of what a file may ask for; 0: none of it is kept
    visit_time: str = "keep"  # keep | ignore
    action: str = "judge"  # judge | pass | drop: whatever the site says
    override: Exemption | None = None

    def __post_init__(self) -> None:
        _one_of("on_disallowed", self.on_disallowed, ("drop", "defer"))
        _one_of("visit_time", self.visit_time, ("keep", "ignore"))
        _one_of("on_restricted", self.on_restricted, ("drop", "allow"))
        _one_of("on_unreachable", self.on_unreachable, ("defer", "drop", "allow"))
        _one_of("on_redirect_limit", self.on_redirect_limit, ("unreachable", "allow"))


def _one_of(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"{setting} = {value!r} is not known: use one of {', '.join(choices)}")


class Deferral(msgspec.Struct, frozen=True):
    """An earlier answer to the same question: the id of the first decision that put it off, and when that was."""

    id: str
    since: float  # seconds since 1970


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May this be requested? `target` is the octets on the wire, one Latin-1 character each; `agent` the
    product token judged; `deferral` is there if the question was put off before. The rest is kept for the record
    only: `led_by` is the URL of the judged request from which a component went on to this one (a download handler that
    follows redirects itself); `sent` says whether the request has reached the site already; `robots_txt_of` is the
    origin whose robots.txt redirects here, if the request is the guard's own."""

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


class RuleRef(msgspec.Struct, frozen=True):
    """The deciding rule: its line in the file, the line's text, the User-agent values of its group."""

    line: int
    text: str
    group: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `until` (DEFER) is when to ask again, in seconds since 1970. `pace` (PASS): ask for the origin's
    turn before the request goes (`Guard.turn`)."""

    action: Action
    reason: Reason
    rule: RuleRef | None = None
    group: str | None = None  # the group that applied, also when none of its rules did
    form: str | None = None  # the normal form under which the rule matched
    until: float | None = None
    relaxed: str | None = None  # the setting without which this would not have passed
    detail: str | None = None
    stale: bool = False  # judged by the last good document while the site is in trouble
    pace: Demand | None = None  # what the site, or the operator, asks for between two requests
    would: Action | None = None  # what this would be, were it not only reported


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its circumstances: what the journal keeps and a door acts on. `turn` is the origin's, taken."""

    id: str
    at: float  # seconds since 1970
    door: str
    question: Question
    verdict: Verdict
    policy: Policy | None = None
    dialect: str = ""
    matching: str = ""
    source: str = ""  # where the policy came from: memory, store, fetch, or nothing was needed
    elapsed: float = 0.0  # seconds from question to verdict
    override: Exemption | None = None  # whose terms it was judged under
    turn: Turn | None = None
    turn_taken_at: float = 0.0  # when it was asked for, by our own clock, in seconds since 1970
    waited: float = 0.0  # seconds for the turn

    @property
    def has_escaped(self) -> bool:
        """Whether the request had reached the site before it was judged, and is not allowed."""
        verdict = self.verdict
        return self.question.sent and (verdict.action is not Action.PASS or verdict.would is not None)

    @property
    def is_due(self) -> bool:
        """Whether the request may be sent now: let pass, and its turn is here if it needs one."""
        verdict = self.verdict
        needs_none = verdict.pace is None or verdict.would is not None  # what is only reported waits for nothing
        return verdict.action is Action.PASS and (needs_none or self.turn is not None)


def needs_no_policy(question: Question, terms: Terms) -> Verdict | None:
    """The verdict on what no robots.txt can change, or None."""
    if terms.matching.refuses_malformed and (fault := malformed(question.target)):
        return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=fault)
    if question.target == ROBOTS_TXT and terms.dialect.exempts_robots_txt:
        return Verdict(action=Action.PASS, reason=Reason.ROBOTS_TXT)
    if terms.action == "pass":
        return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=f"override={_id(terms)}")
    if terms.action == "drop":
        return Verdict(action=Action.DROP, reason=Reason.BLOCKED)
    return None


def _id(terms: Terms) -> str:
    return terms.override.id if terms.override else ""


def reported(verdict: Verdict) -> Verdict:
    """The verdict where nothing is refused, and only said what would be."""
    if verdict.action is Action.PASS:
        return verdict
    return msgspec.structs.replace(verdict, action=Action.PASS, would=verdict.action, relaxed="mode=report")


def deferred(why: str, now: float) -> Verdict:
    """The verdict on a question that found no policy in time, whatever `on_unreachable` says: the site may be well."""
    return Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=now + RETRY_MIN, detail=why)


def judge(question: Question, policy: Policy, rules: Ruleset | None, terms: Terms, now: float) -> Verdict:
    """The verdict by a policy. `rules` is its document compiled for the question; None if it has no rules."""
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


def _by_rules(question: Question, policy: Policy, rules: Ruleset, terms: Terms, now: float, *, stale: bool) -> Verdict:
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
        return _set_aside(verdict, question, policy, terms, now)
    return verdict


def _set_aside(verdict: Verdict, question: Question, policy: Policy, terms: Terms, now: float) -> Verdict:
    """Not now, but perhaps by the site's next robots.txt; dropped in the end."""
    since = question.deferral.since if question.deferral else now
    if not now < since + terms.max_defer:
        return verdict
    renewed = max(policy.expires_at(terms.dialect), now + RETRY_MIN)
    return msgspec.structs.replace(verdict, action=Action.DEFER, until=min(renewed, since + terms.max_defer))


def paced(
    verdict: Verdict,
    rules: Ruleset | None,
    terms: Terms,
    now: float,
    *,
    held_off: bool = False,
    at_any_time: bool = False,
) -> Verdict:
    """The verdict with what binds it to a time. `held_off`: the origin has asked for a pause; `at_any_time`: whether it
    is visited now is not the question."""
    pace = rules.pace if rules is not None else None
    if verdict.action is not Action.PASS or verdict.reason is Reason.ROBOTS_TXT:
        return verdict
    if pace is None and not terms.min_delay and not held_off:  # as with most sites
        return verdict
    shut = None if at_any_time else closed(pace, now)
    if shut is not None and terms.visit_time == "keep":
        line, opens = shut
        rule = RuleRef(line.number, line.text, verdict.group or "")
        return Verdict(action=Action.DEFER, reason=Reason.VISIT_TIME, rule=rule, group=verdict.group, until=opens)
    if shut is not None:
        verdict = msgspec.structs.replace(verdict, relaxed="visit_time=ignore")
    return taking_turns(verdict, rules, terms, now, held_off=held_off)


def taking_turns(
    verdict: Verdict, rules: Ruleset | None, terms: Terms, now: float, *, held_off: bool = False
) -> Verdict:
    """A PASS with the required delay between requests. `held_off`: the origin has asked for a pause."""
    pace = rules.pace if rules is not None else None
    if pace is None and not terms.min_delay and not held_off:
        return verdict
    asked = demand(pace, terms.min_delay, terms.max_delay, now)
    if asked is None and held_off:
        asked = Demand(by=Pacer.RETRY_AFTER, seconds=0.0)
    relaxed = verdict.relaxed
    if asked is not None and asked.bounded:
        relaxed = f"max_delay={terms.max_delay:g}"
    return msgspec.structs.replace(verdict, pace=asked, relaxed=relaxed, detail=verdict.detail or _odd(pace))


def _odd(pace: Pace | None) -> str | None:
    """What the file says of time that nobody can read: it is not kept, and that is recorded."""
    if pace is None or not pace.odd:
        return None
    first = pace.odd[0]
    return f"line {first.number} cannot be read and is not kept: {first.text}"


def not_yet(verdict: Verdict, turn: Turn, now: float) -> Verdict:
    """The verdict on a request that was let pass, whose turn it is not."""
    asked = verdict.pace
    assert asked is not None
    by = Pacer.RETRY_AFTER if turn.by_retry_after else asked.by
    rule = RuleRef(asked.line, asked.text, verdict.group or "") if asked.line is not None and by is asked.by else None
    return Verdict(
        action=Action.DEFER,
        reason=Reason(by.value),
        rule=rule,
        group=verdict.group,
        until=now + turn.wait,
        relaxed=verdict.relaxed,
        stale=verdict.stale,
        pace=asked,
    )


def _reason(ruling: Ruling) -> Reason:
    if ruling.allowed:
        return Reason.ROBOTS_TXT if ruling.exempt else Reason.ALLOWED
    return Reason.MIRROR if ruling.mirror_of else Reason.DISALLOWED


def _rule_ref(ruling: Ruling) -> RuleRef | None:
    if ruling.rule is None:
        return None
    return RuleRef(ruling.rule.line, ruling.rule.text, ruling.group or "")


def _detail(ruling: Ruling) -> str | None:
    if ruling.mirror_of:
        return f"main host {ruling.mirror_of}"
    if ruling.ambiguous:
        return f"ambiguous={ruling.ambiguous}"
    return f"disagree={','.join(ruling.disagree)}" if ruling.disagree else None


def _unrestricted(policy: Policy, document: Document | None, terms: Terms, stale: bool) -> Verdict:
    """No file; or a dialect that takes for none what is something else by the others, which is a choice."""
    status = document.status if document else None
    if status in (401, 403):
        detail: str | None = f"robots.txt answered {status}"
    else:
        detail = _told(policy.trouble) if document is None else None
    relaxed = f"dialect={terms.dialect.name}" if detail else None
    return Verdict(action=Action.PASS, reason=Reason.UNRESTRICTED, relaxed=relaxed, detail=detail, stale=stale)


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
    detail = _told(trouble)
    if terms.on_redirect_limit == "allow" and trouble and trouble.failure in REDIRECT_LIMITS:
        return Verdict(action=Action.PASS, reason=Reason.UNREACHABLE, relaxed="on_redirect_limit=allow", detail=detail)
    if terms.on_unreachable == "allow":
        return Verdict(action=Action.PASS, reason=Reason.UNREACHABLE, relaxed="on_unreachable=allow", detail=detail)
    if terms.on_unreachable == "defer" and trouble:
        if now - trouble.since < terms.max_defer:
            until = min(trouble.next_try, trouble.since + terms.max_defer)
            return Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=until, detail=detail)
        detail = f"{detail}; so for {span(now - trouble.since)}, longer than max_defer"
    return Verdict(action=Action.DROP, reason=Reason.UNREACHABLE, detail=detail)


def _told(trouble: Trouble | None) -> str | None:
    if trouble is None:
        return None
    return f"{trouble.failure}: {trouble.detail}" if trouble.status is None else f"robots.txt answered {trouble.status}"
