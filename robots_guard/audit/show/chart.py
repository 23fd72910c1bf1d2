"""The chart of decisions over time, as coordinates. A template draws it as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTH, HEIGHT = 1000.0, 190.0  # of the area for bars, in SVG units
GAP = 0.18  # between bars, as a part of a bar's slot
LABELS = 8  # on the time axis, at most
# Seconds.
_ROUND = (300, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800, 2419200)
_KINDS = ("drop", "defer", "pass")  # from bottom to top


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
    """All elements of the drawing."""

    columns: list[Column]
    heights: list[Mark]
    times: list[Mark]


def chart(bars: list[ChartBar]) -> Chart:
    """The chart of these bars."""
    top = ceiling(max((sum(bar.counts.values()) for bar in bars), default=0))
    slot = WIDTH / max(1, len(bars))
    columns = [_column(bar, number * slot, slot, top) for number, bar in enumerate(bars)]
    heights = [
        Mark(round(HEIGHT * (1 - part), 2), f"{round(top * part):,}") for part in (0.0, 0.5, 1.0)
    ]
    return Chart(columns, heights, _times(bars, slot))


def _times(bars: list[ChartBar], slot: float) -> list[Mark]:
    """The labels of the time axis, at round times."""
    seconds = sum(bar.lasts.total_seconds() for bar in bars)
    longest = _ROUND[-1] * math.ceil(seconds / LABELS / _ROUND[-1])
    interval = next((each for each in _ROUND if seconds / each <= LABELS), longest)
    return [
        Mark(round(number * slot, 2), _label(bar.begins, interval))
        for number, bar in enumerate(bars)
        if bar.begins.timestamp() % interval < bar.lasts.total_seconds()
    ]


def ceiling(largest: int) -> int:
    """A round number not below `largest`; it is even, because half of it is a label too."""
    if largest <= 2:
        return 2
    unit: int = 10 ** int(math.log10(largest))
    candidates = (factor * unit for factor in (1, 2, 4, 6, 8, 10))
    return next(number for number in candidates if number >= largest and number % 2 == 0)


def _column(bar: ChartBar, x: float, slot: float, top: int) -> Column:
    pieces, y = [], HEIGHT
    left, width = x + slot * GAP / 2, slot * (1 - GAP)
    for kind in _KINDS:
        height = HEIGHT * bar.counts[kind] / top
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
