"""The report: one HTML file that needs nothing else, for people.

The law of this file: the template escapes whatever is put into it, and the page may load and run nothing: a
journal's values were written by strangers.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

from robots_guard.audit.summary import Bar, Summary
from robots_guard.errors import MissingExtra
from robots_guard.plain import printable

LONGEST = 300  # characters of a cell
WIDTH, HEIGHT = 960, 220  # of the chart, without its margins
_KINDS = (("dropped", "drop"), ("deferred", "defer"), ("passed", "pass"))


class Piece(NamedTuple):
    """One coloured part of a bar, in the chart's own units."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    says: str


def page(summary: Summary, made: str, about: str, trouble: str = "") -> str:
    """The report as HTML. `about` says which records it is on. Raises MissingExtra without jinja2."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("audit", "robots-guard audit report") from error
    source = files("robots_guard.audit").joinpath("report.html").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["cell"] = _cell
    tallest = max((sum(bar[1:]) for bar in summary.bars), default=0)
    return environment.from_string(source).render(
        summary=summary,
        made=made,
        about=about,
        trouble=trouble,
        pieces=list(_pieces(summary.bars, tallest)),
        tallest=tallest,
        width=WIDTH,
        height=HEIGHT,
        largest=[_largest(table.rows, table.bar) for table in summary.tables],
    )


def _pieces(bars: list[Bar], tallest: int) -> list[Piece]:
    found = []
    step = WIDTH / max(1, len(bars))
    for number, bar in enumerate(bars):
        y = float(HEIGHT)
        for name, kind in _KINDS:
            count = getattr(bar, name)
            height = HEIGHT * count / max(1, tallest)
            y -= height
            if count:
                says = f"{bar.begins:%Y-%m-%d %H:%M} UTC: {count} {kind}"
                found.append(
                    Piece(kind, round(number * step, 2), round(y, 2), round(step * 0.85, 2), round(height, 2), says)
                )
    return found


def _largest(rows: list[tuple[Any, ...]], bar: int | None) -> float:
    return max((float(row[bar] or 0) for row in rows), default=0.0) if bar is not None else 0.0


def _cell(value: Any) -> str:
    """A value as text: what is not printable is shown by its number, so that nothing in it turns the line around."""
    if isinstance(value, int | float):
        return f"{value:,}"
    text = "" if value is None else str(value)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return printable(text)
