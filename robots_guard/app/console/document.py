"""A robots.txt as shown on a page: the difference of two versions, and numbered lines with the
deciding one marked.

Invariant: the cost of a difference is bounded whatever the files contain. Sites choose the lines, and comparing
takes the product of their numbers: lines that both versions begin and end with are left out first,
and of what remains at most `COMPARED` lines are compared; longer parts are shown as removed and
added.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from robots_guard.protocol.lines import clean, shown

AROUND = 3  # unchanged lines shown around a change
COMPARED = 200  # lines of each version that are compared
SHOWN = 120  # lines of a difference
LONGEST = 300  # characters of a line
ALL = 600  # lines up to which a listing has the whole file
BESIDE = 60  # lines listed on each side of the deciding one of a longer file
HEAD = 100  # lines listed of a longer file in which no line decided


class DifferenceLine(NamedTuple):
    """One line: a sign ("-", "+", or " " for an unchanged one), its number in the version that has
    it, and its text. The sign "…" stands for lines left out."""

    sign: str
    number: int | None
    text: str


class Difference(NamedTuple):
    """The lines that are shown, and how many were removed, added and left out at the end."""

    lines: list[DifferenceLine]
    removed: int
    added: int
    hidden: int


def difference(before: bytes, after: bytes) -> Difference:
    """Return the difference of two versions."""
    old, new = clean(before).splitlines(), clean(after).splitlines()
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    changed = _Changed(old[head : len(old) - tail], new[head : len(new) - tail], head)
    lines = [_line(" ", number, new) for number in range(max(0, head - AROUND), head)]
    lines += changed.lines()
    end = len(new) - tail
    lines += [_line(" ", number, new) for number in range(end, min(len(new), end + AROUND))]
    removed, added = changed.counts()
    return Difference(lines[:SHOWN], removed, added, max(0, removed + added - SHOWN))


def _common(some: list[bytes], others: list[bytes]) -> int:
    """The number of equal lines at the beginning of both."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        count += 1
    return count


class _Changed:
    """What is between the common beginning and the common end of two versions.

    `offset` is the number of lines before it.
    """

    def __init__(self, old: list[bytes], new: list[bytes], offset: int) -> None:
        self._old, self._new, self._offset = old, new, offset
        self._parts: list[tuple[str, int, int, int, int]]
        self._parts = [("replace", 0, len(old), 0, len(new))]
        if max(len(old), len(new)) <= COMPARED:
            matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
            self._parts = [*matcher.get_opcodes()]

    def counts(self) -> tuple[int, int]:
        """Return the numbers of removed and added lines."""
        changes = [part for part in self._parts if part[0] != "equal"]
        removed = sum(end - begin for _, begin, end, _, _ in changes)
        return removed, sum(end - begin for *_, begin, end in changes)

    def lines(self) -> list[DifferenceLine]:
        """Return the lines to show, of a long part only the first ones."""
        found: list[DifferenceLine] = []
        for tag, begin, end, new_begin, new_end in self._parts:
            if tag == "equal":
                found += self._unchanged(new_begin, new_end)
            else:
                half = SHOWN // 2
                found += self._some("-", self._old, begin, min(end, begin + half))
                found += self._some("+", self._new, new_begin, min(new_end, new_begin + half))
        return found

    def _unchanged(self, begin: int, end: int) -> list[DifferenceLine]:
        if end - begin <= 2 * AROUND:
            return self._some(" ", self._new, begin, end)
        return [
            *self._some(" ", self._new, begin, begin + AROUND),
            DifferenceLine("…", None, ""),
            *self._some(" ", self._new, end - AROUND, end),
        ]

    def _some(self, sign: str, lines: list[bytes], begin: int, end: int) -> list[DifferenceLine]:
        return [_line(sign, number, lines, self._offset) for number in range(begin, end)]


def _line(sign: str, number: int, lines: list[bytes], offset: int = 0) -> DifferenceLine:
    text = shown(lines[number][: 4 * LONGEST])
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return DifferenceLine(sign, number + offset + 1, text)


# -- its lines -------------------------------------------------------------------------------------


class ListedLine(NamedTuple):
    """One line. `comment` says whether it is a comment or blank."""

    number: int
    text: str
    marked: bool
    comment: bool


class Listing(NamedTuple):
    """Some lines of a file, and the number of lines left out before and after them."""

    lines: list[ListedLine]
    before: int
    after: int


def listing(body: bytes, marked: int | None) -> Listing:
    """Return all lines of a file; of a long file, those around the marked line, or the first ones."""
    every = clean(body).splitlines()
    first, last = 1, len(every)
    if len(every) > ALL and marked:
        first, last = max(1, marked - BESIDE), min(last, marked + BESIDE)
    elif len(every) > ALL:
        last = HEAD
    lines = [_listed_line(number, every[number - 1], marked) for number in range(first, last + 1)]
    return Listing(lines, first - 1, len(every) - last)


def _listed_line(number: int, line: bytes, marked: int | None) -> ListedLine:
    text = shown(line)
    return ListedLine(number, text, number == marked, not text.partition("#")[0].strip())
