"""Rules that can never win: whatever they match, another rule decides.

The law of this file: no guess. Each rule is asked about one target of its own in which every wildcard, and the open
end, is a character that stands in no rule of the group. Another rule that decides this target can have met that
character only by a wildcard or an open end of its own, so it matches whatever the first one does; and it has
shown that it takes precedence. Groups are taken one by one, as each dialect parts them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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


@TABLE.file("RG401", "duplicate-rule", Severity.WARNING, "The rule says what another says already.")
def _duplicates(page: Page, _: Page) -> Iterator[Note]:
    for line, allow, found in _dead(page):
        if all(shadow.allow == allow for shadow in found.values()):
            yield Note(line, f"line {next(iter(found.values())).line} says it already", _deciding(found))


@TABLE.file("RG402", "overruled-rule", Severity.ERROR, "The rule never decides: another always overrules it.")
def _overruled(page: Page, _: Page) -> Iterator[Note]:
    for line, allow, found in _dead(page):
        against = [shadow for shadow in found.values() if shadow.allow != allow]
        if against:
            yield Note(line, f"line {against[0].line} ({against[0].text}) always overrules it", _deciding(found))


@TABLE.file("RG403", "overruled-for-some", Severity.NOTE, "The rule never decides for some dialects.", once=True)
def _overruled_for_some(page: Page, _: Page) -> Iterator[Note]:
    for line, allow, found in page.memo(_shadowed):
        against = {name: shadow for name, shadow in found.items() if shadow and shadow.allow != allow}
        if against and not _all_dead(found, page):
            yield Note(line, "another rule always overrules it for some", _deciding(found))


def _dead(page: Page) -> Iterator[tuple[int, bool, dict[str, Shadow]]]:
    """The rules that decide nowhere."""
    for line, allow, found in page.memo(_shadowed):
        if _all_dead(found, page):
            yield line, allow, {name: shadow for name, shadow in found.items() if shadow is not None}


def _all_dead(found: dict[str, Shadow | None], page: Page) -> bool:
    """Has every dialect another rule in its place? Those without Allow do not count, unless there are no others."""
    knowing = [shadow for name, shadow in found.items() if page.readings[name].dialect.allow]
    return all(knowing or found.values())


def _deciding(found: Mapping[str, Shadow | None]) -> Ask:
    def ask(dialect: Dialect) -> str | None:
        if dialect.name not in found:
            return None
        shadow = found[dialect.name]
        return f"line {shadow.line} decides ({shadow.text})" if shadow else "decides"

    return ask


def _shadowed(page: Page) -> list[tuple[int, bool, dict[str, Shadow | None]]]:
    """Each rule that is shadowed in some dialect: its line, whether it allows, and what each dialect has."""
    by_line: dict[int, dict[str, Shadow | None]] = defaultdict(dict)
    allows: dict[int, bool] = {}
    for reading in page.readings.values():
        for group in reading.robots.groups:
            for line, shadow in _of_group(group.rules[:MOST], reading.dialect).items():
                by_line[line][reading.dialect.name] = shadow
            allows.update((number, field == b"allow") for number, field, _ in group.rules)
    return [(line, allows[line], found) for line, found in sorted(by_line.items()) if any(found.values())]


def _of_group(rules: _Rules, dialect: Dialect) -> Shadows:
    own = [rule for rule in rules if _is_plain(rule, dialect)]
    stranger = _stranger(rules)
    if len(own) < 2 or stranger is None:
        return {}
    compiled = _compiled(rules, dialect)
    places = dict(enumerate(rules, 2))
    found: Shadows = {}
    for place, rule in places.items():
        if _is_plain(rule, dialect):
            target = _target(rule[2], stranger, dialect)
            decided = compiled.judge(target).rule
            if decided is not None and decided.line != place and _matches(rule, target, dialect):
                winner = places[decided.line]
                found[rule[0]] = Shadow(winner[0], winner[1] == b"allow", f"{_name(winner)}: {quoted(winner[2])}")
            else:
                found[rule[0]] = None
    return found


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


def _matches(rule: Record, target: str, dialect: Dialect) -> bool:
    return bool(_compiled([rule], dialect).matches(target))


def _name(rule: Record) -> str:
    return rule[1].decode().capitalize()
