"""Records: the kinds of lines in the audit log.

Invariant: values from clients and sites stay data. Secrets are removed (audit/privacy.py), long
values are cut, and a line is printable ASCII throughout, so that no byte of a URL can end a line or
control a terminal. Fields are added, never renamed, and `schema` counts changes of meaning. A field
with its default value is omitted from a line. docs/reference/audit-record.md explains each field;
the JSON Schema is generated from these classes.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, Literal

import msgspec

from robots_guard.audit.privacy import DEFAULT, LONGEST, REDACTED, Privacy, cut, redacted, shown_url
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.events import (
    Event,
    FailedOpen,
    FetchMade,
    FilesRemoved,
    HoldChanged,
    OverridesLoaded,
    PinnedFileRead,
    StoreWasReset,
)
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.uses import Uses, UseState, plain_of
from robots_guard.decisions.verdict import Decision, Exemption
from robots_guard.protocol.signals.statement import RECORDED_ONLY, Flag
from robots_guard.protocol.signals.tdmrep import RESERVATION
from robots_guard.text import encodable

__all__ = [
    "LONGEST",
    "REDACTED",
    "SCHEMA",
    "AnyRecord",
    "Entry",
    "Record",
    "RecordHead",
    "SignalsRecord",
    "Writer",
    "age_of",
    "elapsed_us_of",
    "head_of",
    "json_schema",
    "moment",
    "printable",
    "record_of",
    "record_of_event",
    "redacted",
    "shown_url",
    "signals_record_of",
]

SCHEMA: Literal[1] = 1
LONGEST_USER_AGENT = 256
LONGEST_METHOD = 32
LONGEST_NAME = 128
LONGEST_REASON = 512
LONGEST_EVIDENCE = 24 * 1024  # bytes in a line
LONGEST_FILE = 32 * 1024  # bytes in a line
LONGEST_ESCAPE = 12  # bytes of one character in a line
SHORT_TEXT = 60  # bytes in a line of a text that is evidence beyond LONGEST_EVIDENCE


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a writer, which each of its records has."""

    writer: str = ""
    component: str = ""
    job: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields common to all records. Times are ISO 8601 in UTC with milliseconds."""

    schema: Literal[1]
    at: str | None
    mono: float | None = None  # seconds on the writer's monotonic clock
    seq: int = 0  # counts this writer's records from 1; a gap is a lost record
    writer: str = ""
    component: str = ""
    job: str = ""

    kind: ClassVar[str]

    def line_of_json(self) -> bytes:
        """This record as one line of JSON, printable ASCII and a newline."""
        return self.json() + b"\n"

    def json(self) -> bytes:
        """This record as JSON in printable ASCII."""
        try:
            encoded = _encoder.encode(self)
        except UnicodeEncodeError:
            # A lone surrogate: bytes of an argument that the locale could not decode.
            encoded = _encoder.encode(_encodable(msgspec.to_builtins(self)))
        return printable(encoded)


class EvidenceItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A statement of a site, and the uses that it denies and allows."""

    signal: str
    where: str
    rule: str = ""
    value: str | int | float | bool = True
    raw: str = ""
    agent: str = "*"
    line: int | None = None
    flags: list[str] = msgspec.field(default_factory=list)
    denies: list[str] = msgspec.field(default_factory=list)
    allows: list[str] = msgspec.field(default_factory=list)


class RecordHead(Entry, frozen=True, kw_only=True, tag="decision"):
    """The first fields of a decision: those that differ from one request to the next."""

    id: str
    agent: str
    user_agent: str = ""
    client: str = ""
    method: str = ""
    url: str


class Record(RecordHead, frozen=True, kw_only=True):
    """A decision."""

    origin: str
    action: str
    reason: str
    group: str | None = None
    rule: str | None = None
    line: int | None = None
    form: str | None = None
    dialect: str = ""
    matching: str = ""
    sha256: str | None = None
    status: int | None = None
    fetched_at: str | None = None
    age: float | None = None
    redirects: list[str] = msgspec.field(default_factory=list)
    stale: bool = False
    via: str | None = None
    tls_verified: bool | None = None
    until: str | None = None
    delay_source: str | None = None
    delay: float | None = None
    defers: str | None = None
    led_by: str | None = None
    placeholder: str | None = None
    escaped: bool = False
    relaxed: str | None = None
    would: str | None = None
    override: str | None = None
    override_owner: str | None = None
    override_reason: str | None = None
    override_expires: str | None = None
    detail: str | None = None
    source: str = ""
    elapsed_us: int = 0
    failure: str | None = None
    trouble_since: str | None = None
    robots_txt_of: str | None = None
    uses: dict[str, str] | None = None
    evidence: list[EvidenceItem] | None = None
    evidence_omitted: int = 0


class SignalsRecord(Entry, frozen=True, kw_only=True, tag="signals"):
    """A decision on a response, with what the response and the policy of its origin state."""

    id: str
    request: str | None = None  # the id of the decision on the request
    agent: str
    method: str = "GET"
    url: str
    origin: str
    status: int
    dialect: str = ""  # the page dialect
    purposes: list[str] = msgspec.field(default_factory=list)
    action: str
    reason: str
    uses: dict[str, str] = msgspec.field(default_factory=dict)  # a use that is not named is unknown
    images: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str | int | bool] = msgspec.field(default_factory=dict)
    unavailable_after: str | None = None
    content_use: str | None = None
    tdm_policy: str | None = None
    license: list[str] = msgspec.field(default_factory=list)
    license_other: list[str] = msgspec.field(default_factory=list)
    price: str | None = None
    incomplete: bool = False
    follow_only: bool = False
    flags: list[str] = msgspec.field(default_factory=list)
    evidence: list[EvidenceItem] = msgspec.field(default_factory=list)
    evidence_omitted: int = 0
    detail: str | None = None
    placeholder: str | None = None
    relaxed: str | None = None
    would: str | None = None
    override: str | None = None
    override_owner: str | None = None
    override_reason: str | None = None
    override_expires: str | None = None


class Passes(Entry, frozen=True, kw_only=True, tag="passes"):
    """A count of requests that passed, and are not recorded one by one."""

    agent: str
    origin: str
    action: str
    reason: str
    sha256: str | None = None  # of the robots.txt that was applied
    count: int
    since: str | None
    until: str | None


class Fetch(Entry, frozen=True, kw_only=True, tag="fetch"):
    """One hop of fetching a robots.txt or tdmrep.json."""

    origin: str  # the origin whose file is fetched
    file: str = "robots.txt"
    url: str
    via: str
    conditional: bool = False
    status: int | None = None
    size: int | None = None
    sha256: str | None = None
    truncated: bool = False
    location: str | None = None
    tls_verified: bool | None = None
    failure: str | None = None
    detail: str | None = None
    elapsed_us: int = 0
    warc_id: str | None = None
    warc_file: str | None = None
    warc_sha256: str | None = None  # of the response record and its request record, as written


class Start(Entry, frozen=True, kw_only=True, tag="start"):
    """The beginning of a file."""

    version: str
    host: str
    pid: int
    segment: int
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    chain: str | None = None
    previous: str | None = None


class Stop(Entry, frozen=True, kw_only=True, tag="stop"):
    """The orderly end of a writer."""

    lost: int = 0


class Checkpoint(Entry, frozen=True, kw_only=True, tag="checkpoint"):
    """The hash of the chain before this line, and its signature (audit/signing.py)."""

    head: str
    key: str | None = None
    signature: str | None = None


class StoreResetRecord(Entry, frozen=True, kw_only=True, tag="store-reset"):
    """The policy store was damaged and has been replaced by an empty one."""

    detail: str


class FailOpen(Entry, frozen=True, kw_only=True, tag="fail-open"):
    """A setting let requests through that would otherwise have been refused."""

    relaxed: str
    count: int
    detail: str | None = None


class OverridesRecord(Entry, frozen=True, kw_only=True, tag="overrides"):
    """The operator's exceptions were read."""

    source: str
    count: int  # in force
    sha256: str = ""  # of the file as it was read
    text: str | None = None  # of the file, unless it is longer than LONGEST_FILE
    problems: list[str] = msgspec.field(default_factory=list)


class PinnedRecord(Entry, frozen=True, kw_only=True, tag="pinned"):
    """A part of a robots.txt that an override has pinned."""

    override: str  # its id
    source: str
    sha256: str  # of the whole file
    size: int  # bytes of the whole file
    part: int  # from 1
    parts: int
    text: str  # of this part, one Latin-1 character per byte


class HoldRecord(Entry, frozen=True, kw_only=True, tag="hold"):
    """A legal hold was added or released."""

    hold: str
    change: str
    owner: str
    reason: str
    origins: list[str] = msgspec.field(default_factory=list)
    since: str | None = None
    until: str | None = None


class Removal(Entry, frozen=True, kw_only=True, tag="removal"):
    """Housekeeping removed files of the audit log, as the retention demands."""

    files: list[str]


AnyRecord = (
    Record
    | SignalsRecord
    | Passes
    | Fetch
    | Start
    | Stop
    | Checkpoint
    | StoreResetRecord
    | FailOpen
    | OverridesRecord
    | PinnedRecord
    | HoldRecord
    | Removal
)

_encoder = msgspec.json.Encoder()
_UNPRINTABLE = re.compile(r"[^ -~]")


def _encodable(value: Any) -> Any:
    """A record's values with all text made encodable, so that no record is lost because of the text
    in it."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    return value


def printable(line: bytes) -> bytes:
    """JSON as printable ASCII. The encoder escapes control characters below space; this escapes all
    others."""
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNPRINTABLE.sub(_escape, line.decode()).encode("ascii")


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a line of any kind."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of robots_guard's audit log",
    }
    return head | msgspec.json.schema(AnyRecord)


# -- decisions -------------------------------------------------------------------------------------


def record_of(
    decision: Decision,
    writer: Writer | None = None,
    *,
    seq: int = 0,
    mono: float | None = None,
    privacy: Privacy = DEFAULT,
) -> Record:
    """The record of a decision, with the writer's identity and number."""
    question, verdict, rule = decision.question, decision.verdict, decision.verdict.rule
    origin = str(question.origin)
    head = head_of(decision, origin, writer or Writer(), seq, mono, privacy)
    return Record(
        **msgspec.structs.asdict(head),
        origin=origin,
        action=verdict.action.value,
        reason=verdict.reason.value,
        group=_optional(verdict.group),
        rule=cut(rule.text) if rule else None,
        line=rule.line if rule else None,
        form=verdict.form,
        dialect=decision.dialect,
        matching=decision.matching,
        until=moment(verdict.until),
        delay_source=verdict.delay.by.value if verdict.delay else None,
        delay=verdict.delay.seconds if verdict.delay else None,
        defers=question.deferral.id if question.deferral else None,
        led_by=privacy.url(question.led_by) if question.led_by else None,
        placeholder=decision.placeholder,
        escaped=decision.has_escaped,
        relaxed=verdict.relaxed,
        detail=_detail(verdict.detail, privacy),
        stale=verdict.stale,
        would=verdict.would.value if verdict.would else None,
        **(override_fields(decision.override) if decision.override else {}),
        source=decision.source,
        elapsed_us=elapsed_us_of(decision),
        robots_txt_of=str(question.robots_txt_of) if question.robots_txt_of else None,
        uses=_stated(verdict.uses) if verdict.uses else None,
        **(_evidence_fields(verdict.uses) if verdict.uses else {}),
        age=age_of(decision),
        **(_policy_fields(decision.policy, privacy) if decision.policy else {}),
    )


def head_of(
    decision: Decision,
    origin: str,
    writer: Writer,
    seq: int,
    mono: float | None,
    privacy: Privacy,
) -> RecordHead:
    """The first fields of a decision's record. `origin` is the serialised origin of the question."""
    question = decision.question
    return RecordHead(
        schema=SCHEMA,
        at=moment(decision.at),
        mono=mono,
        seq=seq,
        writer=writer.writer,
        component=decision.component,
        job=writer.job,
        id=decision.id,
        agent=cut(question.agent, LONGEST_USER_AGENT),
        user_agent=cut(question.user_agent, LONGEST_USER_AGENT),
        client=cut(privacy.client_text(question.client), LONGEST_USER_AGENT),
        method=cut(question.method, LONGEST_METHOD),
        url=privacy.url(origin + question.target),
    )


def age_of(decision: Decision) -> float | None:
    """The age of the document on which a verdict is based, in seconds; None if there is none."""
    if decision.policy is None or decision.policy.document is None:
        return None
    return round(decision.at - decision.policy.document.fetched_at, 3)


def elapsed_us_of(decision: Decision) -> int:
    """The microseconds from the question to the verdict."""
    return round(decision.elapsed * 1e6)


def signals_record_of(
    decision: Decision,
    writer: Writer,
    *,
    seq: int = 0,
    mono: float | None = None,
    privacy: Privacy = DEFAULT,
) -> SignalsRecord:
    """The record of a decision on a response, with the writer's identity and number."""
    question, verdict, response = decision.question, decision.verdict, decision.response
    assert response is not None
    origin = str(question.origin)
    return SignalsRecord(
        schema=SCHEMA,
        at=moment(decision.at),
        mono=mono,
        seq=seq,
        writer=writer.writer,
        component=decision.component,
        job=writer.job,
        id=decision.id,
        request=response.request or None,
        agent=cut(question.agent, LONGEST_USER_AGENT),
        method=cut(question.method, LONGEST_METHOD),
        url=privacy.url(origin + question.target),
        origin=origin,
        status=response.status,
        dialect=decision.dialect,
        purposes=list(decision.purposes),
        action=verdict.action.value,
        reason=verdict.reason.value,
        follow_only=verdict.is_follow_only,
        placeholder=decision.placeholder,
        detail=_detail(verdict.detail, privacy),
        relaxed=verdict.relaxed,
        would=verdict.would.value if verdict.would else None,
        **(_signal_fields(verdict.uses) if verdict.uses else {}),
        **(override_fields(decision.override) if decision.override else {}),
    )


def _signal_fields(uses: Uses) -> dict[str, Any]:
    plain = plain_of(uses)
    for name in ("license", "license_other"):
        plain[name] = _fitting(plain.get(name, []), 2 * LONGEST)
    for name in ("tdm_policy", "price"):
        plain[name] = _short(plain.get(name), LONGEST)
    return plain | {"uses": _stated(uses)} | _evidence_fields(uses)


def _stated(uses: Uses) -> dict[str, str]:
    """The uses that are denied or allowed, without the unknown ones."""
    return {use: state.value for use, state in uses.states.items() if state is not UseState.UNKNOWN}


def _evidence_fields(uses: Uses) -> dict[str, Any]:
    """The evidence, whose length is limited: any number of statements would make a line that readers
    skip. Of the statements beyond the limit, one of each effect is kept, without most of its text.
    """
    items = msgspec.convert(plain_of(uses).get("evidence", []), list[EvidenceItem])
    kept: list[EvidenceItem] = []
    effects: set[tuple[Any, ...]] = set()
    size = 0
    for item in items:
        length = _length(item)
        if size + length <= LONGEST_EVIDENCE:
            size += length
            kept.append(item)
        elif _effect(item) not in effects and _has_effect(item):
            kept.append(_shortened(item))
        else:
            continue
        effects.add(_effect(item))
    return {"evidence": kept, "evidence_omitted": len(items) - len(kept)}


def _has_effect(item: EvidenceItem) -> bool:
    """Whether a judgement of the evidence may depend on an item. The words that have an effect are
    finitely many."""
    is_known = item.value != "" and Flag.UNKNOWN_RULE not in item.flags
    return is_known and item.signal not in RECORDED_ONLY


def _effect(item: EvidenceItem) -> tuple[Any, ...]:
    level = item.value if item.rule in ("use", RESERVATION) else None
    return (item.signal, item.rule, level, *item.denies, *item.allows)


def _shortened(item: EvidenceItem) -> EvidenceItem:
    value = item.value
    if isinstance(value, str):
        value = _short(value, SHORT_TEXT) or ""
    return msgspec.structs.replace(item, raw=_short(item.raw, SHORT_TEXT) or "", value=value)


def _length(value: Any) -> int:
    """The bytes of a value in a line."""
    return len(printable(_encoder.encode(_encodable(msgspec.to_builtins(value)))))


def _short(text: str | None, most: int) -> str | None:
    """A text cut to at most `most` bytes in a line."""
    if text is None or _length(text) <= most:
        return text
    text = cut(text, most - 2)  # without the quotation marks
    return text if _length(text) <= most else cut(text, most // LONGEST_ESCAPE)


def _fitting(texts: list[str], most: int) -> list[str]:
    """The first of some texts, each cut, at most `most` bytes in a line."""
    kept: list[str] = []
    for text in (_short(each, LONGEST) or "" for each in texts):
        most -= _length(text)
        if most < 0:
            break
        kept.append(text)
    return kept


def _detail(detail: str | None, privacy: Privacy) -> str | None:
    return _short(privacy.text(detail), 2 * LONGEST) if detail else None


def override_fields(exemption: Exemption) -> dict[str, Any]:
    """An override as records name it."""
    return {
        "override": cut(exemption.id, 128),
        "override_owner": cut(exemption.owner, LONGEST_NAME),
        "override_reason": cut(exemption.reason, LONGEST_REASON),
        "override_expires": moment(exemption.expires),
    }


def _policy_fields(policy: Policy, privacy: Privacy) -> dict[str, Any]:
    """The document and the fetch trouble on which the verdict is based."""
    fields: dict[str, Any] = {}
    if policy.document is not None:
        document = policy.document
        fields = {
            "sha256": document.sha256,
            "status": document.status,
            "fetched_at": moment(document.fetched_at),
            "redirects": [privacy.url(url) for url in document.redirects[:10]],
            "via": document.via,
            "tls_verified": document.tls_verified if _has_come_by_tls(policy) else None,
        }
    if policy.trouble is not None:
        fields["failure"] = policy.trouble.failure.value
        fields["trouble_since"] = moment(policy.trouble.since)
        fields.setdefault("status", policy.trouble.status)
    return fields


def _has_come_by_tls(policy: Policy) -> bool:
    return policy.origin.scheme == "https" and not policy.is_pinned


# -- events ----------------------------------------------------------------------------------------


def record_of_event(event: Event, head: dict[str, Any], privacy: Privacy = DEFAULT) -> AnyRecord:
    """The record of an event. `head` has the fields common to all records, except `schema` and
    `at`."""
    head = head | {"schema": SCHEMA, "at": moment(event.at)}
    match event:
        case FetchMade():
            return _fetch(event, head, privacy)
        case StoreWasReset():
            return StoreResetRecord(**head, detail=privacy.text(event.detail))
        case FailedOpen():
            return FailOpen(
                **head, relaxed=event.setting, count=event.count, detail=event.detail or None
            )
        case OverridesLoaded():
            return OverridesRecord(
                **head,
                source=cut(event.source),
                count=event.count,
                sha256=event.sha256,
                text=event.text if _length(event.text) <= LONGEST_FILE else None,
                problems=[privacy.text(problem) for problem in event.problems[:20]],
            )
        case PinnedFileRead():
            return PinnedRecord(
                **head,
                override=cut(event.override, LONGEST_NAME),
                source=cut(event.source),
                sha256=event.sha256,
                size=event.size,
                part=event.part,
                parts=event.parts,
                text=event.text,
            )
        case HoldChanged():
            return HoldRecord(
                **head,
                hold=event.hold,
                change=event.change,
                owner=cut(event.owner, LONGEST_NAME),
                reason=cut(event.reason, LONGEST_REASON),
                origins=[cut(origin) for origin in event.origins[:100]],
                since=event.since,
                until=event.until,
            )
        case FilesRemoved():
            return Removal(**head, files=[cut(name, LONGEST_NAME * 2) for name in event.files])


def _fetch(event: FetchMade, head: dict[str, Any], privacy: Privacy) -> Fetch:
    hop: dict[str, Any] = {
        "origin": str(event.origin),
        "file": event.file,
        "url": privacy.url(event.get.url),
        "via": event.via,
        "conditional": bool(event.get.headers),
        "elapsed_us": round(event.elapsed * 1e6),
    }
    outcome = event.outcome
    if not isinstance(outcome, Fetched):
        return Fetch(
            **head,
            **hop,
            failure=outcome.failure.value,
            detail=privacy.text(outcome.detail) or None,
        )
    location = outcome.headers.get("location")
    return Fetch(
        **head,
        **hop,
        status=outcome.status,
        size=len(outcome.body),
        sha256=hashlib.sha256(outcome.body).hexdigest() if 200 <= outcome.status < 300 else None,
        truncated=outcome.truncated,
        location=privacy.url(location) if location else None,
        tls_verified=outcome.tls_verified if event.get.url.startswith("https:") else None,
    )


# -- other values ----------------------------------------------------------------------------------


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC with milliseconds; None if the calendar has no such
    date."""
    if seconds is None:
        return None
    try:
        whole, fraction = divmod(round(seconds * 1e6), 1_000_000)
        return _second(whole) + _MILLISECONDS[fraction // 1000]
    except (ValueError, OverflowError, OSError):
        return None


_MILLISECONDS = tuple(f".{number:03}Z" for number in range(1000))


@lru_cache(maxsize=64)  # most records have the same second as the previous one
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def _optional(text: str | None) -> str | None:
    if text is None:
        return None
    return cut(text)
