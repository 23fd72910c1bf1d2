"""The file under lint: the stream of its lines and groups, and each dialect's reading of it.

The law of this file: what a dialect does with a line is asked of the engine that judges requests, never asserted.
The stream itself is read as the default dialect reads it, which is the nearest to what an author meant.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, cast

from robots_guard.plain import printable
from robots_guard.rep.dialect import DIALECTS, Dialect
from robots_guard.rep.lines import Record, clean, records, shown
from robots_guard.rep.robots import Group, Robots, parse

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
)
_USED = frozenset(KNOWN[4:12])  # of the fields that are no rules
LONGEST_GUESS = 24  # octets of a field name that may be a misspelt one
MOST_GUESSES = 500  # different names: what comes after is not looked up
QUOTED = 80  # characters of the file quoted in a message
MOST_PATHS = 8  # of one line quoted in a message

T = TypeVar("T")


class Item(NamedTuple):
    """One line of the stream. `written` is its field as it stands, in lower case; empty without a colon."""

    number: int
    written: bytes
    field: bytes  # as read leniently; "?" if none
    value: bytes
    raw: bytes


class Page:
    """A body, the dialects asked about, and what both come to."""

    def __init__(self, body: bytes, dialects: Sequence[Dialect], *, truncated: bool = False) -> None:
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
        """Every line with a field or at least some words."""
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
        """Does a blank line stand between two lines?"""
        place = bisect.bisect(self._blanks, first)
        return place < len(self._blanks) and self._blanks[place] < last

    @cached_property
    def is_html(self) -> bool:
        """Does it begin as a web page does?"""
        return self.text.lstrip()[:64].lower().startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"))

    @cached_property
    def is_wide(self) -> bool:
        """Are there so many NULs that this must be UTF-16 without its mark?"""
        return len(self.text) > 8 and self.text.count(b"\0") > len(self.text) // 4

    def line(self, number: int) -> str:
        """A line as it stands, printable and capped."""
        return (
            printable(shown(self.raws[number - 1].strip()).replace("\t", " ")) if 0 < number <= len(self.raws) else ""
        )

    def guess(self, name: bytes) -> bytes | None:
        """The field this name may be a misspelling of."""
        if name not in self._guesses and len(name) <= LONGEST_GUESS and len(self._guesses) < MOST_GUESSES:
            known = [field.decode() for field in KNOWN]
            near = difflib.get_close_matches(shown(name), known, n=1, cutoff=0.8)
            self._guesses[name] = near[0].encode() if near else None
        return self._guesses.get(name)

    def memo(self, work: Callable[[Page], T]) -> T:
        """What this function makes of the page, worked out once."""
        if work not in self._memos:
            self._memos[work] = work(self)
        return cast("T", self._memos[work])

    def concerns(self, agent: str) -> set[int]:
        """The lines that say something to a crawler of this name in any of the dialects, or that stand in no group."""
        own: set[int] = set()
        grouped: set[int] = set()
        for reading in self.readings.values():
            chosen = {id(group) for group in reading.robots.select(agent).groups}
            for group in (*reading.robots.groups, *reading.robots.void):
                numbers = {record[0] for part in (group.agents, group.rules, group.others) for record in part}
                grouped |= numbers
                if id(group) in chosen:
                    own |= numbers
        return own | (set(range(len(self.raws) + 1)) - grouped)


class Place(NamedTuple):
    """Where a reading has a line."""

    kind: Literal["agent", "rule", "stray", "other"]
    record: Record
    group: Group | None


class Reading:
    """One dialect's reading of the file: what it takes each line for."""

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
            return f"no rule: it knows no {_name(field)}"
        if place.kind == "other":
            return self._other(place)
        if self.is_void(number):
            return "a record without a rule, so as if absent"
        if place.kind == "agent":
            return _naming(place.group, value)
        return _ruling(place, self.dialect)

    def is_void(self, number: int) -> bool:
        """Does the line stand in a record that is none, for it has no rule?"""
        place = self.at.get(number)
        return place is not None and id(place.group) in self._void

    def _other(self, place: Place) -> str:
        _, field, _ = place.record
        if field not in KNOWN:
            return "not read"
        if field == b"sitemap":
            return "noted for all crawlers"
        if field in _USED and (field != b"host" or self.dialect.host_directive):
            return f"noted {_of(place.group)}"
        return "not used"


def _places(robots: Robots) -> Iterator[Place]:
    yield from (Place("other", record, None) for record in robots.others)
    yield from (Place("stray", record, None) for record in robots.strays)
    for group in (*robots.void, *robots.groups):
        yield from (Place("other", record, group) for record in group.others)
        yield from (Place("rule", record, group) for record in group.rules)
        yield from (Place("agent", record, group) for record in group.agents)


def _naming(group: Group | None, value: bytes) -> str:
    rules = len(group.rules) if group else 0
    count = "no rule" if not rules else "1 rule" if rules == 1 else f"{rules} rules"
    return f"a group for {quoted(value)} with {count}"


def _ruling(place: Place, dialect: Dialect) -> str:
    _, field, value = place.record
    if place.kind == "stray":
        return "in no group, so in force for nobody"
    if not value:
        return f"an empty {_name(field)}, which forbids nothing, {_of(place.group)}"
    paths = value.split() if dialect.paths_per_line == "many" else [value]
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    return f"{_name(field)}: {' and '.join(map(quoted, paths[:MOST_PATHS]))}{more}, {_of(place.group)}"


def _name(field: bytes) -> str:
    return field.decode().capitalize()


def _of(group: Group | None) -> str:
    return f"for {cut(group.title)}" if group else "for nobody: it stands in no group"


def quoted(octets: bytes) -> str:
    """Octets of the file as text, fit for a message."""
    return cut(shown(octets))


def cut(text: str) -> str:
    """Text of the file, printable and of a length that a message can bear."""
    text = printable(text.replace("\t", " "))
    return text if len(text) <= QUOTED else text[: QUOTED - 3] + "..."
