"""Checks of groups: which crawlers are named, which rules apply to them, and what the source of a
dialect requires of them.

Invariant: a violation of a requirement changes no verdict. It is reported to the author of a file;
the parser decides how a file with one is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import Record
from robots_guard.protocol.lint.finding import Ask, CheckTable, Note, Severity, reaching, sharing
from robots_guard.protocol.lint.page import Item, LintedFile, cut, quoted
from robots_guard.protocol.robots import Group, Robots


class Violation(NamedTuple):
    """A requirement of the dialect that a line violates."""

    line: int
    issue: str


def violations(robots: Robots) -> list[Violation]:
    """Everything in a file that the dialect's source forbids, by line."""
    return sorted(
        each for name in robots.dialect.requirements for each in _REQUIREMENTS[name](robots)
    )


def _one_default_record(robots: Robots) -> Iterator[Violation]:
    lines = [line for group in _all(robots) for line, _, value in group.agents if value == b"*"]
    for line in lines[1:]:
        yield Violation(line, "more than one * record")


def _rules_in_every_record(robots: Robots) -> Iterator[Violation]:
    for group in robots.void:
        yield Violation(group.agents[0][0], "record without Disallow")


def _rules_in_every_group(robots: Robots) -> Iterator[Violation]:
    """rambler2003: each User-agent line starts a group, so all but the last of a run lack a
    Disallow."""
    for group in robots.groups:
        for line, _, _ in group.agents[: -1 if group.rules else None]:
            yield Violation(line, "group without Disallow")


def _one_agent_line_a_record(robots: Robots) -> Iterator[Violation]:
    for group in _all(robots):
        for line, _, _ in group.agents[1:]:
            yield Violation(line, "grammar has exactly one User-Agent line per record")


def _one_name_a_line(robots: Robots) -> Iterator[Violation]:
    for group in robots.groups:
        for line, _, value in group.agents:
            if len(value.split()) > 1:
                yield Violation(line, "more than one robot in a User-agent line")


def _one_line_a_name(robots: Robots) -> Iterator[Violation]:
    agents = [(line, value.lower()) for group in robots.groups for line, _, value in group.agents]
    seen: Counter[bytes] = Counter()
    for line, value in agents:
        seen[value] += 1
        if seen[value] > 1:
            yield Violation(line, "robot named in more than one User-agent line")


def _robots_txt_not_in_rules(robots: Robots) -> Iterator[Violation]:
    for group in robots.groups:
        for line, _, value in group.rules:
            if value == b"/robots.txt":
                yield Violation(line, "/robots.txt must not appear in rules")


def _allow_starts_at_root(robots: Robots) -> Iterator[Violation]:
    for group in robots.groups:
        for line, name, value in group.rules:
            if name == b"allow" and value[:1] != b"/":
                yield Violation(line, "Allow path must start with /")


def _all(robots: Robots) -> list[Group]:
    return sorted((*robots.groups, *robots.void), key=lambda group: group.agents[0][0])


_REQUIREMENTS: dict[str, Callable[[Robots], Iterator[Violation]]] = {
    "one_default_record": _one_default_record,
    "rules_in_every_record": _rules_in_every_record,
    "rules_in_every_group": _rules_in_every_group,
    "one_agent_line_a_record": _one_agent_line_a_record,
    "one_name_a_line": _one_name_a_line,
    "one_line_a_name": _one_line_a_name,
    "robots_txt_not_in_rules": _robots_txt_not_in_rules,
    "allow_starts_at_root": _allow_starts_at_root,
}


TABLE = CheckTable()

_NAME = re.compile(rb"[A-Za-z_][\w.-]*(?:/[\w.]*)?|\*")
_TOKEN = re.compile(rb"[A-Za-z_-]+|\*")  # RFC 9309 section 2.2.1
_BETWEEN = re.compile(rb"[\s,;|]+")
_CUT = re.compile(rb"[A-Za-z_-]*")


@TABLE.file(
    "RG201", "rule-outside-group", Severity.ERROR, "A rule precedes the first User-agent line."
)
def _outside(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, field, _value in page.robots.strays:
        yield Note(number, f"this {quoted(field).capitalize()} precedes the first User-agent line")


@TABLE.group(
    "RG202",
    "blank-line",
    Severity.WARNING,
    "A blank line inside a record ends it for some crawlers.",
)
def _blank_line(group: Group, page: LintedFile) -> Iterator[Note]:
    for dialect in page.dialects:
        if dialect.blank_line_ends:
            yield from _find_split(group, page, dialect)
            return


def _find_split(group: Group, page: LintedFile, dialect: Dialect) -> Iterator[Note]:
    reading = page.readings[dialect.name]
    first = group.agents[0][0]
    for number, _field, _value in group.rules:
        place = reading.at.get(number)
        if place is not None and place.kind == "stray" and page.has_blank(first, number):
            message = "a blank line separates this rule from its User-agent line"
            yield Note(number, f"{message}: some crawlers end the record there")
            return
    for number, _field, value in group.agents:
        if group.rules and reading.is_void(number) and page.has_blank(number, group.rules[0][0]):
            message = f"a blank line follows {quoted(value)}"
            yield Note(number, f"{message}: some crawlers read a record without rules")
            return


@TABLE.line(
    "RG203",
    "several-names",
    Severity.WARNING,
    "A User-agent line contains more than one name.",
    b"user-agent",
)
def _several(item: Item, _: LintedFile) -> Iterator[Note]:
    words = _BETWEEN.split(item.value)
    if len(words) > 1 and all(map(_NAME.fullmatch, words)):
        names = [word.partition(b"/")[0].decode("latin-1") for word in words[:4]]
        message = "a User-agent line contains one product token without spaces: give each name its own line"
        whole = "" if b"," in item.value else _text(item.value)
        yield Note(item.number, message, reaching(item.value, whole, *names))


@TABLE.line(
    "RG204",
    "odd-name",
    Severity.WARNING,
    "A name contains characters not valid in a product token.",
    b"user-agent",
)
def _odd(item: Item, _: LintedFile) -> Iterator[Note]:
    words = _BETWEEN.split(item.value)
    if (
        _TOKEN.fullmatch(item.value)
        or not item.value
        or (len(words) > 1 and all(map(_NAME.fullmatch, words)))
    ):
        return
    name = item.value.partition(b"/")[0].strip()
    yield Note(
        item.number,
        f"a product token has letters, - and _ only (RFC 9309 section 2.2.1): {quoted(item.value)} has others",
        reaching(item.value, _text(name), _text(_cut_name(name))),
    )


def _cut_name(value: bytes) -> bytes:
    found = _CUT.match(value)
    if found:
        return found[0]
    return b""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@TABLE.line(
    "RG205", "no-name", Severity.ERROR, "A User-agent line names no crawler.", b"user-agent"
)
def _no_name(item: Item, _: LintedFile) -> Iterator[Note]:
    if not item.value:
        yield Note(item.number, "this User-agent line names no crawler: write * for every crawler")


@TABLE.group(
    "RG206",
    "empty-group",
    Severity.WARNING,
    "A group has no rule, so everything is allowed to its crawlers.",
)
def _empty(group: Group, _: LintedFile) -> Iterator[Note]:
    if not group.rules:
        title = cut(group.title)
        message = f"the group for {title} has no rule, so everything is allowed: is that intended?"
        yield Note(group.agents[0][0], message)


@TABLE.file(
    "RG207",
    "name-again",
    Severity.WARNING,
    "A name has several groups, which not every crawler merges.",
)
def _again(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    first: dict[bytes, tuple[int, Record]] = {}
    for place, group in enumerate(page.robots.groups):
        for record in group.agents:
            number, _field, value = record
            token = b"*" if value == b"*" else _cut_name(value).lower()
            where, one = first.setdefault(token, (place, record))
            if token and where != place:
                message = f"{quoted(token)} already has a group, at line {one[0]}"
                yield Note(number, message, sharing(one[2], value, token))


@TABLE.group(
    "RG208",
    "line-between-names",
    Severity.WARNING,
    "A line between User-agent lines splits their group for some.",
)
def _between(group: Group, page: LintedFile) -> Iterator[Note]:
    last = group.agents[-1][0]
    for number, field, _value in group.others:
        if number < last:
            message = f"{_display_name(field)} is between two User-agent lines"
            yield Note(number, message, _ask_whether_split(group, number, page))


def _display_name(field: bytes) -> str:
    if field == b"?":
        return "a line"
    return quoted(field).capitalize()


def _ask_whether_split(group: Group, number: int, page: LintedFile) -> Ask:
    before = next((each for each in reversed(group.agents) if each[0] < number), group.agents[0])
    after = next(each for each in group.agents if each[0] > number)
    names = f"{quoted(before[2])} and {quoted(after[2])}"

    def ask(dialect: Dialect) -> str:
        at = page.readings[dialect.name].at
        one, other = at.get(before[0]), at.get(after[0])
        if one and other and one.group is other.group:
            return f"{names} share one group"
        return f"{names} are in separate groups"

    return ask


@TABLE.file(
    "RG209",
    "against-the-source",
    Severity.NOTE,
    "The file violates a requirement of a dialect's source.",
    once=True,
)
def _violations(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    """Report violations, which change no verdict; see protocol/lint/groups.py."""
    found: dict[tuple[int, str], list[str]] = {}
    for reading in page.readings.values():
        for violation in violations(reading.robots):
            found.setdefault((violation.line, violation.issue), []).append(reading.dialect.name)
    for (line, issue), names in sorted(found.items()):
        yield Note(line, issue, _forbidden_by(names))


def _forbidden_by(names: list[str]) -> Ask:
    return lambda dialect: "does not permit it" if dialect.name in names else None
