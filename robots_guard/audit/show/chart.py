"""The chart of decisions over time, as coordinates. A template draws it as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

GAP = 0.18  # between bars, as a part of a bar's slot
# Seconds.
_ROUND = (300, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800, 2419200)
_KINDS = ("drop", "defer", "pass")  # from bottom to top
# Round numbers, as factors of a power of ten. Half of each of them, times ten, is a whole number.
_FACTORS = (1.0, 1.2, 1.4, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
_SHORT_FROM = 10_000  # numbers on the axis are abbreviated from here on


class Shape(NamedTuple):
    """The size of a drawing: the area for bars in SVG units, the bars and the labels of the time
    axis at most."""

    name: str
    width: float
    height: float
    bars: int
    labels: int


#: For a screen, and for paper.
WIDE = Shape("full", 1000.0, 190.0, 10_000, 8)
#: For a telephone, where the text of a wide drawing would be too small to read.
NARROW = Shape("narrow", 320.0, 150.0, 26, 4)


class ChartBar(NamedTuple):
    """The number of decisions of each action in a period: its beginning, length and counts."""

    begins: datetime
    lasts: timedelta
    counts: Mapping[str, int]


class ChartSegment(NamedTuple):
    """One coloured part of a bar."""

    kind: str
    x: float
    y: float
    width: float
    height: float


class Column(NamedTuple):
    """A bar as it is drawn: its parts, its slot, its description, and its period."""

    pieces: list[ChartSegment]
    x: float
    width: float
    says: str
    since: str
    until: str


class Mark(NamedTuple):
    """A line or a label on an axis."""

    place: float
    says: str


class Chart(NamedTuple):
    """All elements of a drawing."""

    shape: Shape
    columns: list[Column]
    heights: list[Mark]
    times: list[Mark]


def chart(bars: list[ChartBar], shape: Shape = WIDE) -> Chart:
    """The chart of these bars."""
    bars = _merged(bars, shape.bars)
    top = ceiling(max((sum(bar.counts.values()) for bar in bars), default=0))
    slot = shape.width / max(1, len(bars))
    columns = [_column(bar, number * slot, slot, top, shape) for number, bar in enumerate(bars)]
    heights = [
        Mark(round(shape.height * (1 - part), 2), _short(round(top * part)))
        for part in (0.0, 0.5, 1.0)
    ]
    return Chart(shape, columns, heights, _times(bars, slot, shape.labels))


def _merged(bars: list[ChartBar], most: int) -> list[ChartBar]:
    """The bars, neighbours added up so that there are at most `most`; the newest end is whole."""
    size = math.ceil(len(bars) / most)
    if size <= 1:
        return bars
    first = len(bars) % size
    groups = [bars[:first]] if first else []
    groups += [bars[at : at + size] for at in range(first, len(bars), size)]
    return [_sum(group) for group in groups]


def _sum(bars: list[ChartBar]) -> ChartBar:
    lasts = sum((bar.lasts for bar in bars), timedelta())
    counts = {kind: sum(bar.counts[kind] for bar in bars) for kind in _KINDS}
    return ChartBar(bars[0].begins, lasts, counts)


def _times(bars: list[ChartBar], slot: float, labels: int) -> list[Mark]:
    """The labels of the time axis, at round times."""
    seconds = sum(bar.lasts.total_seconds() for bar in bars)
    longest = _ROUND[-1] * math.ceil(seconds / labels / _ROUND[-1])
    interval = next((each for each in _ROUND if seconds / each <= labels), longest)
    marks = []
    for number, bar in enumerate(bars):
        at = math.ceil(bar.begins.timestamp() / interval) * interval
        part = (at - bar.begins.timestamp()) / bar.lasts.total_seconds()
        if part < 1:
            label = _label(datetime.fromtimestamp(at, UTC), interval)
            marks.append(Mark(round((number + part) * slot, 2), label))
    return marks


def ceiling(largest: int) -> int:
    """A round number not below `largest`, by at most a fifth above it if it is 10 or more; it is
    even, because half of it is a label too."""
    if largest <= 2:
        return 2
    unit: int = 10 ** int(math.log10(largest))
    candidates = (round(factor * unit) for factor in _FACTORS)
    return next(number for number in candidates if number >= largest and number % 2 == 0)


def _short(number: int) -> str:
    """A number on the axis: 1,200, 12k, 1.2M."""
    if number < _SHORT_FROM:
        return f"{number:,}"
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{round(number / unit, 2):g}{letter}"
    return str(number)


def _column(bar: ChartBar, x: float, slot: float, top: int, shape: Shape) -> Column:
    pieces, y = [], shape.height
    left, width = x + slot * GAP / 2, slot * (1 - GAP)
    for kind in _KINDS:
        height = shape.height * bar.counts[kind] / top
        y -= height
        if bar.counts[kind]:
            pieces.append(
                ChartSegment(kind, round(left, 2), round(y, 2), round(width, 2), round(height, 2))
            )
    counts = ", ".join(f"{bar.counts[kind]:,} {kind}" for kind in _KINDS if bar.counts[kind])
    text = f"{bar.begins:%a %d %b %Y, %H:%M} UTC: {counts or 'nothing'}"
    return Column(
        pieces, round(x, 2), round(slot, 2), text, _iso(bar.begins), _iso(bar.begins + bar.lasts)
    )


def _label(at: datetime, interval: int) -> str:
    """The date at midnight, with the year if labels are far apart; otherwise the time."""
    if interval >= _ROUND[-1]:
        return f"{at:%d %b %Y}"
    if (at.hour, at.minute) == (0, 0):
        return f"{at:%d %b}"
    return f"{at:%H:%M}"


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
