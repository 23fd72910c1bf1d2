"""Shadowed rules, which never decide: whatever they match, another rule decides.

Invariant: no guesses. Each rule is tested with one target that it matches, in which every wildcard
and the open end are a probe character that is in no rule of the group. If another rule decides this
target, it can have matched the probe character only by a wildcard or an open end of its own. So it
matches everything that the first rule matches, and it takes precedence. Groups are tested one by
one, as each dialect divides them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import Record
from robots_guard.protocol.lint.finding import Ask, CheckTable, Note, Severity
from robots_guard.protocol.lint.page import LintedFile, quoted
from robots_guard.protocol.ruleset import Ruleset, compile_rules

TABLE = CheckTable()

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
            "the linter compares no rule from this line to the end of the group with the others",
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
