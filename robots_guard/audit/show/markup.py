"""The jinja2 environment for pages that show untrusted text.

Invariant: untrusted text is displayed and never interpreted. jinja2 escapes all markup; `visible`
escapes unprintable characters (controls, escape sequences, bidirectional marks), and `cut`
truncates long values.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from robots_guard.errors import MissingExtra
from robots_guard.text import counted, printable

try:
    import jinja2
    from markupsafe import Markup
except ImportError as missing:
    raise MissingExtra("audit", "HTML pages") from missing

LONG = 300  # characters of a cell


def environment(*packages: str) -> jinja2.Environment:
    """Return an environment with the templates of this package, and those of other packages."""
    loaders = [jinja2.PackageLoader(package) for package in (*packages, "robots_guard.audit.show")]
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "cell": cell,
        "counted": counted,
        "cut": cut,
        "number": number,
        "query": urlencode,
    }
    return made


def visible(value: Any) -> Any:
    """Return the value with unprintable characters escaped; line ends are kept."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value, keep="\n")
    return value


def cut(value: str | None, longest: int = LONG) -> str:
    """Truncate a value to this many characters."""
    text = value or ""
    if len(text) <= longest:
        return text
    return text[: longest - 1] + "…"


def number(value: float) -> str:
    """Return a number with thousands separators."""
    return f"{value:,}"


def cell(value: Any) -> str:
    """Return a value of a table as text."""
    if isinstance(value, int | float):
        return number(value)
    if value is None:
        return ""
    return cut(str(value))
