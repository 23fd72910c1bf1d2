"""The overview: the decisions of a period over time, and the most frequent reasons, origins and rules.

Invariant: a record counts for all decisions that it stands for, as in audit/show/figures.py. The figures over time
take one query, and so does each list.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search, conditions
from robots_guard.audit.show.chart import ChartBar

TOP = 10
MAX_BARS = 72
_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 28 * 86400)  # seconds
# Steps shorter than the first number (in seconds; 0: any) need the second number of characters of a time.
_UNITS = ((3600, 16), (86400, 13), (0, 10))
_SUM = "sum(CASE kind WHEN 'decision' THEN coalesce(sampled, 1) ELSE count END)"
_WEIGHT = f"{_SUM}::BIGINT"
_KINDS = "kind IN ('decision', 'repeats')"


class Overview(NamedTuple):
    """The figures of the overview. `bars` is empty if nothing was recorded."""

    totals: dict[str, int]
    bars: list[ChartBar]
    step: int
    reasons: list[tuple[str, str, int]]
    origins: list[tuple[str, int, int, int]]  # dropped, deferred, passed
    rules: list[tuple[str, str, int | None, int]]
    opened: list[tuple[str, int]]
    overrides: list[tuple[str, int]]
    would: int  # passed only because report_only refuses nothing


def overview(search: Search, since: str | None, until: str) -> Overview:
    """Return the figures for the decisions since then. `until` is now."""
    where, values = conditions(Filter(kind=None, since=since))
    where = f"{_KINDS} AND {where}"
    first, last = (since, until) if since else _first_and_last(search, where, values)
    step = _step(first, last)
    width = next(width for below, width in _UNITS if step < below or not below)
    counts = _counts_by_time(search, where, values, width)
    reasons: Counter[tuple[str, str]] = Counter()
    for _, action, reason, number in counts:
        reasons[action, reason] += number
    totals = {action: sum(n for (each, _), n in reasons.items() if each == action) for action in _ACTIONS}
    exceptions = _exceptions(search, where, values)
    return Overview(
        totals=totals,
        bars=_bars(counts, first, last, step) if reasons else [],
        step=step,
        reasons=[(action, reason, number) for (action, reason), number in reasons.most_common()],
        origins=_origins(search, where, values),
        rules=_top(search, "origin, rule, line", f"{where} AND action = 'drop' AND rule IS NOT NULL", values),
        opened=_most_frequent(exceptions, 0),
        overrides=_most_frequent(exceptions, 1),
        would=sum(row[-1] for row in exceptions if row[2]),
    )


_ACTIONS = ("drop", "defer", "pass")


def _first_and_last(search: Search, where: str, values: list[Any]) -> tuple[str | None, str | None]:
    return next(search.rows(f'SELECT min("at"), max("at") FROM records WHERE {where}', values))[:2]


def _counts_by_time(search: Search, where: str, values: list[Any], width: int) -> list[tuple[str, str, str, int]]:
    """Count by time (its first `width` characters), action and reason."""
    sql = f'SELECT left("at", {width}), action, reason, {_WEIGHT} FROM records WHERE {where} GROUP BY ALL'
    return [*search.rows(sql, values)]


def _origins(search: Search, where: str, values: list[Any]) -> list[tuple[str, int, int, int]]:
    parts = ", ".join(f"coalesce({_SUM} FILTER (action = '{action}'), 0)::BIGINT" for action in _ACTIONS)
    sql = (
        f"SELECT origin, {parts} FROM records WHERE {where} AND origin IS NOT NULL GROUP BY 1"
        f" ORDER BY 2 DESC, 3 DESC, 4 DESC, 1 LIMIT {TOP}"
    )
    return [(origin, *map(int, counts)) for origin, *counts in search.rows(sql, values)]


def _top(search: Search, columns: str, where: str, values: list[Any]) -> list[Any]:
    place = columns.count(",") + 2
    sql = f"SELECT {columns}, {_WEIGHT} FROM records WHERE {where} GROUP BY ALL ORDER BY {place} DESC, 1 LIMIT {TOP}"
    return [*search.rows(sql, values)]


def _exceptions(search: Search, where: str, values: list[Any]) -> list[tuple[str | None, str | None, str | None, int]]:
    """Count decisions that a setting or override changed: by relaxing setting, override, and action it replaced."""
    sql = (
        f"SELECT CASE action WHEN 'pass' THEN relaxed END, override, would, {_WEIGHT} FROM records"
        f" WHERE {where} AND (relaxed IS NOT NULL OR override IS NOT NULL OR would IS NOT NULL) GROUP BY ALL"
    )
    return [*search.rows(sql, values)]


def _most_frequent(rows: list[tuple[str | None, str | None, str | None, int]], column: int) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for row in rows:
        if row[column]:
            counts[str(row[column])] += row[-1]
    return counts.most_common(TOP)


# -- over time ----------------------------------------------------------------------------------------------


def _step(first: str | None, last: str | None) -> int:
    begins, ends = _parse_time(first), _parse_time(last)
    if begins is None or ends is None:
        return _STEPS[0]
    seconds = (ends - begins).total_seconds()
    return next((step for step in _STEPS if seconds / step <= MAX_BARS), _STEPS[-1])


def _bars(counts: list[tuple[str, str, str, int]], first: str | None, last: str | None, step: int) -> list[ChartBar]:
    """Return a bar for each step of the period, including empty ones."""
    sums: dict[datetime, Counter[str]] = {}
    for moment, action, _, number in counts:
        at = _parse_time(moment)
        if at is not None:
            sums.setdefault(_floor(at, step), Counter())[action] += number
    begins, ends = _parse_time(first), _parse_time(last)
    if begins is None or ends is None:
        return []
    at = _floor(begins, step)
    found: list[ChartBar] = []
    while at <= ends and len(found) <= 2 * MAX_BARS:
        actions = sums.get(at, Counter())
        found.append(ChartBar(at, timedelta(seconds=step), {action: actions[action] for action in _ACTIONS}))
        at += timedelta(seconds=step)
    return found


def _floor(at: datetime, step: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // step * step, UTC)


def _parse_time(moment: str | None) -> datetime | None:
    """Parse the first characters of a record's time; None for an invalid one."""
    text = (moment or "").rstrip("Z")
    try:
        return datetime.fromisoformat(text if len(text) != 13 else f"{text}:00").replace(tzinfo=UTC)
    except ValueError:
        return None
