"""Checks of rules: does a crawler read the path as its author meant it, and does the rule ever decide?

Invariant: there are no guesses about shadowed rules, which never decide. Each rule is tested with
one target that it matches, in which every wildcard and the open end are a probe character that is
in no rule of the group. If another rule decides this target, it can have matched the probe
character only by a wildcard or an open end of its own. So it matches everything that the first rule
matches, and it takes precedence. Groups are tested one by one, as each dialect divides them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import Record
from robots_guard.protocol.lint.finding import (
    Ask,
    CheckTable,
    Note,
    Severity,
    as_target,
    judging,
    matching,
)
from robots_guard.protocol.lint.page import RULES, Item, LintedFile, quoted
from robots_guard.protocol.robots import Group
from robots_guard.protocol.ruleset import Ruleset, compile_rules

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


MOST = 5_000  # rules per group that are tested
#: Tested rules times asterisks of the rules that they may meet, in all groups and dialects of a file: some seconds
#: at most. One of 1,712 real files has more.
WORK = 25_000_000
FIRST_RULE = 2  # the line of the first rule in a compiled group, below its User-agent line
_PROBES = b"zqxjkvwyghmnprtuZQXJKVWYGHMNPRTU~_!'(),:@&=+"
_NOT_IN_URL = re.compile(rb"[^!-~]")
_Rules = Sequence[Record]


class Shadow(NamedTuple):
    """The rule that decides instead of another."""

    line: int
    allow: bool
    text: str


Shadows = dict[int, Shadow | None]  # line of a rule -> what decides instead, or None


class Shadowed(NamedTuple):
    """A rule, and what decides instead in each dialect that reads the line as a rule."""

    line: int
    allow: bool
    found: dict[str, Shadow | None]

    def deciders(self, page: LintedFile) -> list[Shadow]:
        """The rules that decide instead, in dialects where one does."""
        return [shadow for shadow in self._relevant(page) if shadow is not None]

    def is_dead(self, page: LintedFile) -> bool:
        """Whether the rule decides in no dialect."""
        return all(self._relevant(page))

    def _relevant(self, page: LintedFile) -> list[Shadow | None]:
        """The results in dialects with Allow, or in all if none has it: without Allow, rules do not
        conflict."""
        readings = page.readings
        with_allow = [shadow for name, shadow in self.found.items() if readings[name].dialect.allow]
        return with_allow or list(self.found.values())


class ShadowedRules(NamedTuple):
    """The shadowed rules of a file, and for each group the first line of the rules that were left out."""

    rules: list[Shadowed]
    untested: list[int]


@TABLE.file("RG401", "duplicate-rule", Severity.WARNING, "The rule repeats another rule.")
def _duplicates(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for rule in page.memo(_find_shadowed).rules:
        alike = [shadow for shadow in rule.deciders(page) if shadow.allow == rule.allow]
        if alike and rule.is_dead(page):
            yield Note(
                rule.line,
                f"line {alike[0].line} already has the same effect",
                _ask_who_decides(rule),
            )


@TABLE.file(
    "RG402",
    "overruled-rule",
    Severity.ERROR,
    "The rule never decides: another rule always overrides it.",
)
def _overruled(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for rule in page.memo(_find_shadowed).rules:
        deciders = rule.deciders(page)
        if rule.is_dead(page) and all(shadow.allow != rule.allow for shadow in deciders):
            against = deciders[0]
            message = f"line {against.line} ({against.text}) always overrides it"
            yield Note(rule.line, message, _ask_who_decides(rule))


@TABLE.file(
    "RG403",
    "overruled-for-some",
    Severity.NOTE,
    "The rule never decides in some dialects.",
    once=True,
)
def _overruled_for_some(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for rule in page.memo(_find_shadowed).rules:
        against = [shadow for shadow in rule.deciders(page) if shadow.allow != rule.allow]
        if against and not rule.is_dead(page):
            message = "another rule always overrides it in some dialects"
            yield Note(rule.line, message, _ask_who_decides(rule))


@TABLE.file(
    "RG404",
    "not-compared",
    Severity.NOTE,
    "There are too many rules or wildcards to find out whether each rule decides.",
)
def _not_compared(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for line in page.memo(_find_shadowed).untested:
        yield Note(
            line,
            "lint compares the rules from this line to the end of the group with no others",
            lambda _: None,
        )


def _ask_who_decides(rule: Shadowed) -> Ask:
    def ask(dialect: Dialect) -> str | None:
        if dialect.name not in rule.found:
            return None
        shadow = rule.found[dialect.name]
        if shadow:
            return f"line {shadow.line} decides ({shadow.text})"
        return "decides"

    return ask


def _find_shadowed(page: LintedFile) -> ShadowedRules:
    """Find the rules that are shadowed in some dialect."""
    found: dict[int, dict[str, Shadow | None]] = defaultdict(dict)
    allows: dict[int, bool] = {}
    untested: set[int] = set()
    work = WORK
    for reading in page.readings.values():
        for group in reading.robots.groups:
            meets = sum(value.count(b"*") for _, _, value in group.rules[:MOST])
            if not reading.dialect.wildcards:
                meets = 0
            most = min(MOST, work // meets) if meets else MOST
            work -= min(most, len(group.rules)) * meets
            for line, shadow in _shadows_of_group(
                group.rules[:MOST], reading.dialect, most
            ).items():
                found[line][reading.dialect.name] = shadow
            untested.update(line for line, _, _ in group.rules[most : most + 1])
            allows.update((number, field == b"allow") for number, field, _ in group.rules)
    shadowed = [
        Shadowed(line, allows[line], each)
        for line, each in sorted(found.items())
        if any(each.values())
    ]
    return ShadowedRules(shadowed, sorted(untested))


def _shadows_of_group(rules: _Rules, dialect: Dialect, most: int) -> Shadows:
    """Test the first `most` rules of a group."""
    plain = [(index, rule) for index, rule in enumerate(rules) if _is_plain(rule, dialect)]
    probe = _unused_character(rules)
    if len(plain) < 2 or probe is None:
        return {}
    group = _Group(rules, dialect, probe)
    return {rule[0]: group.shadow(index, rule) for index, rule in plain if index < most}


class _Group:
    """The compiled rules of a group, with a cache of results."""

    def __init__(self, rules: _Rules, dialect: Dialect, probe: bytes) -> None:
        self._rules, self._dialect, self._probe = rules, dialect, probe
        self._compiled = _compile(rules, dialect)
        self._winners: dict[tuple[bytes, bytes], int | None] = {}

    def shadow(self, index: int, rule: Record) -> Shadow | None:
        """The rule that decides instead of this one, or None."""
        _, field, value = rule
        if (field, value) not in self._winners:
            self._winners[field, value] = self._winner(rule)
        winner = self._winners[field, value]
        if winner is None or winner == index:
            return None
        number, field, value = self._rules[winner]
        return Shadow(number, field == b"allow", f"{field.decode().capitalize()}: {quoted(value)}")

    def _winner(self, rule: Record) -> int | None:
        """The index, in the group, of the rule that decides the test target of a rule; None if the
        rule does not match it."""
        _, _, value = rule
        target = _target(value, self._probe, self._dialect)
        decided = self._compiled.judge(target).rule
        own = decided is not None and _compile([rule], self._dialect).matches(target)
        if decided is not None and own:
            return decided.line - FIRST_RULE
        return None


def _is_plain(rule: Record, dialect: Dialect) -> bool:
    """Whether a rule has exactly one path, which it can match at all."""
    _, _, value = rule
    if dialect.index_page and b"/index.htm" in value:
        return False
    return value[:1] in (b"/", b"*") and len(value.split()) == 1


def _unused_character(rules: _Rules) -> bytes | None:
    present = frozenset(b"".join(value for _, _, value in rules))
    return next((bytes((byte,)) for byte in _PROBES if byte not in present), None)


def _target(value: bytes, probe: bytes, dialect: Dialect) -> str:
    if dialect.wildcards:
        anchored = b"$" in value if dialect.dollar == "cuts" else value.endswith(b"$")
        path = value.partition(b"$")[0] if dialect.dollar == "cuts" else value.removesuffix(b"$")
        value = path.replace(b"*", probe) + (b"" if anchored else probe)
    else:
        value += probe
    text = _NOT_IN_URL.sub(lambda found: b"%%%02X" % found[0][0], value).decode("ascii")
    if text.startswith("/"):
        return text
    return "/" + text


def _compile(rules: _Rules, dialect: Dialect) -> Ruleset:
    lines = b"".join(field + b": " + value + b"\n" for _, field, value in rules)
    return compile_rules(b"User-agent: *\n" + lines, dialect, "x", "spec")
