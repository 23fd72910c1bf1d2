"""What a group says of time: Crawl-delay, Request-rate and Visit-time, read from its other lines.

None of them is in a standard; standards.md of the field agrees on these forms:

    Crawl-delay: 10          seconds between two requests, also 0.5; "1,5" and "10s" are read as they are meant
    Request-rate: 1/10s      so many pages in so many s, m, h or d; "0900-1730" behind it limits it to that time
    Visit-time: 0600-0845    come at these times only; several lines are several times

Times of the day are UTC. The law of this file: a number too large, infinite or none at all (`nan`) is a wish to
be left alone and is read as infinite, for whoever uses it to bound; what is no number in any sense is `odd`. Only
what can bind is kept to be compared at each request, so that a long file makes none of them slow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from robots_guard.rep.lines import Line

DAY = 1440  # minutes
WINDOWS = 100  # times of the day told apart; a delay for yet another holds all day, and a visiting time is not kept

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:[.,][0-9]{0,30})?|[.,][0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_ENDLESS = re.compile(r"\+?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_RATE = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*(?a:([smhd]?))\w*(?:\s+(.+))?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{2}):?([0-9]{2})\s*-\s*([0-9]{2}):?([0-9]{2})(?:\s*(?:utc|gmt|z))?", re.IGNORECASE)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Window(NamedTuple):
    """A time of the day, in minutes since midnight UTC: from `begins` up to, not including, `ends`. It may go past
    midnight; of no length, it is the whole day."""

    begins: int
    ends: int

    def has(self, minute: float) -> bool:
        """Whether a minute of the day lies in it."""
        if self.begins < self.ends:
            return self.begins <= minute < self.ends
        return minute >= self.begins or minute < self.ends


class Delay(NamedTuple):
    """Seconds from one request to the next, at least; infinite: as long as one can wait. In `window` only, if given."""

    seconds: float
    line: Line
    window: Window | None = None


class Visit(NamedTuple):
    """A time at which requests are welcome."""

    window: Window
    line: Line


class Pace(NamedTuple):
    """What a group says of time: of each window the longest delay and the first visiting time, and all `lines` that
    were read. `odd` are the lines of these fields that cannot be."""

    delays: tuple[Delay, ...]
    visits: tuple[Visit, ...]
    odd: tuple[Line, ...]
    lines: tuple[Line, ...] = ()


def pace_of(records: Iterable[Line]) -> Pace | None:
    """What the other lines of a group say of time; None where they say nothing. Raises nothing."""
    delays: dict[Window | None, Delay] = {}
    visits: dict[Window, Visit] = {}
    odd: list[Line] = []
    lines: list[Line] = []
    for line in records:
        if line.field in _READERS:
            found = _READERS[line.field](line)
            (odd if found is None else lines).append(line)
            if isinstance(found, Delay):
                _keep_longest(delays, found)
            elif found is not None and (len(visits) < WINDOWS or found.window in visits):
                visits.setdefault(found.window, found)
    return Pace(tuple(delays.values()), tuple(visits.values()), tuple(odd), tuple(lines)) if lines or odd else None


def _keep_longest(delays: dict[Window | None, Delay], found: Delay) -> None:
    if found.window not in delays and len(delays) >= WINDOWS:
        found = found._replace(window=None)
    held = delays.get(found.window)
    if held is None or found.seconds > held.seconds:
        delays[found.window] = found


def _delay(line: Line) -> Delay | None:
    if _ENDLESS.match(line.value):
        return Delay(math.inf, line)
    number = _NUMBER.match(line.value)
    return Delay(max(0.0, float(number[0].replace(",", "."))), line) if number else None


def _rate(line: Line) -> Delay | None:
    """n requests in a period are one in the n-th part of it: a burst, and then a rest, is what nobody asked for."""
    found = _RATE.fullmatch(line.value)
    if found is None:
        return None
    count, period, unit, when = found.groups()
    window = _window(when) if when else None
    if when and window is None:
        return None
    seconds = int(period) * _UNITS[unit.lower()]
    return Delay(seconds / int(count) if int(count) else math.inf, line, window)


def _visit(line: Line) -> Visit | None:
    window = _window(line.value)
    return Visit(window, line) if window else None


_READERS: dict[str, Callable[[Line], Delay | Visit | None]] = {
    "crawl-delay": _delay,
    "request-rate": _rate,
    "visit-time": _visit,
}


def _window(text: str) -> Window | None:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    begins, ends = _minute(found[1], found[2]), _minute(found[3], found[4])
    return None if begins is None or ends is None else Window(begins % DAY, ends % DAY)


def _minute(hours: str, minutes: str) -> int | None:
    minute = int(hours) * 60 + int(minutes)
    return minute if minute <= DAY and int(minutes) < 60 else None
