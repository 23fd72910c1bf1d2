"""A robots.txt on a page: its lines with their numbers, the deciding one marked."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.rep.lines import clean, shown

ALL = 600  # lines up to which a file is shown whole
AROUND = 60  # lines shown on each side of the deciding one in a longer file
HEAD = 100  # lines shown of a longer file in which no line decided


class Line(NamedTuple):
    """One line. `comment` is whether it says nothing to a crawler."""

    number: int
    text: str
    marked: bool
    comment: bool


class Listing(NamedTuple):
    """Some lines of a file, and how many stand before and behind them."""

    lines: list[Line]
    before: int
    behind: int
    octets: int


def listing(body: bytes, marked: int | None) -> Listing:
    """The lines around the marked one, or all of a file that is no longer than a person reads."""
    every = clean(body).splitlines()
    first, last = 1, len(every)
    if len(every) > ALL:
        first, last = (max(1, marked - AROUND), min(last, marked + AROUND)) if marked else (1, HEAD)
    lines = [_line(number, every[number - 1], marked) for number in range(first, last + 1)]
    return Listing(lines, first - 1, len(every) - last, len(body))


def _line(number: int, octets: bytes, marked: int | None) -> Line:
    text = shown(octets)
    return Line(number, text, number == marked, not text.partition("#")[0].strip())
