"""The file being linted: its lines and groups, and each dialect's reading of it.

Invariant: what a dialect does with a line is computed by the engine that judges requests, never
assumed. The lines and groups themselves are parsed in the default dialect, which is closest to what
an author means.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, cast

from robots_guard.protocol.dialect import DIALECTS, Dialect
from robots_guard.protocol.lines import Record, clean, records, shown
from robots_guard.protocol.robots import Group, Robots, parse
from robots_guard.text import counted, printable

BASE = DIALECTS["rfc9309"]
RULES = (b"allow", b"disallow")
KNOWN = (
    b"user-agent",
    b"disallow",
    b"allow",
    b"sitemap",
    b"crawl-delay",
    b"request-rate",
    b"visit-time",
    b"host",
    b"clean-param",
    b"content-usage",
    b"content-signal",
    b"license",
    b"noindex",
    b"nofollow",
    b"noarchive",
    b"robot-version",
    b"comment",
    b"content-signals",
)
_USED = frozenset(KNOWN[4:12])  # fields other than rules that are used
LONGEST_GUESS = 24  # bytes of a field name that is checked for a misspelling
MOST_GUESSES = 500  # different names that are checked
QUOTED = 80  # characters of the file quoted in a message
MOST_PATHS = 8  # paths of one line quoted in a message

T = TypeVar("T")


class Item(NamedTuple):
    """One line of the file. `written` is its field as written, in lower case; empty without a
    colon."""

    number: int
    written: bytes
    field: bytes  # with misspellings corrected; "?" if none
    value: bytes
    raw: bytes


class LintedFile:
    """A body, and the readings of it in the requested dialects."""

    def __init__(
        self, body: bytes, dialects: Sequence[Dialect], *, truncated: bool = False
    ) -> None:
        self.body = body
        self.truncated = truncated
        self.dialects = tuple(dialects)
        self.text = clean(body)
        self.raws = self.text.splitlines()
        self.robots = parse(body, BASE)
        self._guesses: dict[bytes, bytes | None] = {}
        self._memos: dict[Any, Any] = {}

    @cached_property
    def items(self) -> list[Item]:
        """Every line that is neither blank nor a comment."""
        found = []
        for number, field, value in records(self.text, BASE):
            if field:
                raw = self.raws[number - 1]
                key, colon, _ = raw.partition(b"#")[0].partition(b":")
                found.append(Item(number, key.strip().lower() if colon else b"", field, value, raw))
        return found

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """Each dialect's reading, by its name."""
        return {dialect.name: Reading(parse(self.body, dialect)) for dialect in self.dialects}

    @cached_property
    def _blanks(self) -> list[int]:
        return [number for number, raw in enumerate(self.raws, 1) if not raw.strip()]

    def has_blank(self, first: int, last: int) -> bool:
        """Whether there is a blank line between two lines."""
        place = bisect.bisect(self._blanks, first)
        return place < len(self._blanks) and self._blanks[place] < last

    @cached_property
    def is_html(self) -> bool:
        """Whether the file begins like a web page."""
        return (
            self.text.lstrip()[:64]
            .lower()
            .startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"))
        )

    @cached_property
    def is_wide(self) -> bool:
        """Whether there are so many NULs that the file must be UTF-16 without a byte order mark."""
        return len(self.text) > 8 and self.text.count(b"\0") > len(self.text) // 4

    def line(self, number: int) -> str:
        """A line as written, printable and limited in length; empty if there is no such line."""
        if not 0 < number <= len(self.raws):
            return ""
        return printable(shown(self.raws[number - 1].strip()).replace("\t", " "))

    def guess(self, name: bytes) -> bytes | None:
        """The field of which this name may be a misspelling, or None."""
        if (
            name not in self._guesses
            and len(name) <= LONGEST_GUESS
            and len(self._guesses) < MOST_GUESSES
        ):
            known = [field.decode() for field in KNOWN]
            near = difflib.get_close_matches(shown(name), known, n=1, cutoff=0.8)
            self._guesses[name] = near[0].encode() if near else None
        return self._guesses.get(name)

    def memo(self, work: Callable[[LintedFile], T]) -> T:
        """The result of a function of this file, computed once."""
        if work not in self._memos:
            self._memos[work] = work(self)
        return cast("T", self._memos[work])

    def concerns(self, agent: str) -> set[int]:
        """The lines that apply to a crawler of this name in any dialect, and those outside any
        group."""
        own: set[int] = set()
        grouped: set[int] = set()
        for reading in self.readings.values():
            chosen = {id(group) for group in reading.robots.select(agent).groups}
            for group in (*reading.robots.groups, *reading.robots.void):
                numbers = {
                    record[0]
                    for part in (group.agents, group.rules, group.others)
                    for record in part
                }
                grouped |= numbers
                if id(group) in chosen:
                    own |= numbers
        return own | (set(range(len(self.raws) + 1)) - grouped)


class LinePlace(NamedTuple):
    """The role of a line in a reading."""

    kind: Literal["agent", "rule", "stray", "other"]
    record: Record
    group: Group | None


class Reading:
    """One dialect's reading of the file: the role of each line."""

    def __init__(self, robots: Robots) -> None:
        self.robots = robots
        self.dialect = robots.dialect
        self.at = {place.record[0]: place for place in _places(robots)}
        self._void = {id(group) for group in robots.void}

    def does(self, number: int) -> str:
        """What the dialect does with a line, in a few words."""
        place = self.at.get(number)
        if place is None:
            return "not read"
        _, field, value = place.record
        if field in RULES and place.kind == "other":
            return f"not a rule: it has no {_name(field)}"
        if place.kind == "other":
            return self._describe_other(place)
        if self.is_void(number):
            return "ignored: the record has no rule"
        if place.kind == "agent":
            return _describe_agent(place.group, value)
        return _describe_rule(place, self.dialect)

    def is_void(self, number: int) -> bool:
        """Whether the line is in a record that is ignored because it has no rule."""
        place = self.at.get(number)
        return place is not None and id(place.group) in self._void

    def _describe_other(self, place: LinePlace) -> str:
        _, field, _ = place.record
        if field not in KNOWN:
            return "not read"
        if field == b"sitemap":
            return "noted for all crawlers"
        if field in _USED and (field != b"host" or self.dialect.host_directive):
            return f"noted {_for(place.group)}"
        return "not used"


def _places(robots: Robots) -> Iterator[LinePlace]:
    yield from (LinePlace("other", record, None) for record in robots.others)
    yield from (LinePlace("stray", record, None) for record in robots.strays)
    for group in (*robots.void, *robots.groups):
        yield from (LinePlace("other", record, group) for record in group.others)
        yield from (LinePlace("rule", record, group) for record in group.rules)
        yield from (LinePlace("agent", record, group) for record in group.agents)


def _describe_agent(group: Group | None, value: bytes) -> str:
    rules = len(group.rules) if group else 0
    count = "no rules"
    if rules:
        count = counted(rules, "rule")
    return f"a group for {quoted(value)} with {count}"


def _describe_rule(place: LinePlace, dialect: Dialect) -> str:
    _, field, value = place.record
    if place.kind == "stray":
        return "outside any group, so ignored"
    if not value:
        return f"an empty {_name(field)}, which forbids nothing, {_for(place.group)}"
    paths = value.split() if dialect.paths_per_line == "many" else [value]
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    return f"{_name(field)}: {' and '.join(map(quoted, paths[:MOST_PATHS]))}{more}, {_for(place.group)}"


def _name(field: bytes) -> str:
    return field.decode().capitalize()


def _for(group: Group | None) -> str:
    if group:
        return f"for {cut(group.title)}"
    return "for no crawler: it is outside any group"


def quoted(raw: bytes) -> str:
    """Bytes of the file as text for a message."""
    return cut(shown(raw))


def cut(text: str) -> str:
    """Text of the file, made printable and truncated for a message."""
    text = printable(text.replace("\t", " "))
    if len(text) <= QUOTED:
        return text
    return text[: QUOTED - 3] + "..."
