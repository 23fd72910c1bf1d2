"""Lines to groups: what a document says to whom.

The law of this file: a group is stored once and shared by the agents it names, nothing is copied an agent
(a file of n agents and n rules costs n, not n times n), and lines that are no rules are kept with their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from robots_guard.rep.dialect import Dialect
from robots_guard.rep.lines import Line, Record, clean, lines, records, shown, shown_line

RawRule = tuple[int, bool, bytes]  # line number, is it an Allow, value


@dataclass(slots=True)
class Group:
    """A run of User-agent lines and what follows it (RFC 9309 section 2.2)."""

    agents: list[tuple[int, bytes]] = field(default_factory=list)
    rules: list[RawRule] = field(default_factory=list)
    records: list[Line] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The User-agent values as written."""
        shown = ", ".join(value.decode("utf-8", "replace") for _, value in self.agents[:32])
        return shown[:512]


class Selection(NamedTuple):
    """The groups that apply to a crawler, and why these."""

    groups: tuple[Group, ...]
    why: str

    @property
    def title(self) -> str | None:
        return ", ".join(group.title for group in self.groups)[:512] if self.groups else None


@dataclass(slots=True)
class Robots:
    """A parsed file. `records` are the lines that are neither User-agent nor rule, whatever their group."""

    dialect: Dialect
    text: bytes
    groups: list[Group]
    records: list[Line]
    strays: list[RawRule]  # rules that stand in no group

    def lines(self) -> list[Line]:
        """Every line of the file that has a field or a value, for reports."""
        return list(lines(self.text, self.dialect))

    def select(self, token: str) -> Selection:
        """The groups for a crawler of this name, by the dialect's way of choosing."""
        name = _name(token, self.dialect)
        tried = self.dialect.aliases if name in self.dialect.aliases else (name,)
        for alias in tried:
            named = self._named(alias)
            if named:
                return Selection(named, f"named {alias}")
        default = self._default()
        return Selection(default, "named *" if default else "no group applies")

    def _named(self, name: str) -> tuple[Group, ...]:
        found = [(group, _fit(group, name, self.dialect)) for group in self.groups] if name else []
        fitting = [(group, fit) for group, fit in found if fit]
        if self.dialect.several == "first":
            return tuple(group for group, _ in fitting[:1])
        if self.dialect.several == "longest":
            closest = max((fit for _, fit in fitting), default=0)
            return tuple(group for group, fit in fitting if fit == closest)
        return tuple(group for group, _ in fitting)

    def _default(self) -> tuple[Group, ...]:
        found = tuple(group for group in self.groups if any(_is_star(v, self.dialect) for _, v in group.agents))
        return found[:1] if self.dialect.several == "first" else found

    def star_records(self) -> list[Line]:
        """The records of the * groups, for dialects that take Crawl-delay from there as well."""
        return [record for group in self._default() for record in group.records]


# --- Names ---

# RFC 9309 section 2.2.1 has letters, "_" and "-". A value is cut at the first other character and a name with
# it, for to skip a group because of a version behind its name would be to fail open.
_TOKEN = re.compile(rb"[A-Za-z_-]*")


def _name(token: str, dialect: Dialect) -> str:
    """The crawler's own name as the dialect compares it: in lower case and without version."""
    if dialect.names == "token":
        return _token(token.strip().encode("utf-8", "replace"))
    return token.partition("/")[0].strip().lower()


def _token(value: bytes) -> str:
    found = _TOKEN.match(value)
    return found[0].decode("ascii").lower() if found else ""


def _fit(group: Group, name: str, dialect: Dialect) -> int:
    """How closely a group names this crawler; 0 is not at all."""
    if dialect.names == "token":
        # Length first: most values in a long file are somebody else's.
        size, wanted = len(name), name.encode("ascii")
        return max(
            (size for _, value in group.agents if value[:size].lower() == wanted and _token(value) == name), default=0
        )
    return max((_likeness(value, name, dialect) for _, value in group.agents), default=0)


def _likeness(value: bytes, name: str, dialect: Dialect) -> int:
    texts = value.split() if dialect.names_per_line == "many" else [value.partition(b"/")[0].strip()]
    fits = [_substring(text.decode("utf-8", "replace").lower(), name, dialect) for text in texts if text != b"*"]
    return max(fits, default=0)


def _substring(text: str, name: str, dialect: Dialect) -> int:
    needle, hay = (text, name) if dialect.names == "value_in_name" else (name, text)
    return len(needle) if needle and needle in hay else 0


def _is_star(value: bytes, dialect: Dialect) -> bool:
    """Does the value mean every crawler? "* all bots" does where a value is cut at its first foreign character."""
    if value == b"*":
        return True
    if dialect.names_per_line == "many":
        return b"*" in value.split()
    return dialect.names == "token" and value[:1] == b"*" and value[1:2].isspace()


# --- Parsing ---


def parse(body: bytes, dialect: Dialect) -> Robots:
    """The document as groups and records. Whatever the octets are, this raises nothing."""
    text = clean(body)
    robots = Robots(dialect, text, [], [], [])
    others = _sort(records(text, dialect), robots)
    if dialect.blank_line_ends:
        # A record without a rule is no record at all (1994, 1996), so it must not hide the one for "*".
        robots.groups = [group for group in robots.groups if group.rules]
    _keep_records(robots, others)
    return robots


def _sort(stream: Iterator[Record], robots: Robots) -> list[tuple[Record, Group | None]]:
    """Fill the groups from the stream; returns the lines that are neither User-agent nor rule.

    One loop and long for that: every line of every file passes here.
    """
    dialect, strays = robots.dialect, robots.strays
    allow = b"allow" if dialect.allow else b"\0"
    closing = {name.encode() for name in dialect.closing}
    blank_line_ends = dialect.blank_line_ends
    others: list[tuple[Record, Group | None]] = []
    group: Group | None = None
    closed = True  # the next User-agent line opens a group
    for record in stream:
        number, name, value = record
        if name == b"disallow" or name == allow:
            closed = True
            (group.rules if group is not None else strays).append((number, name == allow, value))
        elif name == b"user-agent":
            if closed or group is None:
                group = Group()
                robots.groups.append(group)
                closed = False
            group.agents.append((number, value))
        elif name:
            closed = closed or name in closing
            others.append((record, group))
        elif blank_line_ends:
            group, closed = None, True
    return others


def _keep_records(robots: Robots, others: list[tuple[Record, Group | None]]) -> None:
    raws = robots.text.splitlines() if others else []
    for (number, name, value), group in others:
        line = Line(number, shown(name), shown(value), shown_line(raws[number - 1]))
        robots.records.append(line)
        if group is not None:
            group.records.append(line)
