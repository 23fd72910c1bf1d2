"""Checks of single rules: does a crawler read the path as its author meant it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lint.experiments import as_target, judging, matching
from robots_guard.protocol.lint.finding import Ask, CheckTable, Note, Severity
from robots_guard.protocol.lint.page import RULES, Item, LintedFile, quoted
from robots_guard.protocol.robots import Group

TABLE = CheckTable()

_ABSOLUTE = re.compile(rb"(?i)(?:[a-z][a-z0-9+.-]*:)?//[^/]+\.[^/]+|[a-z][a-z0-9+.-]*://")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Only what hardly any real path contains; ".*" is in some, such as "/report.*".
_REGULAR = re.compile(rb"^\^|\\[.dwsb/?+]|\[(?:0-9|a-z|A-Z|\^/)[^\]]*\]|\(\?:|\([^()]*\|[^()]*\)")


@TABLE.line(
    "RG301", "no-first-slash", Severity.ERROR, "The path does not begin with a slash.", *RULES
)
def _no_slash(item: Item, _: LintedFile) -> Iterator[Note]:
    if (
        item.value
        and item.value[:1] not in b"/*"
        and not _is_absolute(item.value)
        and not _REGULAR.search(item.value)
    ):
        path = _literal(item.value.split()[0])
        yield Note(item.number, "the path does not begin with /", matching(item, as_target(path)))


@TABLE.line(
    "RG302", "absolute-url", Severity.ERROR, "The rule has a whole URL instead of a path.", *RULES
)
def _absolute(item: Item, _: LintedFile) -> Iterator[Note]:
    if _is_absolute(item.value):
        target = as_target(_path_of(item.value))
        yield Note(
            item.number,
            f"write the path only, such as {quoted(target.encode())}",
            matching(item, target),
        )


def _is_absolute(value: bytes) -> bool:
    return _ABSOLUTE.match(value) is not None


def _path_of(value: bytes) -> bytes:
    try:
        parts = urlsplit(value.split()[0])
    except ValueError:
        return b"/"
    return parts.path or b"/"


@TABLE.line(
    "RG303",
    "space-in-path",
    Severity.WARNING,
    "The path contains a space; some crawlers read several paths.",
    *RULES,
)
def _space(item: Item, _: LintedFile) -> Iterator[Note]:
    words = item.value.split()
    if len(words) > 1:
        paths = [as_target(_literal(word)) for word in words[:3] if word.startswith(b"/")]
        whole = as_target(_literal(item.value))
        yield Note(
            item.number,
            "a line contains one path: give each path its own line, or write a space in a path as %20",
            matching(item, *paths, whole),
        )


@TABLE.line(
    "RG304",
    "wildcard",
    Severity.NOTE,
    "The * is not a wildcard in some dialects.",
    *RULES,
    once=True,
)
def _wildcard(item: Item, page: LintedFile) -> Iterator[Note]:
    if (
        b"*" in item.value
        and item.value != b"*"
        and not all(dialect.wildcards for dialect in page.dialects)
    ):
        yield Note(
            item.number,
            "* is a wildcard in some dialects only",
            matching(item, as_target(_literal(item.value))),
        )


@TABLE.line(
    "RG305",
    "dollar",
    Severity.NOTE,
    "The $ at the end is not an anchor in some dialects.",
    *RULES,
    once=True,
)
def _dollar(item: Item, page: LintedFile) -> Iterator[Note]:
    if item.value.endswith(b"$") and any(dialect.dollar == "literal" for dialect in page.dialects):
        end = as_target(_literal(item.value))
        yield Note(
            item.number,
            "$ at the end is an anchor in some dialects only",
            matching(item, end, end + "x"),
        )


@TABLE.line(
    "RG306",
    "dollar-inside",
    Severity.WARNING,
    "A $ before the end is literal for some and an end for others.",
    *RULES,
)
def _dollar_inside(item: Item, _: LintedFile) -> Iterator[Note]:
    path, dollar, rest = item.value.partition(b"$")
    if dollar and rest:
        targets = as_target(_literal(path)), as_target(_literal(item.value))
        yield Note(
            item.number,
            "$ is an anchor at the end only: elsewhere, write %24",
            matching(item, *targets),
        )


@TABLE.line(
    "RG307",
    "star-alone",
    Severity.WARNING,
    "The path is * alone, which means everything to some crawlers and nothing to others.",
    *RULES,
)
def _star(item: Item, _: LintedFile) -> Iterator[Note]:
    if item.value == b"*":
        yield Note(item.number, "write / for everything", matching(item, "/page"))


@TABLE.line("RG308", "allow", Severity.NOTE, "Some dialects have no Allow.", b"allow", once=True)
def _allow(item: Item, page: LintedFile) -> Iterator[Note]:
    if not all(dialect.allow for dialect in page.dialects):
        yield Note(item.number, "some dialects have no Allow")


@TABLE.line(
    "RG309", "empty-allow", Severity.WARNING, "An Allow without a path has no effect.", b"allow"
)
def _empty_allow(item: Item, _: LintedFile) -> Iterator[Note]:
    if not item.value:
        yield Note(
            item.number, "an Allow without a path has no effect: write Allow: / to allow everything"
        )


@TABLE.group(
    "RG310", "empty-disallow", Severity.NOTE, "An empty Disallow does not cancel the other rules."
)
def _empty_disallow(group: Group, _: LintedFile) -> Iterator[Note]:
    if any(field == b"disallow" and value for _, field, value in group.rules):
        for number, field, value in group.rules:
            if field == b"disallow" and not value:
                yield Note(number, "an empty Disallow has no effect if its group has other rules")


@TABLE.line(
    "RG311",
    "robots-txt",
    Severity.WARNING,
    "A rule forbids /robots.txt itself, which is always allowed.",
    b"disallow",
)
def _robots_txt(item: Item, _: LintedFile) -> Iterator[Note]:
    if item.value in (b"/robots.txt", b"/robots.txt$"):
        yield Note(
            item.number, "crawlers must fetch /robots.txt to obey it", judging(item, "/robots.txt")
        )


@TABLE.line(
    "RG312",
    "escape-spelling",
    Severity.NOTE,
    "The escapes are not in normal form, which matters to some crawlers.",
    *RULES,
    once=True,
)
def _spelling(item: Item, _: LintedFile) -> Iterator[Note]:
    normal = _ESCAPE.sub(_normalize_escape, item.value)
    if normal != item.value:
        targets = as_target(_literal(item.value)), as_target(_literal(normal))
        yield Note(
            item.number,
            "some crawlers distinguish spellings of an escape",
            matching(item, *targets),
        )


def _normalize_escape(found: re.Match[bytes]) -> bytes:
    """Hexadecimal digits in upper case, unreserved characters decoded (RFC 3986 section 6.2.2)."""
    byte = int(found[1], 16)
    if byte in _UNRESERVED:
        return bytes((byte,))
    return found[0].upper()


@TABLE.line("RG313", "bad-escape", Severity.WARNING, "A % does not begin an escape.", *RULES)
def _bad_escape(item: Item, _: LintedFile) -> Iterator[Note]:
    if _BAD_ESCAPE.search(item.value):
        yield Note(
            item.number, "a % that is not followed by two hexadecimal digits is literal: write %25"
        )


@TABLE.line(
    "RG314",
    "not-ascii",
    Severity.NOTE,
    "The path contains raw bytes outside ASCII.",
    *RULES,
    once=True,
)
def _not_ascii(item: Item, _: LintedFile) -> Iterator[Note]:
    if not item.value.isascii() and _is_utf8(item.value):
        target = as_target(_literal(item.value))
        yield Note(item.number, "URLs are in ASCII: write escapes", matching(item, target))


@TABLE.line(
    "RG315", "not-utf8", Severity.WARNING, "The path contains bytes that are not UTF-8.", *RULES
)
def _not_utf8(item: Item, _: LintedFile) -> Iterator[Note]:
    if not _is_utf8(item.value):
        target = as_target(_literal(item.value))
        yield Note(
            item.number,
            "the bytes are not UTF-8: save the file as UTF-8 or write escapes",
            matching(item, target),
        )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@TABLE.line(
    "RG316",
    "regular-expression",
    Severity.WARNING,
    "The path looks like a regular expression, which no crawler supports.",
    *RULES,
)
def _regular(item: Item, _: LintedFile) -> Iterator[Note]:
    if _REGULAR.search(item.value):
        yield Note(
            item.number, "paths are not regular expressions: only * and a trailing $ are special"
        )


@TABLE.file(
    "RG317",
    "advised-limits",
    Severity.NOTE,
    "The file has more or longer rules than a dialect promises to read.",
    once=True,
)
def _limits(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for dialect in page.dialects:
        rules = [
            rule for group in page.readings[dialect.name].robots.groups for rule in group.rules
        ]
        if dialect.advised_rules is not None and len(rules) > dialect.advised_rules:
            yield Note(
                rules[dialect.advised_rules][0],
                f"more than {dialect.advised_rules} rules",
                _only(dialect),
            )
        if dialect.advised_bytes is not None:
            for number, _field, value in rules:
                if len(value) > dialect.advised_bytes:
                    yield Note(
                        number,
                        f"a rule of more than {dialect.advised_bytes} bytes",
                        _only(dialect),
                    )


def _only(dialect: Dialect) -> Ask:
    return lambda other: "does not promise to read it" if other is dialect else None


def _literal(pattern: bytes) -> bytes:
    """A path that the pattern is meant to match."""
    return pattern.removesuffix(b"$").replace(b"*", b"x")
