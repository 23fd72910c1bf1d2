"""Text on a page.

Invariant: untrusted text is displayed and never interpreted. jinja2 escapes all markup; this module escapes
unprintable characters (controls, escape sequences, bidirectional marks) and truncates long values.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import Any

from markupsafe import Markup

from robots_guard.text import printable

LONG = 300  # characters of a cell


def visible(value: Any) -> Any:
    """Return the value with unprintable characters escaped; line ends are kept."""
    if value is None:
        return ""
    return printable(value, keep="\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def cut(value: str | None, longest: int = LONG) -> str:
    """Truncate a value to this many characters."""
    text = value or ""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def kind(action: str) -> str:
    """Return the CSS class of an action; an empty string for an unknown one, which only a forged record has."""
    return action if action in ("pass", "drop", "defer") else ""


def number(value: float) -> str:
    """Return a number with thousands separators."""
    return f"{value:,}"


def at(value: str | None) -> str:
    """Return a record's time for people, to the second."""
    return f"{value[:10]} {value[11:19]}" if value and len(value) == 24 else value or ""


def moment(seconds: float | None) -> str:
    """Return a time in seconds since 1970 for people, in UTC."""
    if seconds is None or not isfinite(seconds):
        return ""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"
