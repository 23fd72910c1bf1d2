"""Checks of Crawl-delay, Request-rate, Visit-time, Sitemap and Host lines."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator

from robots_guard.protocol.directives import is_host_value
from robots_guard.protocol.lint.finding import CheckTable, Note, Severity, naming_a_host
from robots_guard.protocol.lint.page import Item, LintedFile, quoted

TABLE = CheckTable()

LONG_DELAY = 120.0  # seconds; a longer delay allows fewer than 720 pages a day

_NUMBER = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}")
_TIME = rb"(?:[01][0-9]|2[0-3])[0-5][0-9]"
_SPAN = rb"%b ?- ?%b" % (_TIME, _TIME)
_RATE = re.compile(
    rb"[0-9]{1,9} ?/ ?[0-9]{0,9} ?[smhd]?(?:ec|in)?(?: +%b)?(?: *(?:UTC|GMT))?" % _SPAN,
    re.IGNORECASE,
)
_VISIT = re.compile(rb"%b(?: *(?:UTC|GMT))?" % _SPAN, re.IGNORECASE)
_SITEMAP = re.compile(rb"https?://[^/\s:]+(?::[0-9]+)?(?:[/?]\S*)?", re.IGNORECASE)


@TABLE.line(
    "RG501",
    "crawl-delay-no-number",
    Severity.ERROR,
    "Crawl-delay is not a number of seconds.",
    b"crawl-delay",
)
def _no_number(item: Item, _: LintedFile) -> Iterator[Note]:
    if not _NUMBER.fullmatch(item.value):
        value = quoted(item.value) or "an empty value"
        yield Note(item.number, f"{value} is not a number of seconds, such as 10 or 0.5")


@TABLE.line(
    "RG502",
    "crawl-delay-long",
    Severity.WARNING,
    f"Crawl-delay is more than {LONG_DELAY:g} seconds.",
    b"crawl-delay",
)
def _long_delay(item: Item, _: LintedFile) -> Iterator[Note]:
    if _NUMBER.fullmatch(item.value) and float(item.value) > LONG_DELAY:
        pages = int(86_400 // float(item.value))
        message = f"{quoted(item.value)} seconds between pages allow {pages} pages a day"
        yield Note(item.number, message)


@TABLE.file(
    "RG503",
    "outside-group",
    Severity.WARNING,
    "A line that belongs to a group is outside any group.",
)
def _outside(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    first = page.robots.groups[0].agents[0][0] if page.robots.groups else len(page.raws) + 1
    for number, field, _value in page.robots.others:
        if number < first and field in (b"crawl-delay", b"request-rate", b"visit-time"):
            message = f"{quoted(field).capitalize()} precedes the first User-agent line"
            yield Note(number, f"{message}, so it applies to no crawler")


@TABLE.line(
    "RG504",
    "request-rate-malformed",
    Severity.WARNING,
    "Request-rate is malformed.",
    b"request-rate",
)
def _rate(item: Item, _: LintedFile) -> Iterator[Note]:
    if not _RATE.fullmatch(item.value):
        yield Note(
            item.number,
            "a rate is pages/period[s m h d], optionally with hours, such as 1/10s 0900-1700",
        )


@TABLE.line(
    "RG505", "visit-time-malformed", Severity.WARNING, "Visit-time is malformed.", b"visit-time"
)
def _visit(item: Item, _: LintedFile) -> Iterator[Note]:
    if not _VISIT.fullmatch(item.value):
        yield Note(item.number, "a visit time is two times of day in UTC, such as 0600-0845")


@TABLE.line(
    "RG506", "sitemap-not-absolute", Severity.WARNING, "Sitemap is not an absolute URL.", b"sitemap"
)
def _sitemap(item: Item, _: LintedFile) -> Iterator[Note]:
    if not _SITEMAP.fullmatch(item.value):
        yield Note(
            item.number, "a sitemap needs an absolute URL, such as https://example.com/sitemap.xml"
        )


@TABLE.line(
    "RG507",
    "invalid-host",
    Severity.WARNING,
    "Host is not a valid host name, so it is ignored.",
    b"host",
)
def _host(item: Item, _: LintedFile) -> Iterator[Note]:
    value = item.value.decode("utf-8", "replace")
    if not is_host_value(value):
        message = f"this is not a valid host: {_why_invalid(value.lower())}"
        yield Note(item.number, message, naming_a_host(item.value))


def _why_invalid(value: str) -> str:
    """The first of the faults that a Host value has."""
    return next(why for why, has_fault in _FAULTS if has_fault(value))


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value.partition(":")[0])
    except ValueError:
        return value.startswith("[") or value.count(":") > 1
    return True


def _name(value: str) -> str:
    return value.partition(":")[0]


def _bad_port(value: str) -> bool:
    _, colon, port = value.partition(":")
    return bool(colon) and not (port.isascii() and port.isdigit() and 0 < int(port[:9]) < 65_536)


_FAULTS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("it is empty", lambda value: not value),
    ("it is a URL; write the host only", lambda value: "://" in value),
    ("it contains more than one name", lambda value: re.search(r"[\s,;]", value) is not None),
    ("it contains a path; write the host only", lambda value: "/" in value),
    ("it is an address, not a name", _is_address),
    ("its port is invalid", _bad_port),
    ("it is longer than 253 characters", lambda value: len(_name(value)) > 253),
    ("characters outside ASCII must be written as xn--...", lambda value: not value.isascii()),
    ("it has an empty label", lambda value: "" in _name(value).split(".")),
    ("it has no dot", lambda value: "." not in _name(value)),
    (
        "a label is longer than 63 characters",
        lambda value: any(len(part) > 63 for part in _name(value).split(".")),
    ),
    (
        "a label begins or ends with a hyphen",
        lambda value: any(part[:1] == "-" or part[-1:] == "-" for part in _name(value).split(".")),
    ),
    (
        "it contains a character that is not valid in host names",
        lambda value: re.fullmatch(r"[a-z0-9.-]*", _name(value)) is None,
    ),
    ("its top-level domain does not exist", lambda _: True),
)
