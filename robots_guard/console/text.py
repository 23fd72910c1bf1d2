"""Text on a page.

The law of this file: what a stranger wrote is shown, and shows itself. jinja2 escapes all markup; here what is not
printable (controls, escape sequences, marks that turn the direction of a line) is shown by its number, and what is
long is cut where it is only named.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import Any

from markupsafe import Markup

from robots_guard.plain import printable

LONG = 300  # characters of a cell


def visible(value: Any) -> Any:
    """The value, with each character that is not printable shown as its number. Lines stay lines."""
    if value is None:
        return ""
    return printable(value, keep="\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def cut(value: str | None, longest: int = LONG) -> str:
    """At most so many characters."""
    text = value or ""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def kind(action: str) -> str:
    """The class of what a journal says was done; none for what cannot be done."""
    return action if action in ("pass", "drop", "defer") else ""


def number(value: float) -> str:
    """A number, its thousands apart."""
    return f"{value:,}"


def at(value: str | None) -> str:
    """A moment of a record, to the second, for people."""
    return f"{value[:10]} {value[11:19]}" if value and len(value) == 24 else value or ""


def moment(seconds: float | None) -> str:
    """Seconds since 1970, for people: UTC."""
    if seconds is None or not isfinite(seconds):
        return ""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"
