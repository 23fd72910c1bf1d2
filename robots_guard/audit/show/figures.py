"""The figures of a report on an audit log.

Invariant: the files are read once, into a table that all queries use. Each record counts as the
number of decisions it stands for: a sampled one as many as were sampled, a record of repeats as
many as it counts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from robots_guard.audit.read.search import Search

TOP = 15  # rows of a table
SOON = 30  # days before its expiry from which an override is marked
BARS = 60  # of the chart, at most
_STEPS = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86400, 7 * 86400, 28 * 86400)  # seconds per bar

_CREATE_TABLE = """
    CREATE TEMP TABLE counted AS
    SELECT time, kind, action AS was, {action} AS action, reason, origin, rule, line, agent, component, until, pace,
           failure, relaxed, would,
           override, override_owner, override_reason, override_expires, detail, "at",
           CASE kind WHEN 'decision' THEN greatest(coalesce(sampled, 1), 0) ELSE greatest(count, 0) END AS n
    FROM records WHERE kind IN ('decision', 'repeats', 'fail-open') AND {where}
"""
_DECISIONS = "counted WHERE kind <> 'fail-open'"


class FigureTable(NamedTuple):
    """One table of a report: its heading, description, columns and rows. `bar` is the column drawn
    as bars."""

    title: str
    description: str
    columns: list[str]
    rows: list[tuple[Any, ...]]
    bar: int | None = None


class PeriodCounts(NamedTuple):
    """One bar of the chart: the beginning of a period, and the number of decisions of each action."""

    begins: datetime
    passed: int
    dropped: int
    deferred: int


class Summary(NamedTuple):
    """All figures of a report."""

    first: str
    last: str
    totals: dict[str, int]
    step: int
    bars: list[PeriodCounts]
    tables: list[FigureTable]


def summary(search: Search, now: str, *, what_if: bool = False) -> Summary:
    """The figures of the records that a search selects. `now` is the time of the report.

    With `what_if`, decisions that passed because of `report_only` count as what they would
    otherwise have been, and the two are compared.
    """
    where, values = search.condition(any_kind=True)
    action = "coalesce(would, action)" if what_if else "action"
    search.run(_CREATE_TABLE.format(where=where, action=action), values)
    first, last = _one(search, f'SELECT min("at"), max("at") FROM {_DECISIONS} AND time IS NOT NULL')
    totals = {"pass": 0, "drop": 0, "defer": 0} | dict(
        _rows(search, f"SELECT action, sum(n) FROM {_DECISIONS} GROUP BY 1")
    )
    step = _step(first, last)
    tables = _tables(search, now)
    if what_if:
        tables = [*_comparisons(search), *tables]
    return Summary(first or "", last or "", totals, step, _bars(search, step), tables)


def _rows(search: Search, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return list(search.rows(sql, [*values]))


def _one(search: Search, sql: str) -> tuple[Any, ...]:
    return _rows(search, sql)[0]


def _step(first: str | None, last: str | None) -> int:
    if not first or not last:
        return _STEPS[0]
    seconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    return next((step for step in _STEPS if seconds / step < BARS), int(seconds / BARS) + 1)


def _bars(search: Search, step: int) -> list[PeriodCounts]:
    rows = _rows(
        search,
        f"SELECT to_timestamp(floor(epoch(time) / {step}) * {step}) AT TIME ZONE 'UTC' AS begins,"
        " coalesce(sum(n) FILTER (action = 'pass'), 0), coalesce(sum(n) FILTER (action = 'drop'), 0),"
        f" coalesce(sum(n) FILTER (action = 'defer'), 0) FROM {_DECISIONS} AND time IS NOT NULL"
        " GROUP BY 1 ORDER BY 1",
    )
    found = {row[0]: PeriodCounts(*row) for row in rows}
    if not found or len(found) > 2 * BARS:
        return list(found.values())
    first, last = min(found), max(found)
    periods = (first + timedelta(seconds=step * number) for number in range(2 * BARS))
    return [found.get(begins, PeriodCounts(begins, 0, 0, 0)) for begins in periods if begins <= last]


def _tables(search: Search, now: str) -> list[FigureTable]:
    soon = f"{datetime.fromisoformat(now) + timedelta(days=SOON):%Y-%m-%dT%H:%M:%S.000Z}"
    return [
        FigureTable(
            "Reasons",
            "Decisions by action and reason",
            ["action", "reason", "decisions"],
            _top(search, "action, reason", "true"),
            2,
        ),
        FigureTable(
            "Origins refused",
            "The origins with the most dropped requests",
            ["origin", "drops"],
            _top(search, "origin", "action = 'drop'"),
            1,
        ),
        FigureTable(
            "Rules",
            "The rules that dropped the most requests",
            ["origin", "rule", "line", "drops"],
            _top(search, "origin, rule, line", "action = 'drop' AND rule IS NOT NULL"),
            3,
        ),
        FigureTable(
            "Deferrals",
            "Deferred requests, with the waits in seconds",
            ["origin", "reason", "median wait", "longest wait", "deferrals"],
            _rows(
                search,
                "SELECT origin, reason, round(median(wait), 1), round(max(wait), 1), sum(n) FROM"
                " (SELECT *, epoch(TRY_CAST(until AS TIMESTAMP) - time) AS wait FROM counted"
                " WHERE action = 'defer' AND kind = 'decision') GROUP BY 1, 2 ORDER BY 5 DESC, 1, 2 LIMIT ?",
                TOP,
            ),
            4,
        ),
        FigureTable(
            "Unreachable",
            "Origins whose robots.txt could not be fetched",
            ["origin", "failure", "first", "last", "decisions"],
            _rows(
                search,
                'SELECT origin, coalesce(failure, detail), min("at"), max("at"), sum(n) FROM counted'
                " WHERE reason = 'unreachable' GROUP BY 1, 2 ORDER BY 5 DESC, 1 LIMIT ?",
                TOP,
            ),
            4,
        ),
        FigureTable(
            "Overrides used",
            f"Exceptions that changed decisions; those that expire before {soon[:10]} are marked",
            ["override", "owner", "reason", "expires", "ends soon", "decisions"],
            _rows(
                search,
                "SELECT override, override_owner, override_reason, override_expires,"
                " CASE WHEN override_expires <= ? THEN 'soon' ELSE '' END, sum(n) FROM counted"
                " WHERE override IS NOT NULL GROUP BY ALL ORDER BY 4, 1 LIMIT 100",
                soon,
            ),
            5,
        ),
        FigureTable(
            "Failed open",
            "Requests that passed only because a setting is less strict than the default",
            ["setting", "origins", "decisions"],
            _rows(
                search,
                "SELECT relaxed, count(DISTINCT origin), sum(n) FROM counted"
                " WHERE relaxed IS NOT NULL AND (action = 'pass' OR kind = 'fail-open') GROUP BY 1 ORDER BY 3 DESC",
            ),
            2,
        ),
        FigureTable(
            "Reported only",
            "Requests that passed because of report_only, and would otherwise have been refused",
            ["would", "reason", "origin", "decisions"],
            _top(search, "would, reason, origin", "would IS NOT NULL"),
            3,
        ),
        FigureTable(
            "Crawlers",
            "Decisions by agent and component",
            ["agent", "component", "decisions"],
            _top(search, "agent, component", "true"),
            2,
        ),
    ]


def _comparisons(search: Search) -> list[FigureTable]:
    would = f"{_DECISIONS} AND would IS NOT NULL"
    return [
        FigureTable(
            "Actual and enforced",
            "The decisions, and what they would have been without report_only",
            ["action", "was", "would be", "difference"],
            _rows(
                search,
                "SELECT each, sum(n) FILTER (was = each) AS had, sum(n) FILTER (action = each) AS has, has - had FROM"
                " (SELECT was, action, n FROM " + _DECISIONS + " UNION ALL SELECT a, a, 0 FROM unnest($1) AS t(a)),"
                " (SELECT unnest($1) AS each) GROUP BY 1 ORDER BY 1",
                ["drop", "defer", "pass"],
            ),
            2,
        ),
        FigureTable(
            "Origins that would differ",
            "Requests that passed, and would otherwise have been dropped or deferred",
            ["origin", "would be dropped", "would be deferred", "decisions"],
            _rows(
                search,
                "SELECT origin, coalesce(sum(n) FILTER (would = 'drop'), 0), coalesce(sum(n) FILTER (would = 'defer'),"
                f" 0), sum(n) FROM {would} GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT ?",
                TOP,
            ),
            3,
        ),
        FigureTable(
            "Rules and reasons that would differ",
            "Why requests would have been dropped or deferred",
            ["origin", "would", "reason", "rule", "line", "decisions"],
            _top(search, "origin, would, reason, rule, line", "would IS NOT NULL"),
            5,
        ),
    ]


def _top(search: Search, columns: str, condition: str) -> list[tuple[Any, ...]]:
    count = columns.count(",") + 2
    return _rows(
        search,
        f"SELECT {columns}, sum(n) FROM {_DECISIONS} AND {condition} GROUP BY ALL ORDER BY {count} DESC, 1 LIMIT ?",
        TOP,
    )
