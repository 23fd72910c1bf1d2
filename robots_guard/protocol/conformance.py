"""Conformance: what the source of a dialect requires of a file, and the lines that violate it.

Invariant: a violation changes no verdict. Violations are reported to the author of a file; the
parser decides how a file with one is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
