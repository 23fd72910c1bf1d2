"""A robots.txt as shown on a page: numbered lines, with the deciding one marked."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.protocol.lines import clean, shown

ALL = 600  # lines up to which a file is shown completely
AROUND = 60  # lines shown on each side of the deciding one in a longer file
HEAD = 100  # lines shown of a longer file in which no line decided


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
        first, last = max(1, marked - AROUND), min(last, marked + AROUND)
    elif len(every) > ALL:
        last = HEAD
    lines = [_line(number, every[number - 1], marked) for number in range(first, last + 1)]
    return Listing(lines, first - 1, len(every) - last)


def _line(number: int, line: bytes, marked: int | None) -> ListedLine:
    text = shown(line)
    return ListedLine(number, text, number == marked, not text.partition("#")[0].strip())
