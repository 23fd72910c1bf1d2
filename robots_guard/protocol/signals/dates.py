"""The dates of `unavailable_after`, in the forms that sites write.

Google's page names RFC 822, RFC 850 and ISO 8601 as examples. Its announcement of July 2007 used a
fourth form, and asctime() and the long American form are common:

    Fri, 25 Jun 2010 15:00:00 PST       RFC 822, 1123 and 2822; also -0800
    Friday, 25-Jun-10 15:00:00 GMT      RFC 850
    25-Jun-2010 15:00:00 EST            Google, July 2007
    Fri Jun 25 15:00:00 2010            asctime()
    Jun 25, 2010 15:00 UTC              the long American form
    2020-09-21T10:00:00+02:00           ISO 8601, extended, basic and with a blank for the T

A date with slashes is not read, because its day and month cannot be distinguished.

Invariant: a date without a time means its first moment, and the day of the week is ignored.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from typing import NamedTuple

DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST = (date.min.toordinal() - _EPOCH) * DAY
_LAST = (date.max.toordinal() - _EPOCH + 1) * DAY - 1

#: RFC 9110 section 5.6.7: a year of two digits that seems to be more than 50 years in the future is
#: in the past. This module knows no clock, so it counts from 2026, when it was written. In later
#: years, some future dates are thus read as past dates, which denies more and not less.
_LATEST_SHORT_YEAR = 2026 + 50


class DateMatch(NamedTuple):
    """A date in a text: its moment in seconds since 1970, and the position after it."""

    seconds: int
    assumed_utc: bool  # the text names no known time zone
    end: int


_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        1,
    )
}
_HOURS_OF_ZONES = {
    **dict.fromkeys(("ut", "utc", "gmt", "z"), 0),
    "est": -5,
    "edt": -4,
    "cst": -6,
    "cdt": -5,
    "mst": -7,
    "mdt": -6,
    "pst": -8,
    "pdt": -7,
}

# Possessive quantifiers: a run of blanks is read once.
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*+\.?+[ \t]*+,?+[ \t]*+)?+"
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*+\.?+"
_DAY = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?+(?![0-9])"
_YEAR = r"(?P<year>[0-9]{4}|[0-9]{2})(?![0-9])"
_GAP = r"(?:[ \t]++|(?=-))-?+[ \t]*+"
_CLOCK = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]++)?+)?+"
    r"(?:[ \t]*+(?P<half>[ap])\.?m\b\.?+)?+"
)
_ZONE = (
    r"(?:[ \t]*+(?:(?P<zone>[a-z]{1,3})(?![a-z0-9_*./-])(?:[ \t]*+(?P<offset>[+-][0-9:]{1,6}))?+"
    r"|(?P<alone>[+-][0-9:]{1,6})))?+"
)
_TIME = rf"(?:[ \t]*+,?+[ \t]*+(?:at[ \t]++)?+{_CLOCK})?+"

_FORMS = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})(?![0-9])"
    rf"(?:(?:t|[ \t]++){_CLOCK})?+{_ZONE}",
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})t(?P<hour>[0-9]{2})"
    rf"(?![0-9:]){_ZONE}",
    r"(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?![0-9])"
    r"(?:(?:t|[ \t]++)(?P<hour>[0-9]{2})(?::?(?P<minute>[0-9]{2})"
    rf"(?::?(?P<second>[0-9]{{2}})(?:[.,][0-9]++)?+)?+)?+(?![0-9]))?+{_ZONE}",
    rf"{_WEEKDAY}{_DAY}{_GAP}{_MONTH}{_GAP}{_YEAR}{_TIME}{_ZONE}",
    rf"{_WEEKDAY}{_MONTH}[ \t]++{_DAY}[ \t]*+,?+[ \t]*+{_YEAR}(?!:){_TIME}{_ZONE}",
    rf"{_WEEKDAY}{_MONTH}[ \t]++{_DAY}[ \t]++{_CLOCK}{_ZONE}[ \t]++{_YEAR}",
)


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """The compiled forms. They are compiled at their first use, because this takes milliseconds and
    few files have dates."""
    return tuple(re.compile(form, re.IGNORECASE | re.ASCII) for form in _FORMS)


def match_date(text: str, start: int = 0) -> DateMatch | None:
    """The longest date that begins at `start`, or None. Never raises."""
    matches = [found for form in _patterns() if (found := form.match(text, start))]
    for found in sorted(matches, key=lambda found: -found.end()):
        moment = _moment(found)
        if moment is not None:
            return moment
    return None


def _moment(found: re.Match[str]) -> DateMatch | None:
    parts = found.groupdict()
    seconds = _seconds_of_day(parts)
    days = _days(parts)
    if seconds is None or days is None:
        return None
    zone = _zone(found)
    moment = days * DAY + seconds - zone.shift
    return DateMatch(min(max(moment, _FIRST), _LAST), zone.is_assumed, zone.end)


class _Zone(NamedTuple):
    """A time zone: its shift from UTC in seconds, and the position after it."""

    shift: int
    is_assumed: bool
    end: int


def _zone(found: re.Match[str]) -> _Zone:
    """The time zone of a date, or UTC if it names none that is known."""
    name = (found["zone"] or "").lower()
    if name and name not in _HOURS_OF_ZONES:
        # The reader of the line decides whether the word is a zone.
        return _Zone(0, True, found.start("zone"))
    end = found.end()
    offset = found["offset"] or found["alone"]
    if offset is not None:
        shift = _offset(offset)
        if shift is not None:
            return _Zone(shift, False, end)
        end = found.start("offset" if name else "alone")
    if name:
        return _Zone(3600 * _HOURS_OF_ZONES[name], False, end)
    return _Zone(0, True, end)


def _days(parts: dict[str, str | None]) -> int | None:
    """Days since 1970-01-01; None if there is no such day."""
    year, month = parts["year"] or "", parts["month"] or ""
    number = _MONTHS.get(month.lower()) or int(month)
    try:
        return date(_year(year), number, int(parts["day"] or 0)).toordinal() - _EPOCH
    except ValueError:
        return None


def _year(digits: str) -> int:
    if len(digits) == 4:
        return int(digits)
    year = 2000 + int(digits)
    if year > _LATEST_SHORT_YEAR:
        return year - 100
    return year


def _seconds_of_day(parts: dict[str, str | None]) -> int | None:
    """Seconds since midnight, or None if there is no such time.

    24:00 is the end of the day (ISO 8601), and a minute may have 61 seconds (RFC 9110 section
    5.6.7).
    """
    hour = int(parts["hour"] or 0)
    minute = int(parts.get("minute") or 0)
    second = int(parts.get("second") or 0)
    half = (parts.get("half") or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    seconds = 3600 * hour + 60 * minute + second
    if minute > 59 or second > 60 or seconds > DAY:
        return None
    return seconds


def _offset(text: str) -> int | None:
    """The seconds of an offset from UTC, such as +02:00, -0800 or +2. None if it is invalid."""
    found = re.fullmatch(r"([+-])([0-9]{1,2})(?::?([0-9]{2}))?", text)
    if found is None or int(found[2]) > 23 or int(found[3] or 0) > 59:
        return None
    seconds = 3600 * int(found[2]) + 60 * int(found[3] or 0)
    return -seconds if found[1] == "-" else seconds
