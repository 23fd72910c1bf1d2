"""The report: one self-contained HTML file.

Invariant: the template escapes all values, and the page may neither load nor run anything, because
clients and sites control values in an audit log.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

from robots_guard.audit.show.figures import PeriodCounts, Summary
from robots_guard.errors import MissingExtra
from robots_guard.text import printable

LONGEST = 300  # characters of a cell
WIDTH, HEIGHT = 960, 220  # of the chart, without margins
_KINDS = (("dropped", "drop"), ("deferred", "defer"), ("passed", "pass"))


class ReportSlice(NamedTuple):
    """One coloured part of a bar, in SVG units."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str


def page(summary: Summary, made: str, about: str, trouble: str = "") -> str:
    """The report as HTML. `about` describes the records it covers. Raises MissingExtra without
    jinja2."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("audit", "robots-guard audit report") from error
    source = files("robots_guard.audit.show").joinpath("report.html").read_text("utf-8")
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


def _pieces(bars: list[PeriodCounts], tallest: int) -> list[ReportSlice]:
    pieces = []
    slot = WIDTH / max(1, len(bars))
    for number, bar in enumerate(bars):
        x, y, width = round(number * slot, 2), float(HEIGHT), round(slot * 0.85, 2)
        for name, kind in _KINDS:
            count = getattr(bar, name)
            height = HEIGHT * count / max(1, tallest)
            y -= height
            if count:
                text = f"{bar.begins:%Y-%m-%d %H:%M} UTC: {count} {kind}"
                pieces.append(ReportSlice(kind, x, round(y, 2), width, round(height, 2), text))
    return pieces


def _largest(rows: list[tuple[Any, ...]], bar: int | None) -> float:
    if bar is None:
        return 0.0
    return max((float(row[bar] or 0) for row in rows), default=0.0)


def _cell(value: Any) -> str:
    """A value as text. Unprintable characters are shown by number, so that none can reverse the
    text's direction."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:,}"
    text = str(value)
    if len(text) > LONGEST:
        text = text[: LONGEST - 3] + "..."
    return printable(text)
