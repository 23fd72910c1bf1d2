"""Replaying a decision: the same question, the same document, the same settings, judged again.

The law of this file: nothing is taken from the recorded verdict but to compare with. What a record does not tell
(a query that was redacted, whose turn it was) is said, never guessed at.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.privacy import REDACTED
from robots_guard.audit.record import Record, json_schema
from robots_guard.core import check
from robots_guard.core.access import Failure
from robots_guard.core.codec import EMPTY
from robots_guard.core.freshness import RETRY_MIN
from robots_guard.core.policy import Document, Policy, Trouble
from robots_guard.core.verdict import Deferral, Question, Reason, Terms, Verdict, reported
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, split_url
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.rep.ruleset import Ruleset, compile_rules

FORMAT = "robots_guard-bundle-1"
BY_A_DOOR = frozenset(
    (
        Reason.AMBIGUOUS_AUTHORITY,
        Reason.BLOCKED,
        Reason.BYPASSED,
        Reason.DESTINATION_REFUSED,
        Reason.INTERNAL_ERROR,
        Reason.NOT_GOVERNED,
        Reason.NOT_HTTP,
        Reason.NOT_INTERCEPTED,
        Reason.NOT_JUDGED,
        Reason.UNRECORDED,
    )
)
_COMPARED = ("action", "reason", "rule", "line", "group", "form", "would")
_PACED = ("crawl-delay", "request-rate", "retry-after", "min-delay")


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A record with all that is needed to judge it again: the document and its writer's settings."""

    format: str = FORMAT
    version: str = ""
    record: Record
    settings: dict[str, str]
    document: bytes | None = None
    schema: dict[str, Any] = msgspec.field(default_factory=json_schema)


class Replayed(NamedTuple):
    """The verdict now, how it differs from the one recorded, and what could not be replayed."""

    verdict: Verdict
    differences: list[str]
    caveats: list[str]


def read_bundle(octets: bytes) -> Bundle:
    """The bundle of a file. Raises SettingsError."""
    try:
        bundle = msgspec.json.decode(octets, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"this is no bundle ({error}): make one with robots-guard audit bundle ID") from error
    if bundle.format != FORMAT:
        raise SettingsError(f"this is no bundle of a format known here ({bundle.format[:40]!r}): it should be {FORMAT}")
    return bundle


def replay(bundle: Bundle) -> Replayed:
    """Judge again. Raises SettingsError where that cannot be done."""
    record = bundle.record
    if record.reason in BY_A_DOOR:
        raise SettingsError(
            f"{record.id} was not judged by a robots.txt ({record.reason}), so that there is nothing to replay"
        )
    _insist_on_document(bundle)
    terms, now = _terms(bundle), _seconds(record.at)
    question = _question(record, terms, now)
    policy = _policy(record, question.origin, bundle.document or b"", now)
    verdict = check.by_policy(question, terms, policy, partial(_rules, question, terms), now)
    if bundle.settings.get("mode") == "report":
        verdict = reported(verdict)
    return Replayed(verdict, _differences(record, verdict), _caveats(bundle))


def _insist_on_document(bundle: Bundle) -> None:
    wanted = bundle.record.sha256
    if wanted is None:
        return
    if bundle.document is None and wanted != EMPTY:
        raise SettingsError(
            f"the document that {bundle.record.id} rests on ({wanted[:12]}...) is not kept any more:"
            " name the store of that door with --store, or replay a bundle"
        )
    if hashlib.sha256(bundle.document or b"").hexdigest() != wanted:
        raise SettingsError(f"the document is not the one that {bundle.record.id} rests on: its SHA-256 differs")


def _terms(bundle: Bundle) -> Terms:
    record = bundle.record
    chosen = {name: value for name, value in bundle.settings.items() if name in Terms.__struct_fields__}
    plain = {name: value for name, value in chosen.items() if name not in ("dialect", "matching")}
    read = dialect(record.dialect or chosen.get("dialect", "rfc9309"))
    spelt = matching(record.matching or chosen.get("matching", "standard"))
    values = {field.name: field for field in msgspec.structs.fields(Terms)}
    try:
        typed = {name: msgspec.convert(value, values[name].type, strict=False) for name, value in plain.items()}
    except msgspec.ValidationError as error:
        raise SettingsError(f"the settings that go with {record.id} cannot be read: {error}") from error
    return Terms(dialect=read, matching=spelt, **typed)


def _question(record: Record, terms: Terms, now: float) -> Question:
    try:
        origin, target = split_url(record.url)
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{record.id} has no URL that can be judged: {error}") from error
    since = now - terms.max_defer if record.action == "drop" else now
    earlier = Deferral(record.defers, since) if record.defers else None
    return Question(origin=origin, target=target, agent=record.agent, method=record.method, deferral=earlier)


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
    return Policy(origin=origin, document=document, trouble=_trouble(record, document, now))


def _trouble(record: Record, document: Document | None, now: float) -> Trouble | None:
    if record.failure is None:
        return None
    until = _seconds(record.until) or now + RETRY_MIN
    return Trouble(
        failure=Failure(record.failure),
        status=None if document else record.status,
        since=_seconds(record.trouble_since) or now,
        at=now,
        attempts=1,
        retry_at=until,
    )


def _rules(question: Question, terms: Terms, document: Document) -> Ruleset:
    return compile_rules(document.body, terms.dialect, question.agent, terms.matching.name)


def _differences(record: Record, verdict: Verdict) -> list[str]:
    if record.reason in _PACED:  # it was let pass, and then it was not its turn
        asked = verdict.pace
        was = f"{record.pace}: {record.delay} s"
        is_ = f"{asked.by}: {asked.seconds} s" if asked else "no pace"
        return [] if was == is_ or record.reason == "retry-after" else [f"pace: recorded {was}, now {is_}"]
    rule = verdict.rule
    what = (verdict.action, verdict.reason, rule and rule.text, rule and rule.line, verdict.group, verdict.form)
    now = (*what, verdict.would)
    pairs = zip(_COMPARED, now, strict=True)
    return [
        f"{name}: recorded {getattr(record, name)!r}, now {value and str(value)!r}"
        for name, value in pairs
        if getattr(record, name) != value
    ]


def _caveats(bundle: Bundle) -> list[str]:
    record, told = bundle.record, []
    if REDACTED in record.url or record.url.endswith("..."):
        told.append("the recorded URL is redacted or cut: a rule on what is missing cannot be replayed")
    if bundle.settings.get("audit_query", "redact") in ("drop", "hash"):
        told.append("queries were not recorded as they were sent: a rule on them cannot be replayed")
    if record.reason in _PACED:
        told.append("it was let pass and had to wait for its turn: the pace is compared, whose turn it was is not")
    if record.override is not None:
        told.append(f"override {record.override} had a part in it, and is not replayed")
    return told


def _seconds(at: str | None) -> float:
    try:
        return datetime.fromisoformat(at).timestamp() if at else 0.0
    except ValueError:
        return 0.0
