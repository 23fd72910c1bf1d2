"""Lines to groups: which crawlers each rule of a document is for.

Invariant: a group is stored once and shared by the agents it names (a file of n agents and n rules
costs n, not n times n), and lines that are not rules are kept with their numbers. A rule is stored
as two list entries, other lines as records; text for people is derived from them on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from msgspec import Struct

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import (
    COMMENT,
    HASH,
    SPELLINGS,
    Line,
    Record,
    clean,
    field_and_value,
    lines,
    may_be_mended,
    tame_lines,
)


class Group(Struct):
    """A run of User-agent lines and the lines that follow it (RFC 9309 section 2.2).

    A rule is a row and a value. The row is twice its line number, plus one for an Allow.
    """

    agents: list[Record] = []
    rows: list[int] = []
    values: list[bytes] = []
    others: list[Record] = []  # the lines that are neither User-agent nor rule

    @property
    def rules(self) -> list[Record]:
        """The rules as records."""
        rules = zip(self.rows, self.values, strict=True)
        return [(row >> 1, b"allow" if row & 1 else b"disallow", value) for row, value in rules]

    @property
    def title(self) -> str:
        """The User-agent values as written, each once."""
        return _title(self.agents)


def _title(agents: Sequence[Record]) -> str:
    if len(agents) == 1:
        return agents[0][2][:512].decode("utf-8", "replace")
    values = dict.fromkeys(value for _, _, value in agents[:32])
    return b", ".join(values).decode("utf-8", "replace")[:512]


_BY_STAR = "named *"
_BY_NOTHING = "no group applies"


class Selection(Struct, frozen=True):
    """The groups that apply to a crawler, and why."""

    groups: list[Group]
    why: str

    @property
    def rules(self) -> tuple[list[int], list[bytes]]:
        """Rows and values of all groups together."""
        if len(self.groups) == 1:
            return self.groups[0].rows, self.groups[0].values
        rows = [row for group in self.groups for row in group.rows]
        return rows, [value for group in self.groups for value in group.values]

    @property
    def title(self) -> str | None:
        """The User-agent values of the groups as written, or None when no group applies."""
        if len(self.groups) == 1:
            return _title(self.groups[0].agents)
        if not self.groups:
            return None
        return _title([agent for group in self.groups for agent in group.agents])


class Robots(Struct):
    """A parsed file. `loose` contains the lines outside any group."""

    dialect: Dialect
    text: bytes
    loose: Group
    groups: list[Group] = []
    void: list[Group] = []  # groups without a rule, in dialects that require one
    fields: set[bytes] = set()  # of the lines that are neither User-agent nor rule
    has_split_lines: bool = False  # one line of the text was several of its author

    @property
    def strays(self) -> list[Record]:
        """The rules outside any group."""
        return self.loose.rules

    @property
    def others(self) -> list[Record]:
        """The lines that are neither User-agent nor rule, whatever their group."""
        groups = (self.loose, *self.void, *self.groups)
        return sorted(record for group in groups for record in group.others)

    def lines(self) -> list[Line]:
        """Every line of the file that has a field or a value, for reports."""
        return list(lines(self.text, self.dialect))

    def select(self, token: str) -> Selection:
        """The groups that apply to a crawler of this name in the dialect."""
        dialect = self.dialect
        name = _name(token, dialect.product_tokens, dialect.plain_meaning)
        names: Sequence[str] = (name,)
        if name in dialect.aliases:
            names = dialect.aliases[dialect.aliases.index(name) :]
        for alias in names:
            if named := self._named(alias):
                return Selection(named, f"named {alias}")
        default = self._default()
        return Selection(default, _BY_STAR if default else _BY_NOTHING)

    def names(self, token: str) -> bool:
        """Whether a group names this crawler, and not only every crawler."""
        mended = self.mended(token) or self
        return mended.select(token).why not in (_BY_STAR, _BY_NOTHING)

    def mended(self, token: str) -> Robots | None:
        """This file as its author meant it for this crawler; None if that is as it is written.

        Each User-agent line is all the names on it, slips in fields are corrected, and lines in a
        line are separated. By the grammar they are not, and a correction can open what the letter
        closes. So this is a second reading, beside the first.
        """
        if not self.dialect.plain_meaning:
            return None
        if not self._lists(token) and not may_be_mended(self.text, self.fields):
            return None
        mended = parse_clean(self.text, replace(self.dialect, mends=True))
        if (mended.loose, mended.groups) == (self.loose, self.groups):
            return None
        return mended

    def _lists(self, token: str) -> bool:
        """Whether a User-agent line has the name of this crawler, but not as its first."""
        if not self.dialect.product_tokens:
            return False
        name = _name(token, self.dialect.product_tokens, self.dialect.plain_meaning)
        if not name or not self._may_name(name):
            return False
        return any(_has_further_name(group, name) for group in self.groups)

    def _may_name(self, name: str) -> bool:
        """Whether the file can contain the name at all. A fast check, because most files name few
        crawlers."""
        # The operator "in" is slower, because it also accepts a number.
        return self.text.lower().find(name.encode()) >= 0

    def _named(self, name: str) -> list[Group]:
        if not name or (self.dialect.names == "token" and not self._may_name(name)):
            return []
        fit = _fit_of_token if self.dialect.names == "token" else _fit_of_substring
        fitting = [
            (group, close) for group in self.groups if (close := fit(group, name, self.dialect))
        ]
        if self.dialect.several == "first":
            del fitting[1:]
        elif self.dialect.several == "longest":
            closest = max((close for _, close in fitting), default=0)
            fitting = [(group, close) for group, close in fitting if close == closest]
        return [group for group, _ in fitting]

    def _default(self) -> list[Group]:
        found = []
        for group in self.groups:
            for _, _, value in group.agents:
                if value == b"*" or (_STAR in value and _is_star(value, self.dialect)):
                    found.append(group)
                    break
        if self.dialect.several == "first":
            return found[:1]
        return found

    def others_for(self, selection: Selection) -> list[Record]:
        """The lines of the selected groups that are not rules."""
        if len(selection.groups) == 1 and not self.dialect.delay_from_star:
            return selection.groups[0].others
        found = [record for group in selection.groups for record in group.others]
        if self.dialect.delay_from_star:
            stars = [record for group in self._default() for record in group.others]
            found += [
                record for record in stars if record[1] == b"crawl-delay" and record not in found
            ]
        return found


# --- Names ---

#: A crawler's own name as a regular expression: a product token, which may have digits and dots.
NAME = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
# RFC 9309 section 2.2.1 allows letters, "_" and "-". Values and names are truncated at the first
# other character: ignoring a group because of a version after its name would fail open.
_TOKEN = re.compile(rb"[A-Za-z_-]*")
# The names of many crawlers have digits or dots, such as AI2Bot. Such a name is compared in full.
_FULL_NAME = re.compile(NAME.encode())
_STAR = ord("*")


def can_compare(name: str, dialect: Dialect) -> bool:
    """Whether a dialect can tell a crawler of this name from others.

    A dialect that compares letters, "_" and "-" only would take AI2Bot for AI, and 360Spider for a
    crawler without a name.
    """
    parts = dialect.parts or (dialect,)
    return all(
        part.plain_meaning
        or not part.product_tokens
        or _is_letters(name.encode("utf-8", "replace"))
        for part in parts
    )


def _is_letters(name: bytes) -> bool:
    return _TOKEN.fullmatch(name) is not None


@lru_cache(maxsize=256)
def _name(token: str, by_token: bool, may_have_digits: bool) -> str:
    """The crawler's name as the dialect compares it: in lower case and without version."""
    if not by_token:
        return token.partition("/")[0].strip().lower()
    text = token.strip().encode("utf-8", "replace")
    return _full_name(text) if may_have_digits else _token(text)


def _token(value: bytes) -> str:
    found = _TOKEN.match(value)
    if found:
        return found[0].decode("ascii").lower()
    return ""


def _full_name(value: bytes) -> str:
    found = _FULL_NAME.match(value)
    if found:
        return found[0].decode("ascii").lower()
    return ""


def _reader_of(name: str) -> Callable[[bytes], str]:
    """How the names in a file are read for a crawler of this name.

    A name with digits or dots is compared in full. For any other, the names in the file are cut to
    their letters: Google's library, too, takes "bot1" for the crawler "bot".
    """
    return _token if _is_letters(name.encode()) else _full_name


def _has_further_name(group: Group, name: str) -> bool:
    """Whether a User-agent line of a group has this name, but not as its first."""
    wanted = name.encode()
    read = _reader_of(name)
    for _, _, value in group.agents:
        # Most values do not contain the name.
        if value.lower().find(wanted) > 0:
            _, *further = value.split(b",")
            if any(read(each.strip()) == name for each in further):
                return True
    return False


def _split_names(group: Group) -> None:
    """Split each User-agent line into the names on it. They are separated by commas only, because a
    name may have spaces, such as "Offline Explorer"."""
    group.agents[:] = [
        (number, field, name.strip())
        for number, field, value in group.agents
        for name in value.split(b",")
    ]


def _fit_of_token(group: Group, name: str, dialect: Dialect) -> int:  # noqa: ARG001  (like _fit_of_substring)
    """How closely a group names this crawler; 0: not at all."""
    wanted = name.encode("ascii")
    size = len(wanted)
    read = _reader_of(name)
    for _, _, value in group.agents:
        # Compare the beginning first: most values in a long file name other crawlers.
        if value[:size].lower() == wanted and read(value) == name:
            return size
    return 0


def _fit_of_substring(group: Group, name: str, dialect: Dialect) -> int:
    return max((_likeness(value, name, dialect) for _, _, value in group.agents), default=0)


def _likeness(value: bytes, name: str, dialect: Dialect) -> int:
    texts = [value]
    if dialect.names_per_line == "many":
        texts = value.split()
    return max(
        (
            _substring(_compared(text, name, dialect), name, dialect)
            for text in texts
            if text != b"*"
        ),
        default=0,
    )


def _compared(value: bytes, name: str, dialect: Dialect) -> str:
    """The part of a value that is compared: a token, a name without its version, or all of the
    value."""
    if dialect.product_tokens:
        return _reader_of(name)(value)
    if dialect.names != "name_in_value":
        value = value.partition(b"/")[0].strip()
    return value.decode("utf-8", "replace").lower()


def _substring(text: str, name: str, dialect: Dialect) -> int:
    needle, hay = name, text
    if dialect.names == "value_in_name":
        needle, hay = text, name
    if needle and needle in hay:
        return len(needle)
    return 0


def _is_star(value: bytes, dialect: Dialect) -> bool:
    """Whether a value means every crawler.

    "* all bots" does in dialects that truncate values at the first non-token character, and so does
    a star in a list of names.
    """
    if value == b"*":
        return True
    if dialect.product_tokens and dialect.plain_meaning:
        return _STAR_ALONE.search(value) is not None
    if dialect.names_per_line == "many":
        return b"*" in value.split()
    return dialect.product_tokens and value[:1] == b"*" and value[1:2].isspace()


# A star instead of a name: not "*bot", "bot*" or "bot *".
_STAR_ALONE = re.compile(rb"(?:\A|,)[\s\"']*\*(?=[\s,;\"'<]|\Z)")


# --- Parsing ---


def parse(body: bytes, dialect: Dialect) -> Robots:
    """Parse a document into groups. Never raises on any bytes."""
    return parse_clean(clean(body), dialect)


def parse_clean(text: bytes, dialect: Dialect) -> Robots:
    """Parse the text of a document, as `clean` returns it."""
    robots = Robots(dialect, text, Group())
    raws, numbers = tame_lines(robots.text, dialect)
    _sort(raws, robots)
    if dialect.product_tokens and dialect.mends:
        for group in robots.groups:
            _split_names(group)
    if numbers:
        robots.has_split_lines = True
        for group in (robots.loose, *robots.groups):
            _renumber(group, numbers)
    if dialect.blank_line_ends:
        # A record without a rule is invalid (1994, 1996), so it must not hide the one for "*".
        robots.void = [group for group in robots.groups if not group.rows]
        robots.groups = [group for group in robots.groups if group.rows]
    return robots


def _renumber(group: Group, numbers: list[int]) -> None:
    """Number the lines of a group as in the file, where several of them were one."""
    group.rows[:] = [2 * numbers[(row >> 1) - 1] + (row & 1) for row in group.rows]
    for records in (group.agents, group.others):
        records[:] = [(numbers[number - 1], field, value) for number, field, value in records]


def _sort(raws: Iterable[bytes], robots: Robots) -> None:
    """Sort the lines into groups. One long loop, for speed: it processes every line of every
    file."""
    dialect, groups, group = robots.dialect, robots.groups, robots.loose
    usual, ends_at_blank = SPELLINGS.get, dialect.blank_line_ends
    allow = b"allow" if dialect.allow else b"disallow"
    rows, values = group.rows, group.values
    closed = True  # the next User-agent line starts a group
    for number, raw in enumerate(raws, 1):
        key, colon, value = raw.partition(b":")
        field = usual(key)
        if field is not None and colon and HASH not in value:
            value = value.strip()
        elif raw:
            if raw[0] == HASH:
                continue
            field, value = field_and_value(raw, dialect)
            if field == COMMENT:
                continue
        elif not ends_at_blank:
            continue
        if field == b"disallow" or field == allow:
            rows.append(2 * number + (field != b"disallow"))
            values.append(value)
            closed = True
        elif field == b"user-agent":
            if closed:
                group = Group()
                groups.append(group)
                rows, values = group.rows, group.values
                closed = False
            group.agents.append((number, field, value))
        elif field:
            group.others.append((number, field, value))
            robots.fields.add(field)
            closed = closed or field in dialect.closing
        elif ends_at_blank:
            group, closed = robots.loose, True
            rows, values = group.rows, group.values
