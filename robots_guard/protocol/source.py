"""The document behind a ruleset: from the place of a rule back to its line.

Invariant: memory per rule is one number. The text of a rule is read again from the document when a
verdict first names the rule. Of a document in which a line is several, the patterns are kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import Line, Record, records, shown, shown_line
from robots_guard.protocol.matcher import FEW


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    line: int
    text: str

    def __reduce__(self) -> tuple[type[Rule], tuple[bool, str, int, str]]:
        """Copies and pickles are made by the constructor, as those of a dialect are."""
        return Rule, (self.allow, self.pattern, self.line, self.text)


class SourceText:
    """The text of a document, and one crawler's rules in it by place."""

    __slots__ = ("_dialect", "_kept", "_offsets", "rows", "text")

    def __init__(
        self, text: bytes, dialect: Dialect, rows: list[int], kept: list[bytes] | None = None
    ) -> None:
        self.text = text
        self._dialect = dialect
        self._kept = kept
        self._offsets: array[int] | None = None
        # A list of small numbers takes little memory, because Python caches small integers.
        self.rows: Sequence[int] = rows if len(rows) < FEW else array("I", rows)

    def rule(self, place: int) -> Rule:
        """The rule at a place, as written in the document."""
        row = self.rows[place]
        line = row >> 1
        return Rule(bool(row & 1), shown(self._pattern(place)), line, shown_line(self._raw(line)))

    def _pattern(self, place: int) -> bytes:
        """The pattern at a place. A line may contain several."""
        if self._kept is not None:
            return self._kept[place]
        row = self.rows[place]
        return next(islice(self._patterns_of(row), place - bisect_left(self.rows, row), None))

    def patterns(self) -> list[bytes]:
        """The patterns by place. Each line is read once, even if it contains several."""
        if self._kept is not None:
            return self._kept
        return [pattern for row in dict.fromkeys(self.rows) for pattern in self._patterns_of(row)]

    def _patterns_of(self, row: int) -> Iterator[bytes]:
        for _, _, value in records(self._raw(row >> 1), self._dialect):
            yield from _patterns(value, row, self._dialect)

    def line(self, record: Record) -> Line:
        """A record as text for people."""
        number, name, value = record
        return Line(number, shown(name), shown(value), shown_line(self._raw(number)))

    def _raw(self, number: int) -> bytes:
        if self._offsets is None:
            lengths = map(len, self.text.splitlines(keepends=True))
            self._offsets = array("I", accumulate(lengths, initial=0))
        return self.text[self._offsets[number - 1] : self._offsets[number]].rstrip(b"\r\n")


def patterns_of(
    rows: list[int], values: list[bytes], dialect: Dialect
) -> tuple[list[int], list[bytes]]:
    """The row and the text of each pattern: a dialect may read a value as several patterns, or
    change it.

    A rule without a value is dropped: it forbids nothing and cancels nothing.
    """
    several = dialect.paths_per_line == "many" or dialect.root_slash or dialect.index_page
    if not several and b"" not in values:
        return rows, values
    rules = [rule for rule in zip(rows, values, strict=True) if rule[1]]
    if several:
        rules = [
            (row, pattern) for row, value in rules for pattern in _patterns(value, row, dialect)
        ]
    return [row for row, _ in rules], [pattern for _, pattern in rules]


def _patterns(value: bytes, row: int, dialect: Dialect) -> Iterator[bytes]:
    patterns = [value]
    if dialect.paths_per_line == "many":
        patterns = value.split()
    for pattern in patterns:
        if dialect.root_slash and pattern[:1] != b"/":
            yield b"/" + pattern
        else:
            yield pattern
        if dialect.index_page and row & 1:
            directory, slash, page = pattern.rpartition(b"/")
            if slash and page.startswith(b"index.htm"):
                yield directory + b"/$"
