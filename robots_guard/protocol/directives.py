"""The fields of a group beside Allow and Disallow: Crawl-delay, Request-rate, Visit-time and Host.

None of them is in RFC 9309. These forms are read, and docs/pacing.md says which are honoured:

    Crawl-delay: 10          seconds between two requests, also 0.5, "1,5" and "10s"
    Request-rate: 1/10s      pages per period in s, m, h or d; followed by "0900-1730",
                             it applies at that time of day only
    Visit-time: 0600-0845    visit at these times only; several lines add up
    Host: www.example.org    of yandex2003: which of several mirrors is the main one

Times of day are UTC.

Invariant: a number that is too large, infinite or `nan` asks for no visits and is read as infinite;
the caller limits it. A value that is not a number in any sense is `odd`. Only what can take effect
is kept and compared at each request, so that a long file does not slow requests down.

Invariant: a Host line with an invalid argument is ignored. If a valid one names the current host
and port, nothing changes. If there are valid ones and none names it, the group ends in "Disallow:
/".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from publicsuffixlist import PublicSuffixList

from robots_guard.protocol.lines import Line

DAY = 1440  # minutes
# Different times of day that are kept. A delay for a further one applies all day; a visiting time
# is ignored.
WINDOWS = 100

_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,30}(?:[.,][0-9]{0,30})?|[.,][0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?"
)
_ENDLESS = re.compile(r"\+?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_RATE = re.compile(
    r"([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*(?a:([smhd]?))\w*(?:\s+(.+))?", re.IGNORECASE
)
_TIME = re.compile(
    r"([0-9]{2}):?([0-9]{2})\s*-\s*([0-9]{2}):?([0-9]{2})(?:\s*(?:utc|gmt|z))?", re.IGNORECASE
)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Window(NamedTuple):
    """A time of day in minutes since midnight UTC, from `begins` to `ends` (excluded).

    It may extend past midnight. If both are equal, it is the whole day.
    """

    begins: int
    ends: int

    def has(self, minute: float) -> bool:
        """Whether the window contains a minute of the day."""
        if self.begins < self.ends:
            return self.begins <= minute < self.ends
        return minute >= self.begins or minute < self.ends


class Delay(NamedTuple):
    """The least seconds from one request to the next; infinite: as long as possible.

    With `window`, it applies at that time of day only.
    """

    seconds: float
    line: Line
    window: Window | None = None


class Rate(NamedTuple):
    """A rate as a file states it: so many requests in so many seconds, with `window` only then."""

    requests: int
    seconds: int
    window: Window | None = None

    @property
    def delay(self) -> float:
        """Seconds from one request to the next, so that no burst is allowed."""
        if self.requests == 0:
            return math.inf
        return self.seconds / self.requests


class Visit(NamedTuple):
    """A time at which requests are welcome."""

    window: Window
    line: Line


class Pace(NamedTuple):
    """The delays and visiting times of a group.

    It has the longest delay and the first visiting time of each window. `lines` are the lines that
    were read, `odd` those that are unreadable.
    """

    delays: tuple[Delay, ...]
    visits: tuple[Visit, ...]
    odd: tuple[Line, ...]
    lines: tuple[Line, ...] = ()


def pace_of(records: Iterable[Line]) -> Pace | None:
    """The delays and visiting times in the other lines of a group, or None. Never raises."""
    delays: dict[Window | None, Delay] = {}
    visits: dict[Window, Visit] = {}
    odd: list[Line] = []
    lines: list[Line] = []
    for line in records:
        if line.field in _READERS:
            found = _READERS[line.field](line)
            if found is None:
                odd.append(line)
                continue
            lines.append(line)
            if isinstance(found, Delay):
                _keep_longest(delays, found)
            elif len(visits) < WINDOWS or found.window in visits:
                visits.setdefault(found.window, found)
    if not lines and not odd:
        return None
    return Pace(tuple(delays.values()), tuple(visits.values()), tuple(odd), tuple(lines))


def crawl_delay_of(pace: Pace) -> float | None:
    """The longest Crawl-delay of a group in seconds, without the delays of its Request-rate."""
    found = (_delay(line) for line in pace.lines if line.field == "crawl-delay")
    return max((delay.seconds for delay in found if delay is not None), default=None)


def request_rate_of(pace: Pace) -> Rate | None:
    """The slowest Request-rate of a group."""
    found = (_read_rate(line.value) for line in pace.lines if line.field == "request-rate")
    return max((rate for rate in found if rate is not None), key=_delay_of_rate, default=None)


def _delay_of_rate(rate: Rate) -> float:
    return rate.delay


def _keep_longest(delays: dict[Window | None, Delay], found: Delay) -> None:
    if found.window not in delays and len(delays) >= WINDOWS:
        found = found._replace(window=None)
    longest = delays.get(found.window)
    if longest is None or found.seconds > longest.seconds:
        delays[found.window] = found


def _delay(line: Line) -> Delay | None:
    if _ENDLESS.match(line.value):
        return Delay(math.inf, line)
    number = _NUMBER.match(line.value)
    if number:
        return Delay(max(0.0, float(number[0].replace(",", "."))), line)
    return None


def _rate(line: Line) -> Delay | None:
    """Read a rate of n requests per period as one per n-th part of it."""
    rate = _read_rate(line.value)
    if rate is None:
        return None
    return Delay(rate.delay, line, rate.window)


def _read_rate(value: str) -> Rate | None:
    found = _RATE.fullmatch(value)
    if found is None:
        return None
    count, period, unit, when = found.groups()
    window = None
    if when:
        window = _window(when)
        if window is None:
            return None
    return Rate(int(count), int(period) * _UNITS[unit.lower()], window)


def _visit(line: Line) -> Visit | None:
    window = _window(line.value)
    if window:
        return Visit(window, line)
    return None


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
    if begins is None or ends is None:
        return None
    return Window(begins % DAY, ends % DAY)


def _minute(hours: str, minutes: str) -> int | None:
    minute = int(hours) * 60 + int(minutes)
    if minute <= DAY and int(minutes) < 60:
        return minute
    return None


# RFC 952 as relaxed by RFC 1123 section 2.1: a leading digit, and labels of up to 63 octets.
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    """A valid Host line. A port of 0 is the default port of the scheme."""

    name: str
    port: int
    line: int
    text: str

    @property
    def shown(self) -> str:
        if self.port:
            return f"{self.name}:{self.port}"
        return self.name


def valid_hosts(records: Iterable[Line]) -> tuple[Host, ...]:
    """The valid Host lines among the records of a group."""
    found = (_parse_host(record) for record in records if record.field == "host")
    return tuple(host for host in found if host is not None)


def _parse_host(record: Line) -> Host | None:
    name, colon, port = record.value.lower().partition(":")
    # Check the original value: lower() turns the Kelvin sign into an ASCII "k".
    if not record.value.isascii() or not is_host_name(name) or (colon and not _is_port(port)):
        return None
    # Port 80 is the default in the proposal, so both spellings are equal.
    number = int(port) if colon and int(port) != 80 else 0
    return Host(name, number, record.number, record.text)


def is_host_value(value: str) -> bool:
    """Whether an argument is valid: one host name, not an address, and optionally a port."""
    return _parse_host(Line(0, "host", value, "")) is not None


def is_host_name(name: str) -> bool:
    """Whether a name consists of letters, digits and hyphens under an existing top-level domain."""
    if len(name) > 253 or not _NAME.fullmatch(name):
        return False
    return _public_suffixes().publicsuffix(name) is not None


@cache
def _public_suffixes() -> PublicSuffixList:
    """The public suffix list that the package ships.

    It is parsed at the first Host line, because that takes 50 to 80 ms and few files have one.
    """
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def _is_port(port: str) -> bool:
    return _PORT.fullmatch(port) is not None and 0 < int(port) < 65_536


def is_main(hosts: Iterable[Host], name: str, port: int, scheme: str) -> bool:
    """Whether any of the lines names this host and port."""
    default = _DEFAULT_PORTS.get(scheme, 80)
    current = (name.lower().removesuffix("."), port or default)
    return any((host.name, host.port or default) == current for host in hosts)
