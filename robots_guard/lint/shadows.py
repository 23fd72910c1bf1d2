"""Rules that can never win: whatever they match, another rule decides.

The law of this file: no guess. Each rule is asked about one target of its own in which every wildcard, and the open
end, is a character that stands in no rule of the group. Another rule that decides this target can have met that
character only by a wildcard or an open end of its own, so it matches whatever the first one does; and it has
shown that it takes precedence. Groups are taken one by one, as each dialect parts them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robots_guard.lint.finding import Ask, Note, Severity, Table
from robots_guard.lint.page import Page, quoted
from robots_guard.rep.dialect import Dialect
from robots_guard.rep.lines import Record
from robots_guard.rep.ruleset import Ruleset, compile_rules

TABLE = Table()

MOST = 5_000  # rules of a group that are looked at
_STRANGERS = b"zqxjkvwyghmnprtuZQXJKVWYGHMNPRTU~_!'(),:@&=+"
_ODD = re.compile(rb"[^!-~]")
_Rules = Sequence[Record]


class Shadow(NamedTuple):
    """The rule that decides in the place of another."""

    line: int
    allow: bool
    text: str


Shadows = dict[int, Shadow | None]  # line of a rule -> what decides in its place, or None


class Shadowed(NamedTuple):
    """A rule, and what decides in its place in each dialect that reads it as one."""

    line: int
    allow: bool
    found: dict[str, Shadow | None]

    def deciders(self, page: Page) -> list[Shadow]:
        """What decides instead, where it does."""
        return [shadow for shadow in self._counted(page) if shadow is not None]

    def is_dead(self, page: Page) -> bool:
        """Does it decide for nobody?"""
        return all(self._counted(page))

    def _counted(self, page: Page) -> list[Shadow | None]:
        """Dialects without Allow know no contest, so they do not count, unless there are no others."""
        knowing = [shadow for name, shadow in self.found.items() if page.readings[name].dialect.allow]
        return knowing or list(self.found.values())


@TABLE.file("RG401", "duplicate-rule", Severity.WARNING, "The rule says what another says already.")
def _duplicates(page: Page, _: Page) -> Iterator[Note]:
    for rule in page.memo(_shadowed):
        alike = [shadow for shadow in rule.deciders(page) if shadow.allow == rule.allow]
        if alike and rule.is_dead(page):
            yield Note(rule.line, f"line {alike[0].line} says it already", _deciding(rule))


@TABLE.file("RG402", "overruled-rule", Severity.ERROR, "The rule never decides: another always overrules it.")
def _overruled(page: Page, _: Page) -> Iterator[Note]:
    for rule in page.memo(_shadowed):
        deciders = rule.deciders(page)
        if rule.is_dead(page) and all(shadow.allow != rule.allow for shadow in deciders):
            against = deciders[0]
            yield Note(rule.line, f"line {against.line} ({against.text}) always overrules it", _deciding(rule))


@TABLE.file("RG403", "overruled-for-some", Severity.NOTE, "The rule never decides for some dialects.", once=True)
def _overruled_for_some(page: Page, _: Page) -> Iterator[Note]:
    for rule in page.memo(_shadowed):
        against = [shadow for shadow in rule.deciders(page) if shadow.allow != rule.allow]
        if against and not rule.is_dead(page):
            yield Note(rule.line, "another rule always overrules it for some", _deciding(rule))


def _deciding(rule: Shadowed) -> Ask:
    def ask(dialect: Dialect) -> str | None:
        if dialect.name not in rule.found:
            return None
        shadow = rule.found[dialect.name]
        return f"line {shadow.line} decides ({shadow.text})" if shadow else "decides"

    return ask


def _shadowed(page: Page) -> list[Shadowed]:
    """The rules that are shadowed in some dialect."""
    found: dict[int, dict[str, Shadow | None]] = defaultdict(dict)
    allows: dict[int, bool] = {}
    for reading in page.readings.values():
        for group in reading.robots.groups:
            for line, shadow in _of_group(group.rules[:MOST], reading.dialect).items():
                found[line][reading.dialect.name] = shadow
            allows.update((number, field == b"allow") for number, field, _ in group.rules)
    return [Shadowed(line, allows[line], each) for line, each in sorted(found.items()) if any(each.values())]


def _of_group(rules: _Rules, dialect: Dialect) -> Shadows:
    own = [rule for rule in rules if _is_plain(rule, dialect)]
    stranger = _stranger(rules)
    if len(own) < 2 or stranger is None:
        return {}
    group = _Group(rules, dialect, stranger)
    return {rule[0]: group.shadow(place, rule) for place, rule in enumerate(rules) if _is_plain(rule, dialect)}


class _Group:
    """The rules of a group, compiled, and what has been asked of them."""

    def __init__(self, rules: _Rules, dialect: Dialect, stranger: bytes) -> None:
        self._rules, self._dialect, self._stranger = rules, dialect, stranger
        self._compiled = _compiled(rules, dialect)
        self._winners: dict[tuple[bytes, bytes], int | None] = {}

    def shadow(self, place: int, rule: Record) -> Shadow | None:
        """What decides in place of this rule."""
        _, field, value = rule
        if (field, value) not in self._winners:
            self._winners[field, value] = self._winner(rule)
        winner = self._winners[field, value]
        if winner is None or winner == place:
            return None
        number, field, value = self._rules[winner]
        return Shadow(number, field == b"allow", f"{field.decode().capitalize()}: {quoted(value)}")

    def _winner(self, rule: Record) -> int | None:
        """The place of the rule that decides the target of a rule that matches it."""
        target = _target(rule[2], self._stranger, self._dialect)
        decided = self._compiled.judge(target).rule
        own = decided is not None and _compiled([rule], self._dialect).matches(target)
        return decided.line - 2 if decided is not None and own else None


def _is_plain(rule: Record, dialect: Dialect) -> bool:
    """One path, that the rule can match at all."""
    value = rule[2]
    return value[:1] in (b"/", b"*") and len(value.split()) == 1 and not (dialect.index_page and b"/index.htm" in value)


def _stranger(rules: _Rules) -> bytes | None:
    present = frozenset(b"".join(value for _, _, value in rules))
    return next((bytes((octet,)) for octet in _STRANGERS if octet not in present), None)


def _target(value: bytes, stranger: bytes, dialect: Dialect) -> str:
    if dialect.wildcards:
        anchored = b"$" in value if dialect.dollar == "cuts" else value.endswith(b"$")
        path = value.partition(b"$")[0] if dialect.dollar == "cuts" else value.removesuffix(b"$")
        value = path.replace(b"*", stranger) + (b"" if anchored else stranger)
    else:
        value += stranger
    text = _ODD.sub(lambda found: b"%%%02X" % found[0][0], value).decode("ascii")
    return text if text.startswith("/") else "/" + text


def _compiled(rules: _Rules, dialect: Dialect) -> Ruleset:
    lines = b"".join(field + b": " + value + b"\n" for _, field, value in rules)
    return compile_rules(b"User-agent: *\n" + lines, dialect, "x", "spec")
