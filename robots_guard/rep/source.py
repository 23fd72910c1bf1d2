"""The document behind a ruleset: from the place of a rule back to its line.

The law of this file: what a verdict needs of a rule, and no more, is held per rule, which is one number. Its text
is read again from the document's own octets when a verdict first names it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from robots_guard.rep.dialect import Dialect
from robots_guard.rep.lines import Line, Record, records, shown, shown_line
from robots_guard.rep.matcher import FEW


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    line: int
    text: str


class Source:
    """A document's octets, and the rules of one crawler in it by place."""

    __slots__ = ("_dialect", "_offsets", "rows", "text")

    def __init__(self, text: bytes, dialect: Dialect, rules: Iterable[Record]) -> None:
        self.text = text
        self._dialect = dialect
        self._offsets: array[int] | None = None
        # The line, and in the low bit whether it allows. Small numbers take no memory, for Python has them already.
        rows = [number << 1 | (name == b"allow") for number, name, _ in rules]
        self.rows: Sequence[int] = rows if len(rows) < FEW else array("I", rows)

    def rule(self, place: int) -> Rule:
        """The rule at a place, as it stands in the document."""
        row = self.rows[place]
        return Rule(bool(row & 1), shown(self._pattern(place)), row >> 1, shown_line(self._raw(row >> 1)))

    def _pattern(self, place: int) -> bytes:
        """The pattern at a place. A line may hold several."""
        first = place
        while first and self.rows[first - 1] == self.rows[place]:
            first -= 1
        return self._patterns_of(self.rows[place])[place - first]

    def patterns(self) -> list[bytes]:
        """The patterns by place. A line is read once, however many it holds."""
        return [pattern for row in dict.fromkeys(self.rows) for pattern in self._patterns_of(row)]

    def _patterns_of(self, row: int) -> list[bytes]:
        return [value for _, _, value in spread(self._read(row >> 1), self._dialect)]

    def line(self, record: Record) -> Line:
        """A record as people read it."""
        number, name, value = record
        return Line(number, shown(name), shown(value), shown_line(self._raw(number)))

    def _read(self, number: int) -> Iterator[Record]:
        return records(self._raw(number), self._dialect)

    def _raw(self, number: int) -> bytes:
        if self._offsets is None:
            self._offsets = array("I", accumulate(map(len, self.text.splitlines(keepends=True)), initial=0))
        return self.text[self._offsets[number - 1] : self._offsets[number]].rstrip(b"\r\n")


def spread(rules: Iterable[Record], dialect: Dialect) -> list[Record]:
    """A record for each pattern: a dialect may read several in a value, or another than the value itself.

    A rule without a value is none: it forbids nothing and cancels nothing.
    """
    if dialect.paths_per_line == "one" and not dialect.root_slash and not dialect.index_page:
        return [rule for rule in rules if rule[2]]
    return [
        (number, name, pattern) for number, name, value in rules if value for pattern in _patterns(value, name, dialect)
    ]


def _patterns(value: bytes, name: bytes, dialect: Dialect) -> Iterator[bytes]:
    for pattern in value.split() if dialect.paths_per_line == "many" else (value,):
        yield b"/" + pattern if dialect.root_slash and pattern[:1] != b"/" else pattern
        if dialect.index_page and name == b"allow":
            directory, slash, page = pattern.rpartition(b"/")
            if slash and page.startswith(b"index.htm"):
                yield directory + b"/$"
