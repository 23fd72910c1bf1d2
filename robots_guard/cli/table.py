"""The layout of a table on a terminal: which columns stand on which line, and how values are shortened.

A record has one line if its columns fit side by side, otherwise two; a value that needs more room
than the terminal has takes further lines. What is left out of a value is marked by an ellipsis.

Invariant: no shortened value names another thing. The origin of a URL (scheme, host and port) is
never cut, wherever in a text it stands; the end of a URL and of a rule is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from rich.cells import cell_len

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
GAP = 2  # cells between two columns
INDENT = 2  # cells before the further lines of a record
SHORTEST_END = 12  # cells of a URL or rule that are kept at its end
SHORTEST_TEXT = 16  # cells to which a text is wrapped at least
COMFORTABLE = (
    60  # cells that a long value gets on one line with all others, or else it gets a second line
)
MOST_LINES = 3  # of a record; with more, each value gets a line of its own

#: The origin of a URL: everything up to its path, query or fragment.
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s/?#]*")


#: The beginning of a line up to its value, which at least two spaces divide from its name.
_NAME_AND_VALUE = re.compile(r" *\S+( \S+)* {2,}(?=\S)")


class TableColumn(NamedTuple):
    """A column of a table.

    `fit` says what is done with a value that is too long: it is cut in the middle, wrapped to
    further lines, or kept whole. `line` is the line of the record on which the column stands if the
    terminal is too narrow for one line. A `minor` column is left out if there is no room for it.
    `usual` is the width of most values, for rows that are printed one by one.
    """

    heading: str
    fit: Literal["whole", "cut", "wrap"] = "whole"
    line: int = 1
    minor: bool = False
    usual: int = 0
    kind: Literal["text", "action", "time"] = "text"


class Cell(NamedTuple):
    """Where a column stands: its place in a row of values, and the cells that it gets."""

    place: int
    width: int


Layout = tuple[tuple[Cell, ...], ...]  # the lines of a record


# -- values ---------------------------------------------------------------------------------------------------


def shorten(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """Return the text, cut in its middle to a width in cells. A URL keeps its origin, and more of
    its end than of the beginning of its path. Another text keeps as much of its beginning as of its
    end.

    The result is wider if the origin of a URL at its beginning leaves no room: it then consists of
    the origin, the ellipsis and a short end.
    """
    if cell_len(text) <= width:
        return text
    origin = _ORIGIN.match(text)
    kept = origin[0] if origin else ""
    rest = text[len(kept) :]
    room = max(width - cell_len(kept) - len(ellipsis), SHORTEST_END)
    if cell_len(rest) <= room + len(ellipsis):
        return text
    head = _beginning(rest, (room - SHORTEST_END) // 3 if origin else room // 2)
    tail = _end(rest, room - cell_len(head))
    before, after = len(kept) + len(head), len(text) - len(tail)
    for found in _ORIGIN.finditer(text, len(kept)):
        if found.start() < before < found.end():
            before = found.start()
        if found.start() < after < found.end():
            after = found.end()
    return text[:before] + ellipsis + text[after:]


def narrowest(text: str, column: TableColumn) -> int:
    """Return the cells that a value needs at least in its column."""
    natural = cell_len(text)
    if column.fit == "whole":
        return natural
    if column.fit == "wrap":
        return min(natural, SHORTEST_TEXT)
    return min(natural, cell_len(shorten(text, 2 * SHORTEST_END)))


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of a width: between words, in a long word after a slash, and in a
    host that is wider than a line after a dot."""
    lines: list[str] = []
    origins = [found.span() for found in _ORIGIN.finditer(text)]
    start = 0
    while (most := _limit(text, start, width)) < len(text):
        end = _line_end(text, start, max(most, start + 1), origins)
        lines.append(text[start:end].rstrip(" "))
        start = end
        while text.startswith(" ", start):
            start += 1
    return [*lines, text[start:]]


def folded(text: str, room: int) -> list[str]:
    """Break a line of text at the terminal's width. Further lines begin below the value, if the line
    has a name and a value in columns, and are indented otherwise."""
    if cell_len(text) <= room:
        return [text]
    columns = _NAME_AND_VALUE.match(text)
    indent = cell_len(columns[0]) if columns else INDENT + len(text) - len(text.lstrip(" "))
    indent = min(indent, room // 2)
    start = len(text) - len(text.lstrip(" "))
    first = text[:start] + wrapped(text[start:], room - start)[0]
    rest = text[len(first) :].lstrip(" ")
    return [first, *(" " * indent + line for line in wrapped(rest, room - indent))]


def _line_end(text: str, start: int, most: int, origins: Sequence[tuple[int, int]]) -> int:
    """Return where a line that begins at `start` ends, at `most` at the latest."""
    if text.startswith(" ", most):
        return most
    space = text.rfind(" ", start + 1, most)
    if space > start:
        return space + 1
    before = bisect_left(origins, (most,)) - 1
    if before >= 0:
        begin, end = origins[before]
        if begin < most < end:
            return _end_in_origin(text, max(begin, start), most, end)
    return max(text.rfind("/", start, most) + 1, 0) or most


def _end_in_origin(text: str, start: int, most: int, end: int) -> int:
    """Return where a line ends within an origin that is wider than the line.

    It ends after a dot, so that the first part does not pass for the whole, or else before the last
    character of the host: what comes before a port is on the line of the port.
    """
    dot = text.rfind(".", start, most)
    if dot > start:
        return dot + 1
    port = text.rfind(":", start, end)
    if start < port - 1 < most:
        return port - 1
    return most


def _beginning(text: str, width: int) -> str:
    return text[: _limit(text, 0, width)]


def _limit(text: str, start: int, width: int) -> int:
    """Return how far a text fits into a width, from `start` on."""
    used = 0
    for at in range(start, len(text)):
        used += cell_len(text[at])
        if used > width:
            return at
    return len(text)


def _end(text: str, width: int) -> str:
    return _beginning(text[::-1], width)[::-1]


# -- columns --------------------------------------------------------------------------------------------------


def layout(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], room: int
) -> Layout | None:
    """Return the lines of a record on a terminal that is `room` cells wide.

    None: there are too many columns, so each value gets a line of its own.
    """
    most = max(room * 3 // 5, 2 * SHORTEST_END)
    sizes = [_Size.of(column, index, rows, most) for index, column in enumerate(columns)]
    shown = sorted((size for size in sizes if size.natural), key=lambda size: size.column.line)
    if _total([size.beside_others for size in shown]) <= room:
        return (_spread(shown, room),)
    lines = _flow(shown, room)
    without_minor = _flow([size for size in shown if not size.column.minor], room)
    if len(without_minor) < len(lines):
        lines = without_minor
    if len(lines) > MOST_LINES:
        return None
    return tuple(
        _spread(line, room - (INDENT if number else 0)) for number, line in enumerate(lines)
    )


class _Size(NamedTuple):
    """The cells that a column needs, and those that it could use."""

    column: TableColumn
    place: int
    least: int
    natural: int

    @property
    def beside_others(self) -> int:
        """The cells that it gets at least if the whole record is on one line."""
        if self.column.fit == "whole":
            return self.least
        return max(self.least, min(self.natural, COMFORTABLE))

    @classmethod
    def of(cls, column: TableColumn, place: int, rows: Sequence[Sequence[str]], most: int) -> _Size:
        """Measure a column. A value that needs more than `most` gets lines of its own, and does
        not count."""
        values = [row[place] for row in rows]
        if not any(values) and not column.usual:
            return cls(column, place, 0, 0)  # an empty column is not shown
        needs = {value: narrowest(value, column) for value in values}
        usual = [value for value in needs if needs[value] <= most]
        floor = max(cell_len(column.heading), column.usual)
        least = max([floor, *(needs[value] for value in usual)])
        natural = max([floor, *map(cell_len, usual)])
        return cls(column, place, least, natural)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(len(widths) - 1, 0)


def _flow(sizes: Sequence[_Size], room: int) -> list[list[_Size]]:
    """Distribute columns over lines: each on the line that it asks for, or the next with room."""
    lines: list[list[_Size]] = []
    for _, group in groupby(sizes, key=lambda size: size.column.line):
        lines.append([])
        for size in group:
            left = room - (INDENT if len(lines) > 1 else 0)
            if lines[-1] and _total([each.least for each in (*lines[-1], size)]) > left:
                lines.append([])
            lines[-1].append(size)
    return lines


def _spread(sizes: Sequence[_Size], room: int) -> tuple[Cell, ...]:
    """Give the columns of a line their least width, and what is left to those that could use it."""
    widths = [size.least for size in sizes]
    left = room - _total(widths)
    wanting = [at for at, size in enumerate(sizes) if size.natural > size.least]
    while left > 0 and wanting:
        share = max(left // len(wanting), 1)
        for at in wanting[:left]:
            more = min(share, sizes[at].natural - widths[at])
            widths[at] += more
            left -= more
        wanting = [at for at in wanting if sizes[at].natural > widths[at]]
    return tuple(
        Cell(size.place, max(min(width, room), 1))
        for size, width in zip(sizes, widths, strict=True)
    )


# -- lines ----------------------------------------------------------------------------------------------------

Painted = tuple[tuple[str, int], ...]  # the parts of a line, each with the index of its column


def record_lines(
    columns: Sequence[TableColumn],
    row: Sequence[str],
    cells: Layout,
    room: int,
    ellipsis: str = ELLIPSIS,
) -> Iterator[Painted]:
    """Yield the lines of a record; a value that is too long for its place gets lines of its own."""
    for number, line in enumerate(cells):
        indent = INDENT if number else 0
        own = room - indent - INDENT
        fitted = [
            (cell, _fitted(columns[cell.place], row[cell.place], cell.width, own, ellipsis))
            for cell in _widened(line, row, room - indent if number else 0)
        ]
        yield from _side_by_side(fitted, indent, room)


def _widened(line: Sequence[Cell], row: Sequence[str], room: int) -> Sequence[Cell]:
    """Give a value that is alone on its line all the room of it."""
    filled = [cell for cell in line if row[cell.place]]
    if len(filled) == 1 and room:
        return [Cell(filled[0].place, room)]
    return line


def _fitted(column: TableColumn, value: str, width: int, own: int, ellipsis: str) -> list[str]:
    """Return the lines of a value in a place of `width` cells. If even its shortest form is wider,
    the value is shortened for a line of its own, which has `own` cells."""
    if column.fit == "wrap":
        return wrapped(value, width)
    if column.fit == "whole":
        return [value]
    shown = shorten(value, width, ellipsis)
    if cell_len(shown) > width:
        shown = shorten(value, max(own, width), ellipsis)
    return [shown]


def _side_by_side(
    fitted: Sequence[tuple[Cell, list[str]]], indent: int, room: int
) -> Iterator[Painted]:
    """Yield the physical lines of one line of a record."""
    for depth in range(max((len(parts) for _, parts in fitted), default=0)):
        line: list[tuple[str, int]] = []
        at, filled = indent, 0  # where the next column begins, and how far the line is filled
        for cell, parts in fitted:
            text = parts[depth] if depth < len(parts) else ""
            gap = max(at - filled, GAP if line else 0)
            at += cell.width + GAP
            if not text:
                continue
            if filled + gap + cell_len(text) > room:
                if line:
                    yield tuple(line)
                line, filled, gap = [], 0, indent + INDENT
                *full, text = wrapped(text, max(room - gap, 1))
                yield from (((" " * gap, -1), (piece, cell.place)) for piece in full)
            line += [(" " * gap, -1), (text, cell.place)]
            filled += gap + cell_len(text)
        if line:
            yield tuple(line)


def block_lines(columns: Sequence[TableColumn], row: Sequence[str], room: int) -> Iterator[Painted]:
    """Yield a line for each value of a record, whole, beside its heading."""
    wide = max(cell_len(column.heading) for column in columns) + GAP
    for index, (column, value) in enumerate(zip(columns, row, strict=True)):
        if not value:
            continue
        heading = column.heading.ljust(wide)
        for piece in wrapped(value, max(room - wide, SHORTEST_TEXT)):
            yield ((heading, -1), (piece, index))
            heading = " " * wide


Times = Callable[[str], str]


def short_times(today: str) -> Times:
    """Return a function that shortens a moment (ISO 8601 in UTC): to the time of day if it is
    `today` (a date), otherwise to date and time, to the second."""

    def short(moment: str) -> str:
        date, divider, time = moment.partition("T")
        if not divider or not moment.endswith("Z"):
            return moment
        clock = time.removesuffix("Z").partition(".")[0]
        return clock if date == today else f"{date} {clock}"

    return short
