"""Checks of rules one by one: does the path mean to a crawler what it meant to its author?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from robots_guard.lint.experiments import as_target, judging, matching
from robots_guard.lint.finding import Ask, Note, Severity, Table
from robots_guard.lint.page import RULES, Item, Page, quoted
from robots_guard.rep.dialect import Dialect
from robots_guard.rep.robots import Group

TABLE = Table()

_ABSOLUTE = re.compile(rb"(?i)(?:[a-z][a-z0-9+.-]*:)?//[^/]+\.[^/]+|[a-z][a-z0-9+.-]*://")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Only what stands in hardly any real path: ".*" does, as in "/report.*".
_REGULAR = re.compile(rb"^\^|\\[.dwsb/?+]|\[(?:0-9|a-z|A-Z|\^/)[^\]]*\]|\(\?:|\([^()]*\|[^()]*\)")


@TABLE.line("RG301", "no-first-slash", Severity.ERROR, "The path does not begin with a slash.", *RULES)
def _no_slash(item: Item, _: Page) -> Iterator[Note]:
    if item.value and item.value[:1] not in b"/*" and not _is_absolute(item.value) and not _REGULAR.search(item.value):
        path = _literal(item.value.split()[0])
        yield Note(item.number, "the path does not begin with /", matching(item, as_target(path)))


@TABLE.line("RG302", "absolute-url", Severity.ERROR, "A whole URL stands where a path belongs.", *RULES)
def _absolute(item: Item, _: Page) -> Iterator[Note]:
    if _is_absolute(item.value):
        target = as_target(_path_of(item.value))
        yield Note(item.number, f"write the path only, such as {quoted(target.encode())}", matching(item, target))


def _is_absolute(value: bytes) -> bool:
    return _ABSOLUTE.match(value) is not None


def _path_of(value: bytes) -> bytes:
    try:
        parts = urlsplit(value.split()[0])
    except ValueError:
        return b"/"
    return parts.path or b"/"


@TABLE.line("RG303", "space-in-path", Severity.WARNING, "The path holds a space: several paths to some.", *RULES)
def _space(item: Item, _: Page) -> Iterator[Note]:
    words = item.value.split()
    if len(words) > 1:
        paths = [as_target(_literal(word)) for word in words[:3] if word.startswith(b"/")]
        whole = as_target(_literal(item.value))
        yield Note(
            item.number,
            "a line holds one path: give each a line, or write a space within a path as %20",
            matching(item, *paths, whole),
        )


@TABLE.line("RG304", "wildcard", Severity.NOTE, "The * is no wildcard to some dialects.", *RULES, once=True)
def _wildcard(item: Item, page: Page) -> Iterator[Note]:
    if b"*" in item.value and item.value != b"*" and not all(dialect.wildcards for dialect in page.dialects):
        yield Note(
            item.number, "* is a wildcard to some and itself to others", matching(item, as_target(_literal(item.value)))
        )


@TABLE.line("RG305", "dollar", Severity.NOTE, "The $ at the end is no anchor to some dialects.", *RULES, once=True)
def _dollar(item: Item, page: Page) -> Iterator[Note]:
    if item.value.endswith(b"$") and any(dialect.dollar == "literal" for dialect in page.dialects):
        end = as_target(_literal(item.value))
        yield Note(
            item.number, "$ at the end is an anchor to some and itself to others", matching(item, end, end + "x")
        )


@TABLE.line(
    "RG306", "dollar-inside", Severity.WARNING, "A $ before the end is itself to some and the end to others.", *RULES
)
def _dollar_inside(item: Item, _: Page) -> Iterator[Note]:
    path, dollar, rest = item.value.partition(b"$")
    if dollar and rest:
        targets = as_target(_literal(path)), as_target(_literal(item.value))
        yield Note(item.number, "$ is an anchor at the end only; elsewhere write %24", matching(item, *targets))


@TABLE.line(
    "RG307",
    "star-alone",
    Severity.WARNING,
    "The path is * alone, which is everything to some, nothing to others.",
    *RULES,
)
def _star(item: Item, _: Page) -> Iterator[Note]:
    if item.value == b"*":
        yield Note(item.number, "write / for everything", matching(item, "/page"))


@TABLE.line("RG308", "allow", Severity.NOTE, "Some dialects know no Allow.", b"allow", once=True)
def _allow(item: Item, page: Page) -> Iterator[Note]:
    if not all(dialect.allow for dialect in page.dialects):
        yield Note(item.number, "some know no Allow")


@TABLE.line("RG309", "empty-allow", Severity.WARNING, "An Allow without a path does nothing.", b"allow")
def _empty_allow(item: Item, _: Page) -> Iterator[Note]:
    if not item.value:
        yield Note(item.number, "an Allow without a path does nothing: write Allow: / to allow everything")


@TABLE.group("RG310", "empty-disallow", Severity.NOTE, "An empty Disallow beside rules cancels none of them.")
def _empty_disallow(group: Group, _: Page) -> Iterator[Note]:
    if any(field == b"disallow" and value for _, field, value in group.rules):
        for number, field, value in group.rules:
            if field == b"disallow" and not value:
                yield Note(number, "an empty Disallow does nothing beside other rules of its group")


@TABLE.line(
    "RG311", "robots-txt", Severity.WARNING, "A rule forbids /robots.txt itself, which is always open.", b"disallow"
)
def _robots_txt(item: Item, _: Page) -> Iterator[Note]:
    if item.value in (b"/robots.txt", b"/robots.txt$"):
        yield Note(item.number, "/robots.txt must be fetched to be obeyed", judging(item, "/robots.txt"))


@TABLE.line(
    "RG312",
    "escape-spelling",
    Severity.NOTE,
    "The escapes have another usual spelling, which some tell apart.",
    *RULES,
    once=True,
)
def _spelling(item: Item, _: Page) -> Iterator[Note]:
    usual = _ESCAPE.sub(_usual, item.value)
    if usual != item.value:
        targets = as_target(_literal(item.value)), as_target(_literal(usual))
        yield Note(item.number, "some tell the spellings of an escape apart", matching(item, *targets))


def _usual(found: re.Match[bytes]) -> bytes:
    """RFC 3986 section 6.2.2: hexadecimal digits in upper case, unreserved characters as they are."""
    octet = int(found[1], 16)
    return bytes((octet,)) if octet in _UNRESERVED else found[0].upper()


@TABLE.line("RG313", "bad-escape", Severity.WARNING, "A % begins no escape.", *RULES)
def _bad_escape(item: Item, _: Page) -> Iterator[Note]:
    if _BAD_ESCAPE.search(item.value):
        yield Note(item.number, "a % that two hexadecimal digits do not follow is itself: write %25")


@TABLE.line("RG314", "not-ascii", Severity.NOTE, "The path holds raw octets outside ASCII.", *RULES, once=True)
def _not_ascii(item: Item, _: Page) -> Iterator[Note]:
    if not item.value.isascii() and _is_utf8(item.value):
        yield Note(item.number, "URLs carry escapes: write them", matching(item, as_target(_literal(item.value))))


@TABLE.line("RG315", "not-utf8", Severity.WARNING, "The path holds octets that are no UTF-8.", *RULES)
def _not_utf8(item: Item, _: Page) -> Iterator[Note]:
    if not _is_utf8(item.value):
        target = as_target(_literal(item.value))
        yield Note(
            item.number, "the octets are no UTF-8: save the file as UTF-8 or write escapes", matching(item, target)
        )


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


@TABLE.line(
    "RG316",
    "regular-expression",
    Severity.WARNING,
    "The path looks like a regular expression, which nobody reads.",
    *RULES,
)
def _regular(item: Item, _: Page) -> Iterator[Note]:
    if _REGULAR.search(item.value):
        yield Note(item.number, "paths are no regular expressions: only * and a final $ mean something")


@TABLE.file(
    "RG317",
    "advised-limits",
    Severity.NOTE,
    "The file holds more or longer rules than a dialect promises to read.",
    once=True,
)
def _limits(page: Page, _: Page) -> Iterator[Note]:
    for dialect in page.dialects:
        rules = [rule for group in page.readings[dialect.name].robots.groups for rule in group.rules]
        if dialect.advised_rules is not None and len(rules) > dialect.advised_rules:
            yield Note(rules[dialect.advised_rules][0], f"more than {dialect.advised_rules} rules", _only(dialect))
        if dialect.advised_octets is not None:
            for number, _field, value in rules:
                if len(value) > dialect.advised_octets:
                    yield Note(number, f"a rule of more than {dialect.advised_octets} octets", _only(dialect))


def _only(dialect: Dialect) -> Ask:
    return lambda other: "does not promise to read it" if other is dialect else None


def _literal(pattern: bytes) -> bytes:
    """A path that the pattern is meant to match."""
    return pattern.removesuffix(b"$").replace(b"*", b"x")
