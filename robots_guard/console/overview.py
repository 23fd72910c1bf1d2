"""The overview: what was decided in a period, over time, and where most of it.

The law of this file: a decision weighs what it stands for, as in audit/summary.py. One pass for the figures over
time, one for each list.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from robots_guard.audit.query import Filter
from robots_guard.audit.search import Search, conditions
from robots_guard.console.chart import Bar

TOP = 10
BARS = 72  # at most
_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 28 * 86400)  # seconds
_UNITS = ((3600, 16), (86400, 13), (0, 10))  # a step below so many seconds needs so many characters of a moment
_SUM = "sum(CASE kind WHEN 'decision' THEN coalesce(sampled, 1) ELSE count END)"
_WEIGHT = f"{_SUM}::BIGINT"
_KINDS = "kind IN ('decision', 'repeats')"


class Overview(NamedTuple):
    """The figures. `bars` is empty where nothing was recorded."""

    totals: dict[str, int]
    bars: list[Bar]
    step: int
    reasons: list[tuple[str, str, int]]
    origins: list[tuple[str, int, int, int]]  # dropped, deferred, passed
    rules: list[tuple[str, str, int | None, int]]
    opened: list[tuple[str, int]]
    overrides: list[tuple[str, int]]
    would: int  # passed only because nothing is refused, merely reported


def overview(search: Search, since: str | None, until: str) -> Overview:
    """What was decided since then. `until` is now."""
    where, values = conditions(Filter(kind=None, since=since))
    where = f"{_KINDS} AND {where}"
    first, last = (since, until) if since else _ends(search, where, values)
    step = _step(first, last)
    counted = _counted(search, where, values, next(width for below, width in _UNITS if step < below or not below))
    reasons: Counter[tuple[str, str]] = Counter()
    for _, action, reason, number in counted:
        reasons[action, reason] += number
    totals = {action: sum(n for (each, _), n in reasons.items() if each == action) for action in _ACTIONS}
    chosen = _chosen(search, where, values)
    return Overview(
        totals=totals,
        bars=_bars(counted, first, last, step) if reasons else [],
        step=step,
        reasons=[(action, reason, number) for (action, reason), number in reasons.most_common()],
        origins=_origins(search, where, values),
        rules=_top(search, "origin, rule, line", f"{where} AND action = 'drop' AND rule IS NOT NULL", values),
        opened=_most(chosen, 0),
        overrides=_most(chosen, 1),
        would=sum(row[-1] for row in chosen if row[2]),
    )


_ACTIONS = ("drop", "defer", "pass")


def _ends(search: Search, where: str, values: list[Any]) -> tuple[str | None, str | None]:
    return next(search.rows(f'SELECT min("at"), max("at") FROM records WHERE {where}', values))[:2]


def _counted(search: Search, where: str, values: list[Any], width: int) -> list[tuple[str, str, str, int]]:
    """By time (the first characters of it), action and reason."""
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


def _chosen(search: Search, where: str, values: list[Any]) -> list[tuple[str | None, str | None, str | None, int]]:
    """What somebody's choice had a part in: by the setting that let it pass, the override, what would have been."""
    sql = (
        f"SELECT CASE action WHEN 'pass' THEN relaxed END, override, would, {_WEIGHT} FROM records"
        f" WHERE {where} AND (relaxed IS NOT NULL OR override IS NOT NULL OR would IS NOT NULL) GROUP BY ALL"
    )
    return [*search.rows(sql, values)]


def _most(chosen: list[tuple[str | None, str | None, str | None, int]], place: int) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for row in chosen:
        if row[place]:
            counts[str(row[place])] += row[-1]
    return counts.most_common(TOP)


# -- over time ----------------------------------------------------------------------------------------------


def _step(first: str | None, last: str | None) -> int:
    begins, ends = _read(first), _read(last)
    if begins is None or ends is None:
        return _STEPS[0]
    seconds = (ends - begins).total_seconds()
    return next((step for step in _STEPS if seconds / step <= BARS), _STEPS[-1])


def _bars(counted: list[tuple[str, str, str, int]], first: str | None, last: str | None, step: int) -> list[Bar]:
    """One for each step of the time, also where nothing was."""
    sums: dict[datetime, Counter[str]] = {}
    for moment, action, _, number in counted:
        at = _read(moment)
        if at is not None:
            sums.setdefault(_floor(at, step), Counter())[action] += number
    begins, ends = _read(first), _read(last)
    if begins is None or ends is None:
        return []
    at = _floor(begins, step)
    found: list[Bar] = []
    while at <= ends and len(found) <= 2 * BARS:
        counts = sums.get(at, Counter())
        found.append(Bar(at, timedelta(seconds=step), {action: counts[action] for action in _ACTIONS}))
        at += timedelta(seconds=step)
    return found


def _floor(at: datetime, step: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // step * step, UTC)


def _read(moment: str | None) -> datetime | None:
    """The first characters of a moment; None for what is none."""
    text = (moment or "").rstrip("Z")
    try:
        return datetime.fromisoformat(text if len(text) != 13 else f"{text}:00").replace(tzinfo=UTC)
    except ValueError:
        return None
