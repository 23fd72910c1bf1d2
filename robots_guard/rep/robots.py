"""Lines to groups: what a document says to whom.

The law of this file: a group is stored once and shared by the agents it names, nothing is copied an agent
(a file of n agents and n rules costs n, not n times n), and lines that are no rules are kept with their numbers.
Lines are kept as records; text for people is made from them when somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from robots_guard.rep.dialect import Dialect
from robots_guard.rep.lines import COMMENT, SPELLINGS, Line, Record, bare_lines, clean, field_and_value, lines


@dataclass(slots=True)
class Group:
    """A run of User-agent lines and what follows it (RFC 9309 section 2.2)."""

    agents: list[Record]
    rules: list[Record]
    others: list[Record]

    @property
    def title(self) -> str:
        """The User-agent values as written, each once."""
        return _title(self.agents)


def _title(agents: Sequence[Record]) -> str:
    if len(agents) == 1:
        return agents[0][2][:512].decode("utf-8", "replace")
    values = dict.fromkeys(value for _, _, value in agents[:32])
    return b", ".join(values).decode("utf-8", "replace")[:512]


class Selection(NamedTuple):
    """The groups that apply to a crawler, and why these."""

    groups: tuple[Group, ...]
    why: str

    @property
    def title(self) -> str | None:
        """The User-agent values of the groups as written, or None when no group applies."""
        if len(self.groups) == 1:
            return self.groups[0].title
        return _title([agent for group in self.groups for agent in group.agents]) if self.groups else None


@dataclass(slots=True)
class Robots:
    """A parsed file. `others` are the lines that are neither User-agent nor rule, whatever their group."""

    dialect: Dialect
    text: bytes
    groups: list[Group]
    others: list[Record]
    strays: list[Record]  # rules that stand in no group
    void: list[Group]  # groups without a rule, where the dialect asks for one

    def lines(self) -> list[Line]:
        """Every line of the file that has a field or a value, for reports."""
        return list(lines(self.text, self.dialect))

    def select(self, token: str) -> Selection:
        """The groups for a crawler of this name, by the dialect's way of choosing."""
        name = _name(token, by_token=self.dialect.names == "token")
        tried = self.dialect.aliases if name in self.dialect.aliases else (name,)
        for alias in tried:
            named = self._named(alias)
            if named:
                return Selection(named, f"named {alias}")
        default = self._default()
        return Selection(default, "named *" if default else "no group applies")

    def _named(self, name: str) -> tuple[Group, ...]:
        if not name or not self._may_name(name):
            return ()
        fit = _fit_of_token if self.dialect.names == "token" else _fit_of_substring
        fitting = [(group, close) for group in self.groups if (close := fit(group, name, self.dialect))]
        if self.dialect.several == "first":
            del fitting[1:]
        elif self.dialect.several == "longest":
            closest = max((close for _, close in fitting), default=0)
            fitting = [(group, close) for group, close in fitting if close == closest]
        return tuple([group for group, _ in fitting])

    def _may_name(self, name: str) -> bool:
        """Does the name stand in the file at all? Most files name few crawlers, and this is quick."""
        return self.dialect.names != "token" or self.text.lower().find(name.encode("ascii")) >= 0

    def _default(self) -> tuple[Group, ...]:
        dialect = self.dialect
        found = [
            group
            for group in self.groups
            for _, _, value in group.agents
            if value == b"*" or (_STAR in value and _is_star(value, dialect))
        ]
        if len(found) > 1:
            found = list({id(group): group for group in found}.values())
        return tuple(found[:1] if dialect.several == "first" else found)

    def star_others(self) -> list[Record]:
        """The other lines of the * groups, for dialects that take Crawl-delay from there as well."""
        return [record for group in self._default() for record in group.others]


# --- Names ---

# RFC 9309 section 2.2.1 has letters, "_" and "-". A value is cut at the first other character and a name with
# it, for to skip a group because of a version behind its name would be to fail open.
_TOKEN = re.compile(rb"[A-Za-z_-]*")
_STAR = ord("*")


@lru_cache(maxsize=256)
def _name(token: str, *, by_token: bool) -> str:
    """The crawler's own name as the dialect compares it: in lower case and without version."""
    if by_token:
        return _token(token.strip().encode("utf-8", "replace"))
    return token.partition("/")[0].strip().lower()


def _token(value: bytes) -> str:
    found = _TOKEN.match(value)
    return found[0].decode("ascii").lower() if found else ""


def _fit_of_token(group: Group, name: str, dialect: Dialect) -> int:  # noqa: ARG001
    """How closely a group names this crawler; 0 is not at all."""
    wanted = name.encode("ascii")
    size = len(wanted)
    for _, _, value in group.agents:
        # The beginning first: most values in a long file are somebody else's.
        if value[:size].lower() == wanted and _token(value) == name:
            return size
    return 0


def _fit_of_substring(group: Group, name: str, dialect: Dialect) -> int:
    return max((_likeness(value, name, dialect) for _, _, value in group.agents), default=0)


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
    robots = Robots(dialect, clean(body), [], [], [], [])
    _sort(bare_lines(robots.text, dialect), robots)
    if dialect.blank_line_ends:
        # A record without a rule is no record at all (1994, 1996), so it must not hide the one for "*".
        robots.void = [group for group in robots.groups if not group.rules]
        robots.groups = [group for group in robots.groups if group.rules]
    return robots


def _sort(raws: Iterable[bytes], robots: Robots) -> None:
    """Fill the groups from the lines. One loop and long for that: every line of every file passes here."""
    dialect, groups = robots.dialect, robots.groups
    known = SPELLINGS.get
    allow = b"allow" if dialect.allow else b"disallow"
    group: Group | None = None
    add_rule = robots.strays.append
    closed = True  # the next User-agent line opens a group
    for number, raw in enumerate(raws, 1):
        key, colon, value = raw.partition(b":")
        name = known(key) if colon else None
        if name is not None:
            value = value.strip()
        elif raw == COMMENT:
            continue
        else:
            name, value = field_and_value(raw, dialect)
        if name == b"disallow" or name == allow:
            add_rule((number, name, value))
            closed = True
        elif name == b"user-agent":
            if closed or group is None:
                group = Group([], [], [])
                groups.append(group)
                add_rule = group.rules.append
                closed = False
            group.agents.append((number, name, value))
        elif name:
            closed = closed or name in dialect.closing
            record = (number, name, value)
            robots.others.append(record)
            if group is not None:
                group.others.append(record)
        elif dialect.blank_line_ends:
            group, closed, add_rule = None, True, robots.strays.append
