"""Records in other people's formats. docs/audit.md has the mappings.

The law of this file: what a format has no field for is left out or put under a name of our own, never into a field
that means something else. A record is data: whatever stands in it, a line stays one line.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from robots_guard.audit.record import AnyRecord, Fetch, Record, printable
from robots_guard.core.verdict import Reason

_encoder = msgspec.json.Encoder()

#: Heritrix's fetch status codes (its FetchStatusCodes) for what was not fetched.
PRECLUDED, PREREQUISITE_FAILED, DEFERRED, RUNTIME_EXCEPTION, UNFETCHABLE = -9998, -61, -50, -5, -7
_HERITRIX = {
    Reason.DISALLOWED: PRECLUDED,
    Reason.BLOCKED: UNFETCHABLE,
    Reason.MIRROR: PRECLUDED,
    Reason.RESTRICTED: PRECLUDED,
    Reason.UNREACHABLE: PREREQUISITE_FAILED,
    Reason.MALFORMED_TARGET: UNFETCHABLE,
    Reason.AMBIGUOUS_AUTHORITY: UNFETCHABLE,
    Reason.NOT_HTTP: UNFETCHABLE,
    Reason.NOT_JUDGED: UNFETCHABLE,
    Reason.UNRECORDED: RUNTIME_EXCEPTION,
    Reason.INTERNAL_ERROR: RUNTIME_EXCEPTION,
}


def exported(entries: Iterable[AnyRecord], form: str) -> Iterator[str]:
    """The lines of an export, headings first where the format has them."""
    chosen = FORMATS[form]
    if chosen.headings:
        yield chosen.headings
    for entry in entries:
        line = chosen.line(entry)
        if line is not None:
            yield line


# -- Elastic Common Schema ------------------------------------------------------------------------------------


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
            "outcome": "success",  # of the decision: a refusal is no failure
            "reason": entry.reason,
            "id": entry.id,
            "sequence": entry.seq,
            "duration": entry.elapsed_us * 1000,
            "dataset": "robots_guard.decision",
        },
        "url": _kept(
            full=entry.url,
            scheme=parts.scheme,
            domain=parts.hostname,
            port=_port(parts.netloc, parts.scheme),
            path=parts.path,
            query=parts.query,
        ),
        "http": {"request": {"method": entry.method or "GET"}},
        "observer": _kept(vendor="robots_guard", product="robots_guard", type=entry.door, name=entry.writer),
        "robots_guard": _own(entry),
    }
    if entry.rule:
        document["rule"] = _kept(
            name=entry.rule, ruleset=entry.group, category=entry.reason, reference=f"{entry.origin}/robots.txt"
        )
    if entry.user_agent:
        document["user_agent"] = {"original": entry.user_agent}
    source = _address(entry.client)
    if source:
        document["source"] = source
    return printable(_encoder.encode(document)).decode()


_SHARED = frozenset(("kind", "schema", "at", "seq", "writer", "url", "method", "user_agent", "id", "reason", "action"))


def _own(entry: Record) -> dict[str, Any]:
    """What ECS has no field for, under our own name."""
    return {name: value for name, value in msgspec.to_builtins(entry).items() if name not in _SHARED}


def _kept(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _port(netloc: str, scheme: str) -> int:
    found = re.search(r":(\d+)$", netloc)
    return int(found[1]) if found else {"https": 443}.get(scheme, 80)


def _address(client: str) -> dict[str, Any]:
    """An address with its port, if that is what a client is."""
    found = re.fullmatch(r"\[?([0-9A-Fa-f.:]+?)\]?(?::(\d{1,5}))?", client)
    try:
        ip = str(ipaddress.ip_address(found[1])) if found else ""
    except ValueError:
        return {}
    return _kept(ip=ip, port=int(found[2]) if found and found[2] else None)


# -- OpenTelemetry: one OTLP/JSON request a line ----------------------------------------------------------------


def _otel(entry: AnyRecord) -> str | None:
    if not isinstance(entry, Record):
        return None
    parts = urlsplit(entry.url)
    attributes = _kept(
        **{
            "url.full": entry.url,
            "http.request.method": entry.method or "GET",
            "server.address": parts.hostname,
            "server.port": _port(parts.netloc, parts.scheme),
            "user_agent.original": entry.user_agent,
            "client.address": _address(entry.client).get("ip"),
        },
        **{f"robots.{name}": value for name, value in msgspec.to_builtins(entry).items() if name not in _TAKEN},
    )
    nanoseconds = str(_milliseconds(entry.at) * 1_000_000)
    record = {
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 9,  # INFO: a refusal is no error
        "severityText": "INFO",
        "eventName": "robots.decision",
        "body": {"stringValue": f"{entry.action} ({entry.reason}): {entry.url}"},
        "attributes": _attributes(attributes),
    }
    resource = _kept(**{"service.name": "robots_guard", "service.instance.id": entry.writer})
    scopes = [{"scope": {"name": "robots_guard"}, "logRecords": [record]}]
    request = {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": scopes}]}
    return printable(_encoder.encode(request)).decode()


_TAKEN = frozenset(("kind", "at", "url", "method", "user_agent", "writer"))


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
    return round(datetime.fromisoformat(at).timestamp() * 1000) if at else 0


# -- Heritrix's crawl.log -----------------------------------------------------------------------------------------


def _heritrix(entry: AnyRecord) -> str | None:
    """What was not fetched, and each fetch of a robots.txt (hop P, for prerequisite). A PASS says nothing yet."""
    if isinstance(entry, Fetch):
        status = entry.status if entry.status is not None else _FAILURES.get(entry.failure or "", -2)
        digest = f"sha256:{entry.sha256}" if entry.sha256 else "-"
        return _crawl_log(entry.at, status, entry.octets, entry.url, "P", digest, entry.failure or "-")
    if not isinstance(entry, Record) or entry.action == "pass":
        return None
    notes = [f"robots:{entry.reason}", *([f"line:{entry.line}"] if entry.line is not None else [])]
    notes += ["escaped"] if entry.escaped else []
    status = _HERITRIX.get(Reason(entry.reason), DEFERRED) if entry.reason in _REASONS else DEFERRED
    return _crawl_log(entry.at, status, None, entry.url, "-", "-", ",".join(notes))


_REASONS = frozenset(each.value for each in Reason)
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
    at: str | None, status: int, octets: int | None, url: str, hops: str, digest: str, annotations: str
) -> str:
    size = "-" if octets is None else str(octets)
    fields = (at or "-", f"{status:>5}", f"{size:>10}", _word(url), hops, "-", "no-type", "#000", "-", digest, "-")
    return " ".join((*fields, _word(annotations)))


def _word(text: str) -> str:
    """One field of a line that is divided by spaces."""
    return quote(text, safe="!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") or "-"


# -- Squid's access.log ---------------------------------------------------------------------------------------------


def _squid(entry: AnyRecord) -> str | None:
    """What was refused or put off, as Squid's native format has it. A PASS says nothing yet."""
    if not isinstance(entry, Record) or entry.action == "pass":
        return None
    status = 503 if entry.action == "defer" or entry.reason in ("internal-error", "unrecorded") else 403
    client = _address(entry.client).get("ip") or _word(entry.client)
    seconds = f"{_milliseconds(entry.at) / 1000:.3f}"
    taken = f"{entry.elapsed_us // 1000:>6}"
    return f"{seconds} {taken} {client} TCP_DENIED/{status} 0 {_word(entry.method)} {_word(entry.url)} - HIER_NONE/- -"


# -- comma-separated values -------------------------------------------------------------------------------------------

_COLUMNS = ("kind", *(field.name for field in msgspec.structs.fields(Record)))
_FORMULA = re.compile(r"[=+\-@]")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def _csv(entry: AnyRecord) -> str | None:
    if not isinstance(entry, Record):
        return None
    values = {"kind": "decision"} | msgspec.structs.asdict(entry)
    return ",".join(_cell(values[name]) for name in _COLUMNS)


def _cell(value: Any) -> str:
    """Quoted as RFC 4180 has it; text that a spreadsheet would compute begins with a quote."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float):
        return "" if value is None else str(value)
    text = _NOT_PRINTABLE.sub(_escaped, " ".join(value) if isinstance(value, list) else str(value))
    text = f"'{text}" if _FORMULA.match(text) else text
    return '"' + text.replace('"', '""') + '"' if '"' in text or "," in text else text


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class Format(NamedTuple):
    """How a record becomes a line, or None for one that the format has no line for."""

    line: Callable[[AnyRecord], str | None]
    headings: str = ""


FORMATS = {
    "ecs": Format(_ecs),
    "otel": Format(_otel),
    "heritrix": Format(_heritrix),
    "csv": Format(_csv, ",".join(_COLUMNS)),
    "squid": Format(_squid),
}
