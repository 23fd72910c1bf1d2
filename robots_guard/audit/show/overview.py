"""The figures of the console's overview: a period, the period of the same length before it, and
what is new.

Invariant: the decisions of both periods are read once. The figures are computed from a table that
has them counted by what they have in common, which is far smaller.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.audit.show.chart import ChartBar
from robots_guard.audit.show.figures import (
    ACTIONS,
    PLAIN,
    Counts,
    Decisions,
    Timeline,
    bar_of,
    bars_of,
    counted_records,
    counts_of,
    naive,
    step_of,
    with_settings,
)
from robots_guard.audit.show.news import News, compared_from, news_of

HOUR = 3600  # seconds
CRAWLERS = 8  # agents and jobs that are shown

_GROUPED = """
    SELECT grouping(origin) = 1 AS timed, "at" >= ? AS now, kind = 'fail-open' AS opened,
           action, reason, origin, rule, line, override, relaxed, would, agent, job, plain,
           time_bucket(to_seconds({step}), time, TIMESTAMP '1970-01-01') AS bucket, sum(n) AS n
    FROM (SELECT *, kind = 'passes' OR (action = 'pass' AND {plain}) AS plain FROM ({counted}))
    GROUP BY GROUPING SETS (
        (now, opened, action, reason, origin, rule, line, override, relaxed, would),
        (now, opened, action, reason, agent, job, plain, bucket)
    )
"""
_TABLE = "periods"
_NOW = f"{_TABLE} WHERE timed AND now AND NOT opened"


class Crawler(NamedTuple):
    """The decisions of an agent or a job: in the period, before it, and the dropped ones over
    time."""

    name: str
    now: Counts
    before: Counts | None
    dropped: list[int]


class Overview(NamedTuple):
    """All figures of the console's overview. `before` is None if no period is compared."""

    timeline: Timeline
    now: Counts
    before: Counts | None
    agents: list[Crawler]
    jobs: list[Crawler]
    origins: list[tuple[Any, ...]]  # dropped, deferred, passed
    rules: list[tuple[Any, ...]]  # origin, rule, line
    opened: list[tuple[Any, ...]]  # setting, origins, and requests that it let pass
    overrides: list[tuple[Any, ...]]
    signals: list[tuple[Any, ...]]  # use, signal, origins, statements, refused
    would: int  # passed only because report_only refuses nothing
    news: News | None


def timeline_of(search: Search, wanted: Filter) -> Timeline:
    """Return the decisions that a filter selects over time, from the first to the last, with one
    query. A bar is at least an hour."""
    rows = Decisions(search, wanted).rows(
        f"SELECT time_bucket(to_seconds({HOUR}), time, TIMESTAMP '1970-01-01') AS hour, action,"
        " reason, sum(n) FROM counted WHERE kind <> 'fail-open' GROUP BY ALL"
    )
    hours = [hour for hour, *_ in rows if hour]
    first, last = min(hours, default=None), max(hours, default=None)
    step = timedelta(seconds=max(HOUR, step_of(first, last)))
    reasons, totals = Counter[tuple[str, str]](), dict.fromkeys(ACTIONS, 0)
    by_time: dict[datetime | None, Counter[str]] = {}
    for hour, action, reason, number in rows:
        begins = hour and bar_of(hour, step)
        by_time.setdefault(begins, Counter())[action] += int(number)
        totals[action] = totals.get(action, 0) + int(number)
        reasons[action, reason] += int(number)
    most_common = [(*each, number) for each, number in reasons.most_common()]
    return Timeline(totals, most_common, bars_of(by_time, first, last, step))


class _PeriodDecisions(Decisions):
    """The decisions of a period, read from the counted table."""

    def __init__(self, search: Search, wanted: Filter) -> None:
        super().__init__(search, wanted)
        self._with = (
            "WITH counted AS (SELECT *, CASE WHEN opened THEN 'fail-open' ELSE 'decision' END AS kind"
            f" FROM {_TABLE} WHERE now AND NOT timed)"
        )
        self._values = []


def overview(search: Search, since: str | None, until: str) -> Overview:
    """Return the figures of the decisions since then. `until` is now."""
    with search.only_since(since and compared_from(since, until)):
        return _overview(search, since, until)


def _overview(search: Search, since: str | None, until: str) -> Overview:
    wanted = Filter(since=since)
    if since is None:
        first, last = Decisions(search, wanted).period()
        before = None
    else:
        first, last = naive(since), naive(until)
        before = _ago(since, _length(since, until))
    step = step_of(first, last)
    _count(search, before, since, step)
    timeline = _timeline(search, first, last, step)
    counted = _PeriodDecisions(search, wanted)
    found = Overview(
        timeline=timeline,
        now=_counts(search, "now"),
        before=_counts(search, "NOT now") if before else None,
        agents=_crawlers(search, "agent", timeline.bars, is_compared=before is not None),
        jobs=_crawlers(search, "job", timeline.bars, is_compared=before is not None),
        origins=counted.origins(),
        rules=counted.rules(),
        opened=counted.failed_open(),
        overrides=counted.top("override", "override IS NOT NULL"),
        signals=[],
        would=counted.would(),
        news=None,
    )
    # These read the files again, and may find that one was replaced: the counted table is gone then.
    search.execute(f"DROP TABLE {_TABLE}", [])
    news = news_of(search, since, until) if since else None
    now = with_settings(found.now, search, since)
    return found._replace(now=now, signals=counted.signals(), news=news)


def _count(search: Search, before: str | None, since: str | None, step: int) -> None:
    """Make the table of the decisions of both periods, counted."""
    counted, values = counted_records(Filter(since=before))
    sql = _GROUPED.format(counted=counted, plain=PLAIN, step=step)
    search.execute(f"CREATE OR REPLACE TEMP TABLE {_TABLE} AS {sql}", [since or "", *values])


def _counts(search: Search, which: str) -> Counts:
    return counts_of(
        search.rows(
            f"SELECT action, sum(n), bool_or(plain) FROM {_TABLE}"
            f" WHERE timed AND NOT opened AND {which} GROUP BY 1"
        )
    )


def _timeline(search: Search, first: datetime | None, last: datetime | None, step: int) -> Timeline:
    reasons = search.rows(
        f"SELECT action, reason, sum(n) FROM {_NOW} GROUP BY ALL ORDER BY 3 DESC, 1, 2"
    )
    by_time = search.rows(f"SELECT bucket, action, sum(n) FROM {_NOW} GROUP BY ALL")
    found: dict[datetime | None, dict[str, int]] = {}
    for begins, action, number in by_time:
        found.setdefault(begins, {})[action] = int(number)
    totals = _counts(search, "now").totals
    bars = bars_of(found, first, last, timedelta(seconds=step))
    return Timeline(totals, [(action, reason, int(n)) for action, reason, n in reasons], bars)


def _crawlers(
    search: Search, column: str, bars: list[ChartBar], *, is_compared: bool
) -> list[Crawler]:
    """Return the agents or the jobs with the most requests."""
    ranked = search.rows(
        f"SELECT {column} FROM {_NOW} AND coalesce({column}, '') <> ''"
        f" GROUP BY 1 ORDER BY sum(n) DESC, 1 LIMIT {CRAWLERS}"
    )
    names = [name for (name,) in ranked]
    among = f"{column} IN (SELECT unnest(?))"
    counts: dict[tuple[str, bool], list[tuple[Any, ...]]] = {}
    for name, is_now, *row in search.rows(
        f"SELECT {column}, now, action, sum(n), bool_or(plain) FROM {_TABLE}"
        f" WHERE timed AND NOT opened AND {among} GROUP BY ALL",
        [names],
    ):
        counts.setdefault((name, is_now), []).append(tuple(row))
    dropped: dict[str, dict[datetime, int]] = {name: {} for name in names}
    for name, begins, number in search.rows(
        f"SELECT {column}, bucket, sum(n) FROM {_NOW} AND action = 'drop' AND {among} GROUP BY ALL",
        [names],
    ):
        if begins is not None:
            dropped[name][begins.replace(tzinfo=UTC)] = int(number)
    return [
        Crawler(
            name=name,
            now=counts_of(counts.get((name, True), [])),
            before=counts_of(counts.get((name, False), [])) if is_compared else None,
            dropped=[dropped[name].get(bar.begins, 0) for bar in bars],
        )
        for name in names
    ]


def _length(since: str, until: str) -> timedelta:
    return datetime.fromisoformat(until) - datetime.fromisoformat(since)


def _ago(at: str, span: timedelta) -> str:
    """Return the moment this long before another, as records write it."""
    try:
        found = datetime.fromisoformat(at).astimezone(UTC) - span
    except OverflowError:
        return ""
    return f"{found.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
