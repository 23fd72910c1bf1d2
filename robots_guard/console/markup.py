"""The templates of the pages, and actions and times as text on them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

from robots_guard.audit.show.markup import environment
from robots_guard.core.reasons import meaning_of
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


def moment(seconds: float | None) -> str:
    """Return a time in seconds since 1970 for people, in UTC."""
    if seconds is None or not isfinite(seconds):
        return ""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"


TEMPLATES = environment("robots_guard.console")
TEMPLATES.filters |= {"kind": kind, "at": at, "meaning": meaning_of, "moment": moment, "span": span}
