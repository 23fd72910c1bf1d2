"""Checks of the lines that are neither names nor rules: Crawl-delay, Request-rate, Visit-time, Sitemap, Host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator

from robots_guard.lint.experiments import naming_a_host
from robots_guard.lint.finding import Note, Severity, Table
from robots_guard.lint.page import Item, Page, quoted
from robots_guard.rep.host import is_host_value

TABLE = Table()

LONG_DELAY = 120.0  # seconds; a crawler that keeps to more sees fewer than 720 pages a day

_NUMBER = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}")
_TIME = rb"(?:[01][0-9]|2[0-3])[0-5][0-9]"
_SPAN = rb"%b ?- ?%b" % (_TIME, _TIME)
_RATE = re.compile(rb"[0-9]{1,9} ?/ ?[0-9]{0,9} ?[smhd]?(?:ec|in)?(?: +%b)?(?: *(?:UTC|GMT))?" % _SPAN, re.IGNORECASE)
_VISIT = re.compile(rb"%b(?: *(?:UTC|GMT))?" % _SPAN, re.IGNORECASE)
_SITEMAP = re.compile(rb"https?://[^/\s:]+(?::[0-9]+)?(?:[/?]\S*)?", re.IGNORECASE)


@TABLE.line("RG501", "crawl-delay-no-number", Severity.ERROR, "Crawl-delay is no number of seconds.", b"crawl-delay")
def _no_number(item: Item, _: Page) -> Iterator[Note]:
    if not _NUMBER.fullmatch(item.value):
        yield Note(item.number, f"{quoted(item.value) or 'nothing'} is no number of seconds, such as 10 or 0.5")


@TABLE.line(
    "RG502", "crawl-delay-long", Severity.WARNING, f"Crawl-delay is more than {LONG_DELAY:g} seconds.", b"crawl-delay"
)
def _long_delay(item: Item, _: Page) -> Iterator[Note]:
    if _NUMBER.fullmatch(item.value) and float(item.value) > LONG_DELAY:
        pages = int(86_400 // float(item.value))
        yield Note(item.number, f"{quoted(item.value)} seconds between pages are {pages} pages a day")


@TABLE.file("RG503", "outside-group", Severity.WARNING, "A line that is for a group's crawlers stands in no group.")
def _outside(page: Page, _: Page) -> Iterator[Note]:
    first = page.robots.groups[0].agents[0][0] if page.robots.groups else len(page.raws) + 1
    for number, field, _value in page.robots.others:
        if number < first and field in (b"crawl-delay", b"request-rate", b"visit-time"):
            yield Note(number, f"{quoted(field).capitalize()} stands before any User-agent line, so it is for nobody")


@TABLE.line("RG504", "request-rate-malformed", Severity.WARNING, "Request-rate is malformed.", b"request-rate")
def _rate(item: Item, _: Page) -> Iterator[Note]:
    if not _RATE.fullmatch(item.value):
        yield Note(item.number, "a rate is pages/period[s m h d] and perhaps hours, such as 1/10s 0900-1700")


@TABLE.line("RG505", "visit-time-malformed", Severity.WARNING, "Visit-time is malformed.", b"visit-time")
def _visit(item: Item, _: Page) -> Iterator[Note]:
    if not _VISIT.fullmatch(item.value):
        yield Note(item.number, "a visit time is two times of the day in UTC, such as 0600-0845")


@TABLE.line("RG506", "sitemap-not-absolute", Severity.WARNING, "Sitemap is no absolute URL.", b"sitemap")
def _sitemap(item: Item, _: Page) -> Iterator[Note]:
    if not _SITEMAP.fullmatch(item.value):
        yield Note(item.number, "a sitemap is named by its whole URL, such as https://example.com/sitemap.xml")


@TABLE.line("RG507", "invalid-host", Severity.WARNING, "Host names no host, so it is as if absent.", b"host")
def _host(item: Item, _: Page) -> Iterator[Note]:
    value = item.value.decode("utf-8", "replace")
    if not is_host_value(value):
        yield Note(item.number, f"this names no host: {_fault(value.lower())}", naming_a_host(item.value))


def _fault(value: str) -> str:
    """What is wrong with a Host value, the plainest first."""
    return next(why for why, wrong in _FAULTS if wrong(value))


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
    ("it holds more than one name", lambda value: re.search(r"[\s,;]", value) is not None),
    ("it holds a path; write the host only", lambda value: "/" in value),
    ("it is an address, not a name", _is_address),
    ("its port is no port", _bad_port),
    ("it is longer than 253 characters", lambda value: len(_name(value)) > 253),
    ("characters outside ASCII are written as xn--...", lambda value: not value.isascii()),
    ("it has an empty label", lambda value: "" in _name(value).split(".")),
    ("it has no dot", lambda value: "." not in _name(value)),
    ("a label is longer than 63 characters", lambda value: any(len(part) > 63 for part in _name(value).split("."))),
    (
        "a label begins or ends with a hyphen",
        lambda value: any(part[:1] == "-" or part[-1:] == "-" for part in _name(value).split(".")),
    ),
    (
        "it holds a character that no host name does",
        lambda value: re.fullmatch(r"[a-z0-9.-]*", _name(value)) is None,
    ),
    ("its top-level domain does not exist", lambda _: True),
)
