"""The templates of the pages, and actions and times as text on them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from urllib.parse import quote

from robots_guard.audit.show.markup import environment
from robots_guard.audit.show.sentence import time_of
from robots_guard.decisions.reasons import meaning_of
from robots_guard.text import span


def kind(action: str) -> str:
    """Return the CSS class of an action; an empty string for an unknown one, which only a forged
    record has."""
    if action in ("pass", "drop", "defer"):
        return action
    return ""


def at(value: str | None) -> str:
    """Return a record's time for people, to the second."""
    if value and len(value) == 24:
        return f"{value[:10]} {value[11:19]}"
    return value or ""


def segment(value: str) -> str:
    """Return a text as one segment of a path."""
    return quote(value, safe="", errors="replace")


def moment(seconds: float | None) -> str:
    """Return a time in seconds since 1970 for people, in UTC."""
    if seconds is None or not isfinite(seconds):
        return ""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"


def percent(part: float | None) -> str:
    """Return a part of 1 as a percentage; an empty string for None."""
    if part is None:
        return ""
    return f"{100 * part:.1f} %"


def points(change: float) -> str:
    """Return the change of a part of 1 in percentage points."""
    shown = f"{100 * change:+.1f}"
    if float(shown) == 0:
        return "no change"
    return f"{shown} points"


def change(now: int, before: int) -> str:
    """Return the change of a number as a percentage; an empty string if there was none before."""
    if not before:
        return ""
    if now == before:
        return "no change"
    return f"{100 * (now - before) / before:+,.0f} %"


def parts_of(origin: str | None) -> tuple[str, str]:
    """Return an origin without its port, and the port with its colon, or an empty string."""
    name, colon, port = (origin or "").rpartition(":")
    if port.isdigit():
        return name, colon + port
    return origin or "", ""


def took(microseconds: float | None) -> str:
    """Return a short time for people: seconds if there are any, else milliseconds."""
    milliseconds = (microseconds or 0) / 1000
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:,.1f} s"
    if milliseconds >= 10:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds:.2g} ms"


TEMPLATES = environment("robots_guard.app.console")
TEMPLATES.filters |= {
    "kind": kind,
    "at": at,
    "change": change,
    "time_of": time_of,
    "meaning": meaning_of,
    "moment": moment,
    "parts": parts_of,
    "percent": percent,
    "points": points,
    "segment": segment,
    "span": span,
    "took": took,
}
