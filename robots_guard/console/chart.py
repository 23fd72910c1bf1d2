"""The chart of decisions over time: numbers in, places on a canvas out. The template draws it as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTH, HEIGHT = 1000.0, 190.0  # of the bars, in the drawing's own units
GAP = 0.18  # of a bar's place
LABELS = 8  # on the axis of time, at most
_ROUND = (300, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800, 2419200)  # seconds
_KINDS = ("drop", "defer", "pass")  # from the ground up


class Bar(NamedTuple):
    """How many decisions of each action, from when on, and for how long."""

    begins: datetime
    lasts: timedelta
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Of all actions."""
        return sum(self.counts.values())


class Piece(NamedTuple):
    """One coloured part of a bar."""

    kind: str
    x: float
    y: float
    width: float
    height: float


class Column(NamedTuple):
    """A bar as drawn: its parts, the place it has, and what it says."""

    pieces: list[Piece]
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
    """All that is drawn."""

    columns: list[Column]
    heights: list[Mark]
    times: list[Mark]


def chart(bars: list[Bar]) -> Chart:
    """The chart of these bars."""
    top = ceiling(max((bar.total for bar in bars), default=0))
    place = WIDTH / max(1, len(bars))
    columns = [_column(bar, number * place, place, top) for number, bar in enumerate(bars)]
    heights = [Mark(round(HEIGHT * (1 - part), 2), f"{round(top * part):,}") for part in (0.0, 0.5, 1.0)]
    return Chart(columns, heights, _times(bars, place))


def _times(bars: list[Bar], place: float) -> list[Mark]:
    """Labels at round times."""
    seconds = sum(bar.lasts.total_seconds() for bar in bars)
    every = next((each for each in _ROUND if seconds / each <= LABELS), _ROUND[-1])
    return [
        Mark(round(number * place, 2), _label(bar.begins))
        for number, bar in enumerate(bars)
        if bar.begins.timestamp() % every < bar.lasts.total_seconds()
    ]


def ceiling(most: int) -> int:
    """A round number not below `most`, and even, for the middle has a label too."""
    if most <= 2:
        return 2
    size: int = 10 ** int(math.log10(most))
    return next(whole for part in (1, 2, 4, 6, 8, 10) if (whole := part * size) >= most and whole % 2 == 0)


def _column(bar: Bar, x: float, place: float, top: int) -> Column:
    pieces, y = [], HEIGHT
    for kind in _KINDS:
        height = HEIGHT * bar.counts[kind] / top
        y -= height
        if bar.counts[kind]:
            width = place * (1 - GAP)
            pieces.append(Piece(kind, *(round(each, 2) for each in (x + place * GAP / 2, y, width, height))))
    told = ", ".join(f"{bar.counts[kind]:,} {kind}" for kind in _KINDS if bar.counts[kind])
    says = f"{bar.begins:%a %d %b, %H:%M} UTC: {told or 'nothing'}"
    return Column(pieces, round(x, 2), round(place, 2), says, _written(bar.begins), _written(bar.begins + bar.lasts))


def _label(at: datetime) -> str:
    """The day at midnight, else the time."""
    return f"{at:%d %b}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"


def _written(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
