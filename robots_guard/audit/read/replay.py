"""Replay of a decision: the same question is judged again, with the same document and settings.

Invariant: the recorded verdict is used only for comparison. What a record does not contain (a
redacted query, the state of the turns) is reported as a caveat, never guessed.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.privacy import REDACTED
from robots_guard.audit.record import EvidenceItem, Record, SignalsRecord
from robots_guard.decisions import check
from robots_guard.decisions.access import Failure, Scope
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.component import PAYING
from robots_guard.decisions.freshness import RETRY_MIN
from robots_guard.decisions.overrides import parse
from robots_guard.decisions.page_dialects import PAGE_DIALECTS
from robots_guard.decisions.policy import PINNED, Document, FetchTrouble, Policy, Reservations
from robots_guard.decisions.reasons import Comparison, Reason, meaning_of
from robots_guard.decisions.response import ResponseHead, judge_response
from robots_guard.decisions.verdict import (
    BY_OVERRIDE,
    REASONS,
    Deferral,
    Question,
    Terms,
    Verdict,
    as_report_only,
)
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, origin_of, split_url
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.signals.statement import RAW_CAP, Place, Statement
from robots_guard.protocol.signals.tdmrep import RESERVATION

#: A caveat of a decision to wait for a turn.
TURN_NOT_COMPARED = (
    "the request passed but had to wait for its turn: the delay is compared, the turn is not"
)
_TERMS = {field.name: field.type for field in msgspec.structs.fields(Terms)}
_ESCAPED = re.compile("%(?:[01][0-9A-F]|20|7F|[89A-F][0-9A-F])")
#: The reasons of verdicts that depend on the target, and not on the origin alone.
_BY_TARGET = frozenset(
    (
        Reason.ALLOWED,
        Reason.DISALLOWED,
        Reason.USAGE_RESERVED,
        Reason.VISIT_TIME,
        Reason.BYPASSED,
    )
)
_COMPARED = ("action", "reason", "rule", "line", "group", "form", "would")


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded decision with what it was judged by: the document, its writer's settings, and the
    text of the overrides that were in force, if it is known."""

    record: Record | SignalsRecord
    settings: dict[str, str]
    document: bytes | None = None
    overrides: str | None = None


class Replayed(NamedTuple):
    """The new verdict, how it differs from the recorded one, and what could not be replayed."""

    verdict: Verdict
    differences: list[str]
    caveats: list[str]


def is_replayable(record: Record | SignalsRecord) -> bool:
    """Whether a decision depends on what the site states, so that it can be judged again."""
    return meaning_of(record.reason).replay is not Comparison.NOTHING and not is_not_compared(
        record
    )


def replay(judgement: Judgement, now: float | None = None) -> Replayed:
    """Replay a decision.

    `now`, if given, is the present time in seconds since 1970. A caveat then says whether a date of
    `unavailable_after` has passed since the decision. Raises SettingsError if that is not possible.
    """
    record = judgement.record
    if not is_replayable(record):
        raise SettingsError(
            f"{record.id} was not judged by a robots.txt ({record.reason}): there is nothing to replay"
        )
    if isinstance(record, SignalsRecord):
        return _replay_response(judgement, record, now)
    _check_document(record, judgement.document)
    now = _seconds(record.at)
    terms = _with_override(_terms(record, judgement.settings), judgement)
    question = _question(record, terms, now)
    policy = _policy(record, question.origin, judgement.document or b"", now)
    is_report_only = judgement.settings.get("report_only") == "True" and not question.is_own

    def judged(target: str) -> Verdict:
        asked = msgspec.structs.replace(question, target=target)
        found = check.judge_offline(asked, terms, policy, now)
        return as_report_only(found) if is_report_only else found

    verdict = judged(question.target)
    differences, caveats = _differences(record, verdict), _caveats(judgement)
    if differences and (raw := _with_raw_bytes(question.target)) != question.target:
        # Records escape each such byte, so they do not tell whether it was sent escaped.
        other = judged(raw)
        if not _differences(record, other):
            verdict, differences = other, []
    if record.reason == Reason.UNREACHABLE and record.sha256 is None and record.failure is None:
        differences = []
        caveats.append(
            "the request was deferred before any robots.txt was known, so there is nothing to judge it by"
        )
    if differences and _depends_on_hidden_part(judgement, verdict):
        differences = []
        caveats.append(
            f"it depends on the part of the URL that was not recorded: the recorded part is {verdict.reason}"
        )
    return Replayed(verdict, differences, caveats)


def is_not_compared(record: Record | SignalsRecord) -> bool:
    """Whether the request was exempted, and its record does not say what the robots.txt would have
    said: none was known, or the exemption was no override."""
    return _is_exempted(record) and (isinstance(record, SignalsRecord) or record.would is None)


def _is_by_pin(record: Record | SignalsRecord) -> bool:
    """Whether a request was permitted by a pinned robots.txt. `would` is then what the site's own
    would have said, which the record does not have."""
    is_pinned = isinstance(record, Record) and record.via == PINNED
    return is_pinned and (record.relaxed or "").startswith(BY_OVERRIDE)


def _is_exempted(record: Record | SignalsRecord) -> bool:
    return record.reason == Reason.BYPASSED


def _with_override(terms: Terms, judgement: Judgement) -> Terms:
    """The terms as the override of the decision sets them, if its text is known. Raises
    SettingsError."""
    record = judgement.record
    if record.override is None or judgement.overrides is None:
        return terms
    try:
        found = _overrides_in(judgement.overrides, terms)
        origin = origin_of(record.origin)
    except (MalformedURL, NotGoverned, RecursionError) as error:
        raise SettingsError(f"the override of {record.id} cannot be read: {error}") from error
    return found.terms(origin, terms, _seconds(record.at))


_overrides_in = lru_cache(maxsize=8)(parse)  # most decisions of a bundle have the same overrides


def _replay_response(judgement: Judgement, record: SignalsRecord, today: float | None) -> Replayed:
    """Judge a response again by its recorded statements."""
    terms = msgspec.structs.replace(
        _terms_of(record.id, judgement.settings), page_dialect=_page_dialect(record)
    )
    statements = [_statement(item) for item in record.evidence]
    terms = _with_override(terms, judgement)
    verdict = judge_response(
        statements,
        ResponseHead(status=record.status, method=record.method),
        record.agent,
        terms,
        _seconds(record.at),
        is_incomplete=record.incomplete,
        client_pays=record.component in PAYING,
        can_use_links_only=record.follow_only,
    )
    if judgement.settings.get("report_only") == "True":  # settings are recorded as text
        verdict = as_report_only(verdict)
    caveats = _caveats_of_uses(record, today) + _caveats_of_override(judgement)
    return Replayed(verdict, _differences_of_uses(record, verdict), caveats)


def _page_dialect(record: SignalsRecord) -> Any:
    if record.dialect not in PAGE_DIALECTS:
        raise SettingsError(f"{record.id} has an unknown page dialect: {record.dialect[:40]!r}")
    return record.dialect


def _statement(item: EvidenceItem) -> Statement:
    """A recorded statement. Raises SettingsError."""
    values = {
        name: getattr(item, name)
        for name in ("signal", "rule", "value", "raw", "agent", "line", "flags")
    }
    try:
        return msgspec.convert(values | {"place": item.where}, Statement)
    except msgspec.ValidationError as error:
        raise SettingsError(f"a recorded statement cannot be read: {error}") from error


def _differences_of_uses(record: SignalsRecord, verdict: Verdict) -> list[str]:
    uses = verdict.uses
    denied = sorted(use for use, state in record.uses.items() if state == "deny")
    pairs = (
        ("action", record.action, verdict.action.value),
        ("reason", record.reason, verdict.reason.value),
        ("denied", denied, uses.denied if uses else []),
        ("would", record.would, verdict.would and verdict.would.value),
    )
    return [f"{name}: recorded {was!r}, now {now!r}" for name, was, now in pairs if was != now]


def _caveats_of_uses(record: SignalsRecord, today: float | None) -> list[str]:
    caveats = []
    lapse = _seconds(record.unavailable_after)
    if today is not None and lapse and _seconds(record.at) < lapse <= today:
        caveats.append(
            f"since {record.unavailable_after} (unavailable_after), after the decision, the site no"
            " longer permits the use of the content"
        )
    if record.incomplete:
        caveats.append("part of the page was not read")
    return caveats


def judge_by(record: Record, settings: dict[str, str], policy: Policy, now: float) -> Verdict:
    """The verdict on a recorded question at `now`, under another policy and its writer's settings.

    Raises SettingsError if the question or the settings cannot be read.
    """
    terms = _terms(record, settings)
    question = msgspec.structs.replace(_question(record, terms, now), deferral=None)
    return check.judge_offline(question, terms, policy, now)


def _caveats_of_override(judgement: Judgement) -> list[str]:
    override = judgement.record.override
    if override is None:
        return []
    if _is_exempted(judgement.record):
        return [
            f"override {override} exempted the request: what is replayed is what the robots.txt would"
            " have said"
        ]
    caveats = []
    if _is_by_pin(judgement.record) and judgement.record.would is not None:
        caveats.append(
            f"override {override} has pinned the robots.txt by which was judged: what the site's own"
            " robots.txt would have said is recorded, and not replayed"
        )
    if judgement.overrides is not None:
        return caveats
    return [*caveats, f"override {override} affected the decision, and is not replayed"]


def _check_document(record: Record, document: bytes | None) -> None:
    """Raises SettingsError if the document is missing, or is not the one that the record names."""
    wanted = record.sha256
    if wanted is None:
        return
    if document is None and wanted != EMPTY:
        raise SettingsError(
            f"the document ({wanted[:12]}...) on which {record.id} is based is not stored any more:"
            " name the store of that integration with --store, or replay a bundle"
        )
    if hashlib.sha256(document or b"").hexdigest() != wanted:
        raise SettingsError(
            f"the document is not the one on which {record.id} is based: its SHA-256 differs"
        )


def _terms(record: Record, settings: dict[str, str]) -> Terms:
    """The terms of a decision on a request. Raises SettingsError."""
    used = {"dialect": record.dialect, "matching": record.matching}
    named = {name: value for name, value in used.items() if value}
    terms = _terms_of(record.id, settings | named)
    if _is_exempted(record):
        return msgspec.structs.replace(terms, action="pass")
    return terms


def _terms_of(identity: str, settings: dict[str, str]) -> Terms:
    """The terms under the recorded settings. Raises SettingsError."""
    texts = {name: value for name, value in settings.items() if name in Terms.__struct_fields__}
    used_dialect = dialect(texts.get("dialect", "rfc9309"))
    used_matching = matching(texts.get("matching", "standard"))
    others = {name: value for name, value in texts.items() if name not in ("dialect", "matching")}
    try:
        values = {
            name: msgspec.convert(value, _TERMS[name], strict=False)
            for name, value in others.items()
        }
    except msgspec.ValidationError as error:
        raise SettingsError(f"the settings of {identity} cannot be read: {error}") from error
    return Terms(dialect=used_dialect, matching=used_matching, **values)


def _question(record: Record, terms: Terms, now: float) -> Question:
    try:
        origin, target = split_url(record.url)
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{record.id} has no URL that can be judged: {error}") from error
    deferral = None
    if record.defers:
        since = now - terms.max_defer if record.action == "drop" else now
        deferral = Deferral(record.defers, since)
    return Question(
        origin=origin,
        target=target,
        agent=record.agent,
        method=record.method,
        deferral=deferral,
        robots_txt_of=_origin(record.robots_txt_of) if record.robots_txt_of else None,
    )


def _origin(text: str) -> Origin:
    """A recorded origin. Raises SettingsError."""
    try:
        return origin_of(text)
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{text[:80]!r} is no origin: {error}") from error


def _policy(record: Record, origin: Origin, body: bytes, now: float) -> Policy:
    document = None
    if record.sha256 is not None:
        document = Document(
            status=record.status or 200,
            url=origin.robots_url,
            sha256=record.sha256,
            body=body,
            fetched_at=_seconds(record.fetched_at),
            via=record.via or "",
        )
    return Policy(
        origin=origin,
        document=document,
        trouble=_trouble(record, document, now),
        reservations=_reservations(record, now),
    )


def _reservations(record: Record, now: float) -> Reservations | None:
    """What the origin's tdmrep.json stated about the target, as it was read.

    The recorded texts are cut, so the file is made of the values.
    """
    items = [item for item in record.evidence or [] if item.where == Place.TDMREP_FILE]
    values = {item.value for item in items if item.rule == RESERVATION and item.value in (0, 1)}
    if not values:
        return None
    entry = {"location": "/", RESERVATION: int(max(values))}
    body = msgspec.json.encode([entry])
    return Reservations(attempted_at=now, status=200, fetched_at=now, body=body)


def _trouble(record: Record, document: Document | None, now: float) -> FetchTrouble | None:
    if record.failure is None:
        return None
    until = _seconds(record.until) or now + RETRY_MIN
    try:
        failure = Failure(record.failure)
    except ValueError as error:
        raise SettingsError(f"{record.id} has an unknown failure: {error}") from error
    return FetchTrouble(
        failure=failure,
        status=None if document else record.status,
        since=_seconds(record.trouble_since) or now,
        at=now,
        attempts=1,
        retry_at=until,
        scope=next(
            (scope for scope, reason in REASONS.items() if reason == record.reason), Scope.SITE
        ),
    )


def _with_raw_bytes(target: str) -> str:
    """A target with those bytes unescaped that records always escape."""
    return _ESCAPED.sub(lambda found: chr(int(found[0][1:], 16)), target)


def _is_cut(record: Record) -> bool:
    return REDACTED in record.url or record.url.endswith("...")


def _hides_queries(settings: dict[str, str]) -> bool:
    return settings.get("audit_query", "redact") in ("drop", "hash")


def _depends_on_hidden_part(judgement: Judgement, verdict: Verdict) -> bool:
    """Whether a verdict may differ only because the URL was not recorded as it was sent: both the
    recorded and the replayed verdict depend on the target."""
    record = judgement.record
    assert isinstance(record, Record)
    if not (_is_cut(record) or _hides_queries(judgement.settings)):
        return False
    return verdict.reason in _BY_TARGET and (
        record.reason in _BY_TARGET or meaning_of(record.reason).replay is Comparison.DELAY
    )


def _differences(record: Record, verdict: Verdict) -> list[str]:
    if meaning_of(record.reason).replay is Comparison.DELAY:
        # The rules let it pass; it was deferred because it had to wait for its turn.
        recorded = f"{record.delay_source}: {record.delay} s"
        now = "no delay"
        if verdict.delay:
            now = f"{verdict.delay.by}: {verdict.delay.seconds} s"
        if recorded == now or record.reason == "retry-after":
            return []
        return [f"delay: recorded {recorded}, now {now}"]
    rule = verdict.rule
    values = (
        verdict.action,
        verdict.reason,
        rule and rule.text,
        rule and rule.line,
        verdict.group,
        verdict.form,
        verdict.would,
    )
    return [
        f"{name}: recorded {getattr(record, name)!r}, now {value and str(value)!r}"
        for name, value in zip(_COMPARED, values, strict=True)
        if getattr(record, name) != value and not (name == "would" and _is_by_pin(record))
    ]


def _caveats(judgement: Judgement) -> list[str]:
    record, settings = judgement.record, judgement.settings
    assert isinstance(record, Record)
    caveats = []
    if _is_cut(record):
        caveats.append(
            "the recorded URL is redacted or cut: a rule that matches the missing part cannot be replayed"
        )
    if _hides_queries(settings):
        caveats.append(
            "queries were not recorded as sent: a rule that matches them cannot be replayed"
        )
    if meaning_of(record.reason).replay is Comparison.DELAY:
        caveats.append(TURN_NOT_COMPARED)
    if any(len(item.raw) >= RAW_CAP for item in record.evidence or []):
        caveats.append("a recorded statement is truncated: the rest of it cannot be replayed")
    return caveats + _caveats_of_override(judgement)


def _seconds(at: str | None) -> float:
    if not at:
        return 0.0
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0
