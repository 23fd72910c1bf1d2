"""The answer to why a URL was, or was not, requested: what an audit log has recorded of a resource.

Invariant: only what is recorded is counted, and what cannot be known is said: hidden values, counts
without URLs, passes that no writer records. First the times of the decisions on the URL are asked
for, which reads two columns of the index; then the records of these times. Of the lines,
those of other URLs are not parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from robots_guard.audit.read.reader import Filter, Unreadable
from robots_guard.audit.read.resource import prefix_of
from robots_guard.audit.read.search import (
    Progress,
    Search,
    conditions,
    record_of_row,
)
from robots_guard.audit.record import Record, SignalsRecord, shown_url
from robots_guard.audit.schema import COLUMNS, records_or_damage
from robots_guard.audit.segments import Segment

NEAREST = 3  # decisions of the same origin that are named if there is none of the URL
_DECIDED = "kind IN ('decision', 'signals')"
MOST = 1000  # distinct times of decisions on the URL that are asked for one by one
_LINES = "lines"
_START = '{"kind":"start"'  # a start record begins so
_GROUPED = ("kind", "action", "reason", "agent", "job", "component", "rule", "line", "override")


class DecisionGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions of one kind on the resource: their number, and the times of the first and the
    last, whose id is `id`."""

    kind: str
    action: str
    reason: str
    agent: str
    component: str
    count: int
    first: str
    last: str
    id: str
    job: str = ""
    rule: str | None = None
    line: int | None = None
    override: str | None = None
    would: str | None = None
    relaxed: str | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What was searched: files and records, the days of the files, and the levels of `audit` at
    which writers recorded, each with the number of these writers. Records are counted only if
    nothing is found; `records` is None otherwise."""

    files: int
    days: list[str]
    records: int | None
    passes: dict[str, int]


class CountedPasses(msgspec.Struct, frozen=True):
    """Requests of the origin that passed and were only counted, by agent and component."""

    agent: str
    component: str
    count: int
    since: str | None
    until: str | None


class LogAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of a URL in a period, for all agents or for `agent` alone. `url` may also be
    `https://host/path*`, or a host, whose `origin` is empty.

    `record` is the decision that was asked for, or else the latest refusal or deferral, the latest
    pass that is no ordinary one, or the latest pass; None if there is none.
    `settings` are those of its writer, and `hides_values` says that values of its URL are hidden.
    `nearest` are the latest decisions of the origin, and `of_origin` the number of all, if there is
    none of the URL; otherwise they are not asked for, and `of_origin` is None.
    """

    url: str
    origin: str
    since: str | None
    until: str | None
    agent: str | None
    record: Record | SignalsRecord | None
    groups: list[DecisionGroup]
    settings: dict[str, str]
    hides_values: bool
    passes: list[CountedPasses]
    searched: Searched
    nearest: list[Record | SignalsRecord]
    of_origin: int | None

    @property
    def is_of_several(self) -> bool:
        """Whether the answer is about all URLs with a prefix, or of a host."""
        return self.url.endswith("*") or not self.origin

    @property
    def site(self) -> str:
        """The origin, or the host."""
        return self.origin or self.url

    @property
    def count(self) -> int:
        """The number of decisions on the URL that are of the same action and reason as the
        latest."""
        record = self.record
        return sum(each.count for each in self.groups if record and _is_like(each, record))


def _rank(group: DecisionGroup) -> int:
    """Which decisions are shown first: refusals and deferrals, then passes that are no ordinary
    ones."""
    if group.action != "pass":
        return 0
    if group.would or group.relaxed or group.override:
        return 1
    return 2


def _is_like(group: DecisionGroup, record: Record | SignalsRecord) -> bool:
    return (group.action, group.reason) == (record.action, record.reason)


def why(
    directory: Path,
    wanted: Filter,
    trouble: Unreadable,
    progress: Progress | None = None,
    asked: Record | SignalsRecord | None = None,
) -> LogAnswer:
    """The answer for the URL of a filter, for URLs with a prefix, or for a host; about the
    decision `asked`, if it was asked for by its id. What cannot be read is added to `trouble`.

    Raises SettingsError if there is no such directory or the URL has no origin, MissingExtra
    without DuckDB.
    """
    with _OriginSearch(directory, wanted, progress) as search:
        answer = _Question(search, asked).answer()
        trouble.add(search.unreadable())
    return answer


class _OriginSearch(Search):
    """A search for records of one origin. Of the lines, those are parsed, once, that can matter:
    start records, counts, and decisions on the URL wanted. The view `all_records` has all."""

    _is_parsed = False

    def _open(self, *, copies: bool = False) -> None:
        self._is_parsed = False
        super()._open(copies=copies)

    def _load(self) -> None:
        self._define(f"CREATE VIEW all_records AS {self._records_in(lambda _: True)}")
        files = [segment.path for segment in self._index.rest]
        resource = self.wanted.resource
        if not files or resource is None:
            return
        host = resource.origin.partition("://")[2]
        rows = records_or_damage(files, (host, _START), "?")
        pattern = "|".join(
            each.pattern for each in (resource.spellings, resource.spellings_without_query)
        )
        self._in_thread(
            lambda: self._connection.execute(f"CREATE TEMP TABLE {_LINES} AS {rows}", [pattern])
        )
        self._is_parsed = True

    def _parsed(self, lines: Iterable[Segment]) -> str:
        """A table of the lines that may match. Of the others, only those count as unreadable that are
        cut off, or do not begin as a record does."""
        return _LINES if self._is_parsed else super()._parsed(lines)


class _Question:
    """The queries for an answer."""

    def __init__(self, search: Search, asked: Record | SignalsRecord | None) -> None:
        self._search = search
        self._asked = asked
        self._moments_known: list[Any] | None = None
        self._wanted = search.wanted
        self._resource = self._wanted.resource
        self._url, self._origin = self._place()
        self._period = msgspec.structs.replace(
            self._wanted, url=None, url_prefix=None, kind=None, id=None, origin=self._origin or None
        )

    def _place(self) -> tuple[str, str]:
        """The URL, prefix or host in question, in a form that may be shown; and its origin, which is
        empty for a host."""
        wanted, resource = self._wanted, self._resource
        if resource is not None:
            return resource.url, resource.origin
        if wanted.url_prefix is not None:
            return f"{shown_url(wanted.url_prefix)}*", prefix_of(wanted.url_prefix).origin
        return wanted.host or "", ""

    def answer(self) -> LogAnswer:
        """Ask for the URL, and for its origin if nothing is found."""
        groups = self._groups()
        record = self._asked or self._latest(groups)
        nearest = [] if record else self._nearest()
        records, of_origin = (None, None) if record else self._totals()
        return LogAnswer(
            url=self._url,
            origin=self._origin,
            since=self._wanted.since,
            until=self._wanted.until,
            agent=self._wanted.agent,
            record=record,
            groups=groups,
            settings=self._settings_of(record) if record else {},
            hides_values=bool(
                record and self._resource is not None and self._resource.is_hidden_in(record.url)
            ),
            passes=self._passes(),
            searched=self._searched(records),
            nearest=nearest,
            of_origin=of_origin,
        )

    def _groups(self) -> list[DecisionGroup]:
        """The decisions on the URL, the latest first."""
        names = [*_GROUPED, "would", "relaxed"]
        columns = ", ".join(f'"{name}"' for name in names)
        where, values = self._search.condition
        narrow, moments = self._moments()
        rows = self._search.rows(
            f'SELECT {columns}, count(*), min("at"), max("at"),'
            f' max_by(id, "at") FROM records WHERE {narrow} AND {where} GROUP BY ALL ORDER BY max("at") DESC',
            [*moments, *values],
        )
        found = []
        for *given, count, first, last, identity in rows:
            fields = dict(zip(names, given, strict=True)) | {
                "count": count,
                "first": first,
                "last": last,
                "id": identity,
            }
            texts = {name: fields[name] or "" for name in ("agent", "component", "job", "reason")}
            found.append(DecisionGroup(**fields | texts))
        return found

    def _moments(self) -> tuple[str, list[Any]]:
        """A condition on the times of the records of the URL, which are found by two columns. The
        records are ordered by time, so that DuckDB skips the others."""
        if self._moments_known is None:
            place = msgspec.structs.replace(self._wanted, kind=None, agent=None)
            where, values = self._search.condition_of(place)
            sql = f'SELECT DISTINCT "at" FROM records WHERE {where} ORDER BY 1 LIMIT {MOST + 1}'
            self._moments_known = [at for (at,) in self._search.rows(sql, values)]
        found = self._moments_known
        if len(found) > MOST:
            return "true", []
        if not found:
            return "false", []
        return f'"at" IN ({", ".join("?" for _ in found)})', found

    def _latest(self, groups: list[DecisionGroup]) -> Record | SignalsRecord | None:
        if not groups:
            return None
        group = min(groups, key=_rank)  # of equal ones the first, which is the latest
        found = self._records(
            '"at" = ? AND id = ? AND kind = ?', [group.last, group.id, group.kind]
        )
        return next(iter(found), None)

    def _records(
        self, where: str, values: list[Any], table: str = "records"
    ) -> list[Record | SignalsRecord]:
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        rows = self._search.rows(f"SELECT {columns} FROM {table} WHERE {where}", values)
        read = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
        return [each for each in read if isinstance(each, Record | SignalsRecord)]

    def _passes(self) -> list[CountedPasses]:
        """What was counted without URLs, by agent."""
        where, values = conditions(self._period)
        rows = self._search.rows(
            "SELECT coalesce(agent, ''), coalesce(component, ''), CAST(sum(count) AS BIGINT),"
            f" min(since), max(until) FROM records WHERE {where} AND kind = 'passes'"
            " GROUP BY ALL ORDER BY ALL",
            values,
        )
        return [CountedPasses(*row) for row in rows]

    def _settings_of(self, record: Record | SignalsRecord) -> dict[str, str]:
        """The settings of a record's writer; none if its start record is gone."""
        rows = self._search.rows(
            "SELECT settings FROM records WHERE kind = 'start' AND writer = ? AND \"at\" <= ?"
            ' ORDER BY "at" DESC LIMIT 1',
            [record.writer, record.at],
        )
        return next((msgspec.json.decode(text) for (text,) in rows if text), {})

    def _nearest(self) -> list[Record | SignalsRecord]:
        """The latest decisions of the origin that are no ordinary passes, of the latest day that
        has any."""
        where, values = conditions(self._period)
        where += f" AND {_DECIDED} AND (action <> 'pass' OR would IS NOT NULL)"
        for day in reversed(self._days()):
            found = self._records(
                f'"at" >= ? AND {where} ORDER BY "at" DESC LIMIT {NEAREST}',
                [f"{day[:4]}-{day[4:6]}-{day[6:]}", *values],
                "all_records",
            )
            if found:
                return found
        return []

    def _days(self) -> list[str]:
        return sorted({each.day for each in self._search.files if each.day})

    def _totals(self) -> tuple[int, int]:
        """The number of records in the period, and of decisions of the origin."""
        within, times = conditions(
            Filter(kind=None, since=self._wanted.since, until=self._wanted.until)
        )
        where, values = conditions(self._period)
        sql = f"SELECT count(*), count(*) FILTER ({where} AND {_DECIDED}) FROM all_records WHERE {within}"
        ((records, of_origin),) = self._search.rows(sql, [*values, *times])
        return int(records), int(of_origin)

    def _searched(self, records: int | None) -> Searched:
        """What was searched."""
        sql = (
            "SELECT coalesce(settings->>'$.audit', ''), count(DISTINCT writer)"
            " FROM records WHERE kind = 'start' GROUP BY 1 ORDER BY 1"
        )
        return Searched(
            files=len(self._search.files),
            days=self._days(),
            records=records,
            passes=dict(self._search.rows(sql)),
        )
