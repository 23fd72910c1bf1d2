"""The figures on the decisions in an audit log, for the report and for the overview of the console.

Invariant: a record counts as the number of decisions that it stands for: a record of passes as many
as it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import DECISIONS, Search, conditions
from robots_guard.audit.show.chart import ChartBar
from robots_guard.decisions.component import ANSWERING

TOP = 15  # rows of a table
SOON = 30  # days before its expiry from which an override is marked
BARS = 72  # of the chart, about
# Seconds per bar.
_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 28 * 86400)
ACTIONS = ("drop", "defer", "pass")

# A time that only a forged record has is no time: Python could not compute with it.
_COUNTED = """
    SELECT kind, action AS was, {action} AS action, reason, origin, rule, line, agent, component, until,
           failure, relaxed, would, override, override_owner, override_reason, override_expires, detail, "at",
           CASE WHEN {time} BETWEEN TIMESTAMP '1970-01-01' AND TIMESTAMP '9000-01-01' THEN {time} END AS time,
           CASE WHEN kind IN ('decision', 'signals') THEN 1 ELSE greatest(count, 0) END AS n, job, defers
    FROM records WHERE {where} AND (kind IN ('passes', 'fail-open') OR {decisions})
"""
# A record of passes is written up to minutes after the last of them.
_TIME = "CASE kind WHEN 'passes' THEN TRY_CAST(until AS TIMESTAMP) ELSE time END"
# One row for each decision, use and signal that denies the use.
_DENIALS = """
    SELECT DISTINCT id, origin, reason, action, would, item->>'signal' AS signal,
           unnest(from_json(item->'denies', '["VARCHAR"]')) AS use
    FROM (SELECT id, origin, reason, action, would, unnest(from_json(evidence, '["JSON"]')) AS item
          FROM records WHERE evidence IS NOT NULL AND {where})
"""
# An exempted request passed by its override, whatever `would` says.
REPORTED = (
    "(would IS NOT NULL AND reason <> 'bypassed'"
    " AND NOT starts_with(coalesce(relaxed, ''), 'override='))"
)
#: A PASS that is recorded only if passes are: not caused by a choice of the operator.
PLAIN = (
    "relaxed IS NULL AND would IS NULL AND override IS NULL AND reason <> 'bypassed'"
    " AND defers IS NULL"
)
_DECISIONS = "counted WHERE kind <> 'fail-open'"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (as DuckDB returns times)


class Counts(NamedTuple):
    """The number of decisions by action. `has_passes` says whether ordinary passes are recorded."""

    totals: dict[str, int]
    has_passes: bool

    @property
    def number(self) -> int:
        """The number of all decisions."""
        return sum(self.totals.values())

    @property
    def share(self) -> float | None:
        """The part of the requests that were refused for good, of 1; None if it is not known,
        because passes are not recorded."""
        if not self.has_passes or not self.number:
            return None
        return self.totals["drop"] / self.number


class FigureTable(NamedTuple):
    """One table of a report: its heading, description, columns and rows. `bar` is the column drawn as bars."""

    title: str
    description: str
    columns: list[str]
    rows: list[tuple[Any, ...]]
    bar: int = -1


class Timeline(NamedTuple):
    """The decisions by action, by reason and over time. `bars` is empty if nothing was recorded."""

    totals: dict[str, int]
    reasons: list[tuple[str, str, int]]  # action, reason
    bars: list[ChartBar]


class Summary(NamedTuple):
    """All figures of a report. `refusal` is the id of the refusal that is shown in full, or
    None."""

    first: str
    last: str
    counts: Counts
    crawlers: list[str]
    exceptions: list[tuple[Any, ...]]  # as `Decisions.overrides` returns them
    opened: int  # let through because of a setting that is less strict than the default
    would: int  # let through only because report_only refuses nothing
    refusal: str | None
    timeline: Timeline
    tables: list[FigureTable]


def summary(search: Search, now: str, *, what_if: bool = False) -> Summary:
    """Return the figures of the records that a search selects. `now` is the time of the report.

    With `what_if`, decisions that passed because of `report_only` count as what they would
    otherwise have been, and the two are compared.
    """
    decisions = Decisions(search, search.wanted, what_if=what_if, stored=True)
    first, last = decisions.period()
    timeline = decisions.timeline(first, last)
    tables = _tables(decisions, timeline, now)
    if what_if:
        tables = [*_comparisons(decisions), *tables]
    found = Summary(
        first=_iso(first),
        last=_iso(last),
        counts=decisions.counts(),
        crawlers=[str(agent) for agent, _ in decisions.top("agent", "agent <> ''")],
        exceptions=decisions.overrides(_soon(now)),
        opened=sum(number for setting, _, number in decisions.opened_by_settings()),
        would=decisions.would(),
        refusal=decisions.refusal(),
        timeline=timeline,
        tables=tables,
    )
    # This reads the files again, and may find that one was replaced: the counted table is gone then.
    return found._replace(counts=with_settings(found.counts, search, search.wanted.since))


def with_settings(counts: Counts, search: Search, since: str | None) -> Counts:
    """Return the counts. If there is no pass among them, the settings of the writers say whether
    passes were recorded at all."""
    return counts._replace(has_passes=counts.has_passes or passes_recorded(search, since))


def counts_of(rows: Iterable[tuple[Any, ...]]) -> Counts:
    """Return rows of an action, a number, and whether there are ordinary passes, as counts."""
    totals, has_passes = dict.fromkeys(ACTIONS, 0), False
    for action, number, plain in rows:
        totals[action] = totals.get(action, 0) + int(number)
        has_passes = has_passes or bool(plain)
    return Counts(totals, has_passes)


def counted_records(wanted: Filter, *, what_if: bool = False) -> tuple[str, list[Any]]:
    """Return a query for the decisions that a filter selects, each with the number `n` that it
    stands for; and its values."""
    where, values = conditions(_all_kinds(wanted))
    action = f"CASE WHEN {REPORTED} THEN would ELSE action END" if what_if else "action"
    return _COUNTED.format(where=where, action=action, decisions=DECISIONS, time=_TIME), values


def _all_kinds(wanted: Filter) -> Filter:
    return msgspec.structs.replace(wanted, kind=None)


def passes_recorded(search: Search, since: str | None = None) -> bool:
    """Return whether there are integrations, and each recorded or counted ordinary PASSes from the
    day of `since` on.

    The command line and the console are not considered: no request follows their PASSes.
    """
    found = search.rows(
        "SELECT DISTINCT settings->>'audit' FROM records"
        " WHERE kind = 'start' AND \"at\" >= ? AND NOT list_contains(?, component)",
        [(since or "")[:10], [each.value for each in ANSWERING]],
    )
    levels = {level for (level,) in found}
    return bool(levels) and levels <= {"summary", "all", "evidence"}


class Decisions:
    """The decisions that a filter selects, counted.

    With `stored`, a table of them is made once and answers all queries, which would otherwise each
    parse the files.
    """

    def __init__(
        self, search: Search, wanted: Filter, *, what_if: bool = False, stored: bool = False
    ) -> None:
        self._where, self._filter_values = conditions(_all_kinds(wanted))
        counted, values = counted_records(wanted, what_if=what_if)
        self._search = search
        self._with, self._values = f"WITH counted AS ({counted})", values
        if stored:
            search.execute(f"CREATE TEMP TABLE counted AS {counted}", values)
            self._with, self._values = "", []

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query to the table `counted`."""
        return [*self._search.rows(f"{self._with} {sql}", [*self._values, *values])]

    def top(self, columns: str, condition: str = "true") -> list[tuple[Any, ...]]:
        """Count the decisions by these columns, the most frequent first."""
        count = columns.count(",") + 2
        order = ", ".join(map(str, range(1, count)))  # of those that are equally frequent
        return self.rows(
            f"SELECT {columns}, sum(n) FROM {_DECISIONS} AND {condition} GROUP BY ALL"
            f" ORDER BY {count} DESC, {order} LIMIT ?",
            TOP,
        )

    def rules(self) -> list[tuple[Any, ...]]:
        """Return the rules that dropped the most requests: origin, rule, line and number."""
        return self.top("origin, rule, line", "action = 'drop' AND rule IS NOT NULL")

    def origins(self) -> list[tuple[Any, ...]]:
        """Return the origins with the most dropped requests, and how many were dropped, deferred
        and passed there."""
        counts = ", ".join(
            f"coalesce(sum(n) FILTER (action = '{action}'), 0)" for action in ACTIONS
        )
        return self.rows(
            f"SELECT origin, {counts} FROM {_DECISIONS} AND origin IS NOT NULL GROUP BY 1"
            " ORDER BY 2 DESC, 3 DESC, 4 DESC, 1 LIMIT ?",
            TOP,
        )

    def failed_open(self) -> list[tuple[Any, ...]]:
        """Count the requests that passed only because of a setting: setting, number of origins,
        number of requests."""
        return self.rows(
            "SELECT relaxed, count(DISTINCT origin), sum(n) FROM counted"
            " WHERE relaxed IS NOT NULL AND (action = 'pass' OR kind = 'fail-open') GROUP BY 1 ORDER BY 3 DESC, 1"
        )

    def deferrals(self) -> list[tuple[Any, ...]]:
        """Return the origins and reasons with the most deferrals: the median and the longest wait
        in seconds, and the number of deferrals."""
        return self.rows(
            "SELECT origin, reason, round(median(wait), 1), round(max(wait), 1), sum(n) FROM"
            " (SELECT *, epoch(TRY_CAST(until AS TIMESTAMP)) - epoch(time) AS wait FROM counted"
            " WHERE action = 'defer' AND kind = 'decision') GROUP BY 1, 2 ORDER BY 5 DESC, 1, 2 LIMIT ?",
            TOP,
        )

    def unreachable(self) -> list[tuple[Any, ...]]:
        """Return the origins whose robots.txt could not be fetched: the failure, its first and last
        time, and the number of decisions."""
        return self.rows(
            'SELECT origin, coalesce(failure, detail), min("at"), max("at"), sum(n) FROM counted'
            " WHERE reason IN ('unreachable', 'route-failed', 'fetcher-failed')"
            " GROUP BY 1, 2 ORDER BY 5 DESC, 1 LIMIT ?",
            TOP,
        )

    def opened_by_settings(self) -> list[tuple[Any, ...]]:
        """Return `failed_open` without what exceptions for single sites let pass."""
        return [row for row in self.failed_open() if not str(row[0]).startswith("override=")]

    def overrides(self, soon: str) -> list[tuple[Any, ...]]:
        """Return the overrides that changed decisions: owner, reason, expiry, "soon" if they expire
        by `soon`, and the numbers of requests that passed and that did not."""
        return self.rows(
            "SELECT override, override_owner, override_reason, override_expires,"
            " CASE WHEN override_expires <= ? THEN 'soon' ELSE '' END,"
            " coalesce(sum(n) FILTER (action = 'pass'), 0),"
            " coalesce(sum(n) FILTER (action <> 'pass'), 0) FROM counted"
            " WHERE override IS NOT NULL GROUP BY ALL ORDER BY 4, 1, 2, 3 LIMIT 100",
            soon,
        )

    def counts(self) -> Counts:
        """Count the decisions by action."""
        passes = f"kind = 'passes' OR (action = 'pass' AND {PLAIN})"
        return counts_of(
            self.rows(f"SELECT action, sum(n), bool_or({passes}) FROM {_DECISIONS} GROUP BY 1")
        )

    def would(self) -> int:
        """Count the requests that passed only because of report_only."""
        ((number,),) = self.rows(f"SELECT coalesce(sum(n), 0) FROM {_DECISIONS} AND {REPORTED}")
        return int(number)

    def refusal(self) -> str | None:
        """Return the id of the newest refusal, of one by a rule if there is any."""
        sql = (
            f"SELECT id FROM records WHERE {self._where} AND kind = 'decision' AND action = 'drop'"
            ' ORDER BY rule IS NULL, "at" DESC, writer, seq DESC LIMIT 1'
        )
        return next(
            (str(identity) for (identity,) in self._search.rows(sql, self._filter_values)), None
        )

    def differences(self) -> list[tuple[Any, ...]]:
        """Return for each action how many decisions there were, how many there would have been, and
        the difference."""
        return self.rows(
            "SELECT each, sum(n) FILTER (was = each) AS had, sum(n) FILTER (action = each) AS has, has - had FROM"
            f" (SELECT was, action, n FROM {_DECISIONS} UNION ALL SELECT a, a, 0 FROM unnest($1) AS t(a)),"
            " (SELECT unnest($1) AS each) GROUP BY 1 ORDER BY 1",
            [*ACTIONS],
        )

    def differing_origins(self) -> list[tuple[Any, ...]]:
        """Return the origins with the most requests that would not have passed: how many would have
        been dropped, deferred, and both."""
        return self.rows(
            "SELECT origin, coalesce(sum(n) FILTER (would = 'drop'), 0), coalesce(sum(n) FILTER (would = 'defer'), 0),"
            f" sum(n) FROM {_DECISIONS} AND {REPORTED} GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT ?",
            TOP,
        )

    def signals(self) -> list[tuple[Any, ...]]:
        """Count the denied uses by use and signal: the numbers of origins, of statements, and of
        refusals because of signals."""
        sql = (
            "SELECT use, signal, count(DISTINCT origin), count(*),"
            " count(*) FILTER (action = 'drop' AND reason = 'usage-reserved')"
            f" FROM ({_DENIALS.format(where=self._where)}) GROUP BY 1, 2 ORDER BY 5 DESC, 4 DESC, 1, 2"
        )
        return [*self._search.rows(sql, self._filter_values)]

    def period(self) -> tuple[datetime | None, datetime | None]:
        """Return the times of the first and the last decision, in UTC without a time zone."""
        ((first, last),) = self.rows(f"SELECT min(time), max(time) FROM {_DECISIONS}")
        return first, last

    def timeline(self, first: datetime | None, last: datetime | None) -> Timeline:
        """Count the decisions in this period over time, with one query."""
        step = step_of(first, last)
        rows = self.rows(
            f"SELECT time_bucket(to_seconds({step}), time, TIMESTAMP '1970-01-01'), action, reason, sum(n)"
            f" FROM {_DECISIONS} GROUP BY ALL"
        )
        totals, reasons = dict.fromkeys(ACTIONS, 0), Counter[tuple[str, str]]()
        by_time: dict[datetime | None, Counter[str]] = {}
        for begins, action, reason, number in rows:
            totals[action] = totals.get(action, 0) + number
            reasons[action, reason] += number
            by_time.setdefault(begins, Counter())[action] += number
        bars = bars_of(by_time, first, last, timedelta(seconds=step))
        ordered = sorted(reasons.items(), key=lambda each: (-each[1], str(each[0])))
        return Timeline(totals, [(*each, number) for each, number in ordered], bars)


def step_of(first: datetime | None, last: datetime | None) -> int:
    """Return how many seconds each bar of a period stands for."""
    if first is None or last is None:
        return _STEPS[0]
    seconds = (last - first).total_seconds()
    return next((step for step in _STEPS if seconds / step <= BARS), int(seconds / BARS) + 1)


def bar_of(at: datetime, step: timedelta) -> datetime:
    """Return when the bar begins that a time is in."""
    return at - (at - _EPOCH) % step


def bars_of(
    by_time: Mapping[datetime | None, Mapping[str, int]],
    first: datetime | None,
    last: datetime | None,
    step: timedelta,
) -> list[ChartBar]:
    """Return a bar for each step of the period, including empty ones; none without a decision."""
    if first is None or last is None or not by_time:
        return []
    begins = bar_of(first, step)
    found = []
    for number in range((last - begins) // step + 1):
        at = begins + number * step
        actions = by_time.get(at, {})
        counts = {action: actions.get(action, 0) for action in ACTIONS}
        found.append(ChartBar(at.replace(tzinfo=UTC), step, counts))
    return found


def naive(at: str) -> datetime:
    """Return a record's time as DuckDB does: in UTC without a time zone."""
    return datetime.fromisoformat(at).astimezone(UTC).replace(tzinfo=None)


def _iso(at: datetime | None) -> str:
    if at is None:
        return ""
    return f"{at.isoformat(timespec='milliseconds')}Z"


def _soon(now: str) -> str:
    """Return the moment until which an expiry is soon."""
    return f"{datetime.fromisoformat(now) + timedelta(days=SOON):%Y-%m-%dT%H:%M:%S.000Z}"


# A template shows the values of the columns `result`, `because`, `setting` and `last day` in words.
def _tables(decisions: Decisions, timeline: Timeline, now: str) -> list[FigureTable]:
    soon = _soon(now)
    return [
        FigureTable(
            "Exceptions",
            "Exceptions that a person made for single sites, with what was requested under them."
            f" Those that end before {soon[:10]} are marked",
            ["exception", "owner", "reason", "last day", "ends soon", "let through", "not passed"],
            decisions.overrides(soon),
            5,
        ),
        FigureTable(
            "Let through by a setting",
            "Requests that passed only because a setting is less strict than the default",
            ["setting", "sites", "requests"],
            decisions.opened_by_settings(),
        ),
        FigureTable(
            "Results and their reasons",
            "What became of the requests, and why",
            ["result", "because", "requests"],
            [*timeline.reasons[:TOP]],
        ),
        FigureTable(
            "Sites that refused most",
            "The sites with the most refused requests",
            ["site", "refused"],
            [(origin, dropped) for origin, dropped, _, _ in decisions.origins() if dropped],
        ),
        FigureTable(
            "Rules that forbade most",
            "The lines of robots.txt files that refused the most requests",
            ["site", "rule", "line", "refused"],
            decisions.rules(),
        ),
        FigureTable(
            "Uses that sites deny",
            "Uses of content that sites deny, where they say it, and the requests and responses"
            " refused for it",
            ["use", "stated by", "sites", "statements", "refused"],
            decisions.signals(),
        ),
        FigureTable(
            "Waiting times",
            "Requests that were deferred, and for how many seconds",
            ["site", "because", "median wait", "longest wait", "deferred"],
            decisions.deferrals(),
        ),
        FigureTable(
            "Sites whose robots.txt could not be fetched",
            "Requests to sites whose rules were not known",
            ["site", "failure", "first", "last", "requests"],
            decisions.unreachable(),
        ),
        FigureTable(
            "Would have been refused",
            "Requests that passed because refusals were only reported (report_only)",
            ["result", "because", "site", "requests"],
            decisions.top("would, reason, origin", REPORTED),
        ),
        FigureTable(
            "Crawlers",
            "The crawlers, the programs that judged their requests, and the jobs they worked on",
            ["crawler", "program", "job", "requests"],
            decisions.top("agent, component, job"),
        ),
    ]


def _comparisons(decisions: Decisions) -> list[FigureTable]:
    return [
        FigureTable(
            "Actual and enforced",
            "The results, and what they would have been without report_only",
            ["result", "was", "would be", "difference"],
            decisions.differences(),
            2,
        ),
        FigureTable(
            "Sites that would differ",
            "Requests that passed, and would otherwise have been refused or deferred",
            ["site", "would be refused", "would be deferred", "requests"],
            decisions.differing_origins(),
        ),
        FigureTable(
            "Rules and reasons that would differ",
            "Why requests would have been refused or deferred",
            ["site", "result", "because", "rule", "line", "requests"],
            decisions.top("origin, would, reason, rule, line", REPORTED),
        ),
    ]
