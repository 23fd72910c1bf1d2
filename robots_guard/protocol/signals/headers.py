"""The statements in the header fields of a response.

Field lines of X-Robots-Tag are read one by one. If they were joined, the rules of the second line
would belong to the agent that the first line names. Lines of structured fields are joined first, as
RFC 9651 section 4.2 requires.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from robots_guard.protocol.signals import robots_tag, tdmrep
from robots_guard.protocol.signals.link_header import license_links
from robots_guard.protocol.signals.rules import FIELD_CAP, read_rules, unread_rules
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement, bounded
from robots_guard.protocol.signals.usage import (
    SIGNAL_LABELS,
    USAGE_LABELS,
    is_no,
    read_signal,
    read_usage,
)

#: The fields of which at most FIELD_CAP characters are read. Each has the name of its signal.
_CAPPED = frozenset(("x-robots-tag", "robots-tag", "content-usage", "content-signal"))
#: The statuses with which a site asks for a licence (RSL 1.0, Crawler Authorization Protocol).
LICENSE_STATUSES = frozenset((401, 402, 403, 503))

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_LICENSE_SCHEME = re.compile(r"(?:\A|,)\s*+license(?![^\s,])", re.IGNORECASE)

_OWS = " \t\r\n"  # around a field value, also of a field line that was folded

Header = tuple[str, str]


def header_statements(
    headers: Iterable[Header], status: int, url: str = ""
) -> tuple[Statement, ...]:
    """The statements of a response's headers, in the order of the signals. Never raises.

    `headers` are pairs of a name and a value, one for each field line, in their order. `url` is the
    URL of the response, which relative licence links refer to.
    """
    # RFC 9112 section 5.1: blanks before the colon are removed from a response.
    found = [header for header in headers if header[0].strip().lower() in FIELDS]
    if not found:
        return ()
    lines: dict[str, list[Header]] = {}
    for written, value in found:
        name = written.strip()
        lines.setdefault(name.lower(), []).append((name, _encodable(value)))
    return bounded(_statements(lines, status, url))


def _encodable(text: str) -> str:
    """A text without lone surrogates, which no encoding of a record has."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def _statements(
    lines: Mapping[str, Sequence[Header]], status: int, url: str
) -> Iterator[Statement]:
    for name, read in _READERS.items():
        if name not in lines:
            continue
        too_long = sum(len(value) + 1 for _, value in lines[name]) > FIELD_CAP
        if too_long and name in _CAPPED:
            yield from _denials(name, _text(lines[name][0]))
        else:
            yield from read(lines[name])
    if tdmrep.RESERVATION in lines:
        yield from _reservations(lines)
    for header in lines.get("link", ()):
        if "license" in header[1].lower():
            # Its links are only recorded, and many servers list dozens of files in the field.
            yield from license_links(header[1][:FIELD_CAP], url, _text(header))
    if status in LICENSE_STATUSES:
        yield from map(_license_demand, filter(_demands_license, lines.get("www-authenticate", ())))


def _text(*headers: Header) -> str:
    """The field lines as text."""
    return "\n".join(f"{name}: {value.strip()}"[:RAW_CAP] for name, value in headers[:RAW_CAP])


def _joined(headers: Sequence[Header]) -> str:
    """The value of a structured field. An empty line is no member (RFC 9110 section 5.6.1)."""
    return ", ".join(value.strip(_OWS) for _, value in headers if value.strip())


def _x_robots_tag(headers: Sequence[Header]) -> Iterator[Statement]:
    for header in headers:
        yield from read_rules(
            header[1], signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, raw=_text(header)
        )


def _robots_tag(headers: Sequence[Header]) -> Iterable[Statement]:
    return robots_tag.read((value.strip(_OWS) for _, value in headers), _text(*headers))


def _content_usage(headers: Sequence[Header]) -> Iterable[Statement]:
    return read_usage(_joined(headers), place=Place.HEADER, raw=_text(*headers))


def _content_signal(headers: Sequence[Header]) -> Iterator[Statement]:
    # Some sites send this field, but it is documented for robots.txt only.
    for header in headers:
        yield from read_signal(
            header[1], place=Place.HEADER, flags=(Flag.NONSTANDARD,), raw=_text(header)
        )


def _ai_training(headers: Sequence[Header]) -> Iterator[Statement]:
    """DisallowAITraining and AllowAITraining of draft-canel-robots-ai-control-00.

    The draft gives them no value in a header, so any value states them.
    """
    for header in headers:
        value = header[1].strip()
        yield Statement(
            signal=Signal.AI_TRAINING,
            place=Place.HEADER,
            rule=header[0].lower(),
            raw=_text(header),
            flags=(Flag.MALFORMED,) if is_no(value) else (),
        )


def _price(headers: Sequence[Header]) -> Iterator[Statement]:
    for header in headers:
        if header[1].strip():
            yield _payment("crawler-price", header[1].strip()[:RAW_CAP], header)


_READERS: dict[str, Callable[[Sequence[Header]], Iterable[Statement]]] = {
    "x-robots-tag": _x_robots_tag,
    "robots-tag": _robots_tag,
    "content-usage": _content_usage,
    "content-signal": _content_signal,
    "disallowaitraining": _ai_training,
    "allowaitraining": _ai_training,
    "crawler-price": _price,
}
#: The fields that are read: those with a reader, and those that `_statements` reads together.
FIELDS = frozenset((*_READERS, tdmrep.RESERVATION, tdmrep.POLICY, "link", "www-authenticate"))


def _unread(signal: Signal, rules: Iterable[str], value: str) -> Iterable[Statement]:
    for rule in sorted(rules):
        yield Statement(
            signal=signal, place=Place.HEADER, rule=rule, value=value, flags=(Flag.MALFORMED,)
        )


def _denials(name: str, text: str) -> Iterable[Statement]:
    """The statements of a field that is too long to be read: it denies all that it can deny."""
    if name == Signal.CONTENT_USAGE:
        return _unread(Signal.CONTENT_USAGE, USAGE_LABELS, "n")
    if name == Signal.CONTENT_SIGNAL:
        return _unread(Signal.CONTENT_SIGNAL, SIGNAL_LABELS, "no")
    return unread_rules(text, signal=Signal(name), place=Place.HEADER)


def _reservations(lines: Mapping[str, Sequence[Header]]) -> Iterable[Statement]:
    reservations = lines[tdmrep.RESERVATION]
    return tdmrep.read_values(
        [value for _, value in reservations],
        [value for _, value in lines.get(tdmrep.POLICY, ())],
        place=Place.HEADER,
        raws=list(map(_text, reservations)),
    )


def _demands_license(header: Header) -> bool:
    """Whether one of the challenges in a header has the scheme License."""
    return _LICENSE_SCHEME.search(_QUOTED.sub('""', header[1])) is not None


def _license_demand(header: Header) -> Statement:
    return _payment("license-required", True, header)


def _payment(rule: str, value: str | bool, header: Header) -> Statement:
    return Statement(
        signal=Signal.PAYMENT, place=Place.HEADER, rule=rule, value=value, raw=_text(header)
    )
