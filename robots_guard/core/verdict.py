"""Verdicts: a question in, an action and its reason out.

The same strings stand in the journal, in Scrapy's stats, in response headers and in flow metadata.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from robots_guard.core.access import REDIRECT_LIMITS, Access
from robots_guard.core.freshness import RETRY_MIN
from robots_guard.core.policy import Document, Policy, Trouble
from robots_guard.errors import SettingsError
from robots_guard.origin import Origin
from robots_guard.rep.dialect import Dialect
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
    DISALLOWED = "disallowed"  # a rule forbids it
    MIRROR = "mirror"  # the Host directive names another main host
    RESTRICTED = "restricted"  # 401 or 403 on robots.txt
    UNREACHABLE = "unreachable"  # robots.txt cannot be had
    MALFORMED_TARGET = "malformed-target"
    AMBIGUOUS_AUTHORITY = "ambiguous-authority"
    NOT_HTTP = "not-http"  # bytes in a tunnel that are no HTTP request
    INTERNAL_ERROR = "internal-error"  # our own fault: refused all the same


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator wants questions judged. Choices that open more than the default are named on each
    verdict they change."""

    dialect: Dialect
    matching: Matching
    on_restricted: str = "drop"  # drop | allow
    on_unreachable: str = "defer"  # defer | drop | allow
    on_redirect_limit: str = "unreachable"  # unreachable | allow
    max_defer: float = 900.0  # seconds of trouble after which a deferral becomes a drop

    def __post_init__(self) -> None:
        _one_of("on_restricted", self.on_restricted, ("drop", "allow"))
        _one_of("on_unreachable", self.on_unreachable, ("defer", "drop", "allow"))
        _one_of("on_redirect_limit", self.on_redirect_limit, ("unreachable", "allow"))


def _one_of(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"{setting} = {value!r} is not known: use one of {', '.join(choices)}")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May this be requested? `target` is the octets on the wire, one Latin-1 character each; `agent` the
    product token judged. The rest is kept for the record only."""

    origin: Origin
    target: str
    agent: str
    method: str = "GET"
    user_agent: str = ""
    client: str = ""


class RuleRef(msgspec.Struct, frozen=True):
    """The deciding rule: its line in the file, the line's text, the User-agent values of its group."""

    line: int
    text: str
    group: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `until` (DEFER) is when to ask again, in seconds since 1970."""

    action: Action
    reason: Reason
    rule: RuleRef | None = None
    group: str | None = None  # the group that applied, also when none of its rules did
    form: str | None = None  # the normal form under which the rule matched
    until: float | None = None
    relaxed: str | None = None  # the setting without which this would not have passed
    detail: str | None = None
    stale: bool = False  # judged by the last good document while the site is in trouble


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its circumstances: what the journal keeps and a door acts on."""

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


def needs_no_policy(question: Question, terms: Terms) -> Verdict | None:
    """The verdict on what no robots.txt can change, or None."""
    if terms.matching.refuses_malformed and (fault := malformed(question.target)):
        return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=fault)
    if question.target == "/robots.txt" and terms.dialect.exempts_robots_txt:
        return Verdict(action=Action.PASS, reason=Reason.ROBOTS_TXT)
    return None


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
            return _by_rules(question, rules, stale)
        case Access.UNRESTRICTED:
            return _unrestricted(policy, document, terms, stale)
        case Access.RESTRICTED:
            return _restricted(document, terms, stale)
        case Access.UNREACHABLE:
            return _unreachable(policy, terms, now)


def _by_rules(question: Question, rules: Ruleset, stale: bool) -> Verdict:
    origin = question.origin
    ruling = rules.judge(question.target, origin.host, origin.port, origin.scheme)
    return Verdict(
        action=Action.PASS if ruling.allowed else Action.DROP,
        reason=_reason(ruling),
        rule=_rule_ref(ruling),
        group=ruling.group,
        form=ruling.form,
        detail=_detail(ruling),
        stale=stale,
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
    if terms.on_unreachable == "defer" and trouble and now - trouble.since < terms.max_defer:
        until = min(trouble.next_try, trouble.since + terms.max_defer)
        return Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=until, detail=detail)
    return Verdict(action=Action.DROP, reason=Reason.UNREACHABLE, detail=detail)


def _told(trouble: Trouble | None) -> str | None:
    if trouble is None:
        return None
    return f"{trouble.failure}: {trouble.detail}" if trouble.status is None else f"robots.txt answered {trouble.status}"
