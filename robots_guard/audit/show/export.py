"""Export of records to other formats. `FORMATS` has the mappings, which docs/audit.md shows.

Invariant: a value for which a format has no field is omitted or stored under a name of
robots_guard, never in a field that means something else. Values are data: whatever they contain,
each record stays one line.
"""

from __future__ import annotations

import csv
import io
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from robots_guard.audit.record import AnyRecord, Fetch, Record, SignalsRecord, printable
from robots_guard.decisions.reasons import meaning_of
from robots_guard.decisions.signal_settings import Use
from robots_guard.text import printable as printable_text

NANOSECONDS = 1_000_000  # in a millisecond

_encoder = msgspec.json.Encoder()


def exported(entries: Iterable[AnyRecord], form: str) -> Iterator[str]:
    """The lines of an export, beginning with headings if the format has them."""
    chosen = FORMATS[form]
    if chosen.headings:
        yield chosen.headings
    for entry in entries:
        line = chosen.line(entry)
        if line is not None:
            yield line


# -- Elastic Common Schema -------------------------------------------------------------------------


def _ecs(entry: AnyRecord) -> str | None:
    if not isinstance(entry, Record):
        return None
    parts = urlsplit(entry.url)
    document: dict[str, Any] = {
        "@timestamp": entry.at,
        "ecs": {"version": "8.11.0"},
        "event": {
            "kind": "event",
            "category": ["web"],
            "type": ["access", "allowed" if entry.action == "pass" else "denied"],
            "action": f"robots-{entry.action}",
            "outcome": "success",  # of the decision; a refusal is not a failure
            "reason": entry.reason,
            "id": entry.id,
            "sequence": entry.seq,
            "duration": entry.elapsed_us * 1000,
            "dataset": "robots_guard.decision",
        },
        "url": _present(
            full=entry.url,
            scheme=parts.scheme,
            domain=parts.hostname,
            port=_port(parts.netloc, parts.scheme),
            path=parts.path,
            query=parts.query,
        ),
        "observer": _present(
            vendor="robots_guard", product="robots_guard", type=entry.component, name=entry.writer
        ),
        "robots_guard": _other_fields(entry),
    }
    if entry.method:
        document["http"] = {"request": {"method": entry.method}}
    if entry.rule:
        document["rule"] = _present(
            name=entry.rule,
            ruleset=entry.group,
            category=entry.reason,
            reference=f"{entry.origin}/robots.txt",
        )
    if entry.user_agent:
        document["user_agent"] = {"original": entry.user_agent}
    source = _address(entry.client)
    if source:
        document["source"] = source
    return printable(_encoder.encode(document)).decode()


_IN_ECS = frozenset(
    (
        "kind",
        "schema",
        "at",
        "seq",
        "writer",
        "url",
        "method",
        "user_agent",
        "id",
        "reason",
        "action",
    )
)


def _other_fields(entry: Record) -> dict[str, Any]:
    """The fields for which ECS has none."""
    return {
        name: value for name, value in msgspec.to_builtins(entry).items() if name not in _IN_ECS
    }


def _present(**values: Any) -> dict[str, Any]:
    """The values that are not empty."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def _port(netloc: str, scheme: str) -> int:
    found = re.search(r":(\d+)$", netloc)
    if found:
        return int(found[1])
    if scheme == "https":
        return 443
    return 80


def _address(client: str) -> dict[str, Any]:
    """The address and port of a client, if it has one."""
    found = re.fullmatch(r"\[?([0-9A-Fa-f.:]+?)\]?(?::(\d{1,5}))?", client)
    if found is None:
        return {}
    try:
        ip = str(ipaddress.ip_address(found[1]))
    except ValueError:
        return {}
    port = int(found[2]) if found[2] else None
    return _present(ip=ip, port=port)


# -- OpenTelemetry: one OTLP/JSON request per line -------------------------------------------------


def _otel(entry: AnyRecord) -> str | None:
    """A decision as a request with one log record, which has the attributes of the semantic
    conventions, and the other fields as `robots.*`.

    A client that has an address is exported as `client.*`, and any other, such as the name of a
    spider, as `robots.client`.
    """
    if not isinstance(entry, Record):
        return None
    parts = urlsplit(entry.url)
    client = _address(entry.client)
    exported_apart = _IN_OTEL | {"client"} if client else _IN_OTEL
    attributes = _present(
        **{
            "url.full": entry.url,
            "http.request.method": entry.method,
            "server.address": parts.hostname,
            "server.port": _port(parts.netloc, parts.scheme),
            "user_agent.original": entry.user_agent,
            "client.address": client.get("ip"),
            "client.port": client.get("port"),
        },
        **{
            f"robots.{name}": value
            for name, value in msgspec.to_builtins(entry).items()
            if name not in exported_apart
        },
    )
    nanoseconds = str(_milliseconds(entry.at) * NANOSECONDS)
    record = {
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 9,  # INFO; a refusal is not an error
        "severityText": "INFO",
        "eventName": "robots.decision",
        "body": {"stringValue": f"{entry.action} ({entry.reason}): {entry.url}"},
        "attributes": _attributes(attributes),
    }
    resource = _present(**{"service.name": "robots_guard", "service.instance.id": entry.writer})
    scopes = [{"scope": {"name": "robots_guard"}, "logRecords": [record]}]
    request = {
        "resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": scopes}]
    }
    return printable(_encoder.encode(request)).decode()


_IN_OTEL = frozenset(("kind", "at", "url", "method", "user_agent", "writer"))


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}


def _milliseconds(at: str | None) -> int:
    """The milliseconds since 1970; 0 for a time that does not exist, which only a forged record
    has."""
    try:
        return round(datetime.fromisoformat(at or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


# -- Heritrix's crawl.log --------------------------------------------------------------------------


def _heritrix(entry: AnyRecord) -> str | None:
    """A line for a URL that was not fetched, or for a fetch of a robots.txt (hop P, for
    prerequisite).

    A PASS has no line, because the outcome of the request is not known yet.
    """
    if isinstance(entry, Fetch):
        status = entry.status
        if status is None:
            status = _FAILURES.get(entry.failure or "", -2)
        digest = f"sha256:{entry.sha256}" if entry.sha256 else "-"
        return _crawl_log(
            entry.at, status, entry.size, entry.url, "P", digest, entry.failure or "-"
        )
    if not isinstance(entry, Record) or entry.action == "pass":
        return None
    notes = [f"robots:{entry.reason}"]
    if entry.line is not None:
        notes.append(f"line:{entry.line}")
    if entry.escaped:
        notes.append("escaped")
    status = meaning_of(entry.reason).heritrix
    return _crawl_log(entry.at, status, None, entry.url, "-", "-", ",".join(notes))


_FAILURES = {
    "dns": -1,
    "connect": -2,
    "reset": -3,
    "timeout": -4,
    "internal": -5,
    "refused": -7,
    "redirect-refused": -7,
}


def _crawl_log(
    at: str | None,
    status: int,
    size: int | None,
    url: str,
    hops: str,
    digest: str,
    annotations: str,
) -> str:
    length = "-" if size is None else str(size)
    fields = (
        at or "-",
        f"{status:>5}",
        f"{length:>10}",
        _word(url),
        hops,
        "-",
        "no-type",
        "#000",
        "-",
        digest,
        "-",
    )
    return " ".join((*fields, _word(annotations)))


def _word(text: str) -> str:
    """One field of a line whose fields are separated by spaces."""
    return quote(text, safe="!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") or "-"


# -- Squid's access.log ----------------------------------------------------------------------------


def _squid(entry: AnyRecord) -> str | None:
    """A line of Squid's native format for a DROP or DEFER. A PASS has no line, because its outcome
    is not known yet."""
    if not isinstance(entry, Record) or entry.action == "pass":
        return None
    status = meaning_of(entry.reason).response(entry.action).status
    client = _address(entry.client).get("ip") or _word(entry.client)
    seconds = f"{_milliseconds(entry.at) / 1000:.3f}"
    elapsed = f"{entry.elapsed_us // 1000:>6}"
    request = f"{_word(entry.method)} {_word(entry.url)}"
    return f"{seconds} {elapsed} {client} TCP_DENIED/{status} 0 {request} - HIER_NONE/- -"


# -- comma-separated values ------------------------------------------------------------------------

_COLUMNS = ("kind", *(field.name for field in msgspec.structs.fields(Record)))
_FORMULA = re.compile(r"[=+\-@]")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def _csv(entry: AnyRecord) -> str | None:
    if not isinstance(entry, Record):
        return None
    values = {"kind": "decision"} | msgspec.structs.asdict(entry)
    return ",".join(_cell(values[name]) for name in _COLUMNS)


#: The columns of records of responses. A use that a record does not name is unknown.
_SIGNAL_FIELDS = (
    "at", "id", "request", "component", "job", "agent", "url", "origin", "status", "action",
    "reason", "detail",
)  # fmt: skip
_USES = tuple(use.value for use in Use if use is not Use.CRAWL)
_STATED = ("max_snippet", "unavailable_after", "content_use", "license", "price", "incomplete")
_SIGNAL_COLUMNS = (
    *_SIGNAL_FIELDS,
    *(f"use_{use.replace('-', '_')}" for use in _USES),
    *_STATED,
)


def _signals(entry: AnyRecord) -> str | None:
    """A line for the record of a response."""
    if not isinstance(entry, SignalsRecord):
        return None
    values = [getattr(entry, name) for name in _SIGNAL_FIELDS]
    values += [entry.uses.get(use, "unknown") for use in _USES]
    values += [entry.limits.get("max-snippet"), *(getattr(entry, name) for name in _STATED[1:])]
    return ",".join(map(_cell, values))


def _cell(value: Any) -> str:
    """A value, quoted as in RFC 4180; text that a spreadsheet would take for a formula gets an
    apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        value = " ".join(value if all(map(_is_text, value)) else map(_json, value))
    if isinstance(value, dict):
        value = _json(value)
    text = _NOT_PRINTABLE.sub(_escape, str(value))
    if _FORMULA.match(text):
        text = f"'{text}"
    if '"' in text or "," in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class Format(NamedTuple):
    """An export format.

    `line` returns a record as a line, or None to omit it. `about` says in Markdown what a line is,
    and `mapping` what it has of a record. `kind` is the kind of the records that have lines, or
    None if there is more than one.
    """

    line: Callable[[AnyRecord], str | None]
    about: str
    mapping: str
    headings: str = ""
    kind: str | None = "decision"


_CSV = "comma-separated values with headings"
FORMATS = {
    "ecs": Format(
        _ecs,
        "an Elastic Common Schema document (8.11)",
        "`event.action` is `robots-drop` and so on, `event.outcome` is `success`: a refusal is no"
        " failure. What ECS has no name for is under `robots_guard.*`",
    ),
    "otel": Format(
        _otel,
        "an OTLP/JSON request with one log record",
        "`eventName` `robots.decision`, severity INFO; what OpenTelemetry has no name for is under"
        " `robots.*`",
    ),
    "heritrix": Format(
        _heritrix,
        "a line of Heritrix's crawl.log",
        "the code of its reason; each `fetch` with its own status and hop `P`; annotations"
        " `robots:REASON,line:N`. A PASS has no line",
        kind=None,
    ),
    "csv": Format(_csv, _CSV, "every field of a decision", ",".join(_COLUMNS)),
    "squid": Format(
        _squid,
        "a line of Squid's native access.log",
        "`TCP_DENIED/` and the response to its reason; a PASS has none",
    ),
    "signals": Format(
        _signals,
        _CSV,
        "a `signals` record: a column for each use (`use_search`, ...) with `deny`, `allow` or"
        " `unknown`",
        ",".join(_SIGNAL_COLUMNS),
        kind="signals",
    ),
}


# -- spreadsheets ----------------------------------------------------------------------------------


#: A spreadsheet evaluates a cell that begins with one of these.
_FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")


def csv_line(values: Iterable[Any], shown: Callable[[str], str] = printable_text) -> str:
    """Return values as one line of comma-separated values, with its newline. `shown` makes text printable."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        [_printed_cell(value, shown) for value in values]
    )
    return line.getvalue()


def _printed_cell(value: Any, shown: Callable[[str], str]) -> str:
    """Return a value as text. A quote before it keeps a spreadsheet from evaluating it as a formula."""
    if value is None:
        return ""
    text = shown(str(value))
    if text.startswith(_FORMULA_BEGINS) and not isinstance(value, int | float):
        return f"'{text}"
    return text
