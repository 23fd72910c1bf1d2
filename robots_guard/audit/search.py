"""Questions to the journal, answered by DuckDB over lines, compressed and compacted files together.

The law of this file: the files are evidence, and nothing asked can change them, reach another file, or the network.
Values of a question are parameters. SQL of a person's own must be one SELECT, and runs on a connection that may
open the journal's files and no others.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from robots_guard.audit.compact import database, why_not_readable
from robots_guard.audit.query import Filter, Trouble
from robots_guard.audit.record import AnyRecord
from robots_guard.audit.schema import COLUMNS, files_in, first_line, literal, named, records_in, records_with, unglobbed
from robots_guard.audit.segments import PARQUET, Segment, segments, why_not_plain
from robots_guard.errors import SettingsError

PAGE = 10_000  # rows fetched at once
POLL = 0.1  # seconds between two looks at how far a question is
T = TypeVar("T")

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")

Progress = Callable[[float], None]  # hears per cent


class Search:
    """A journal under questions. Raises SettingsError if there is no such directory, MissingExtra without DuckDB.

    `wanted` may leave whole files aside by their day. `progress` hears how far a long question is.
    """

    def __init__(
        self,
        directory: Path,
        wanted: Filter | None = None,
        progress: Progress | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        self._connection = database()
        self._spill = tempfile.TemporaryDirectory(prefix="robots-guard-")
        import duckdb

        self.trouble = Trouble() if trouble is None else trouble
        self._error = duckdb.Error
        self._progress = progress
        self._wanted = wanted or Filter(kind=None)
        there = [segment for segment in segments(directory) if self._is_plain(segment)]
        self._read = [segment for segment in there if _may_hold(segment, self._wanted)]
        self._looked_at: set[Path] = set()
        self._asked = "the journal"  # to whom a fault is due
        self._shut_in()
        self._connection.execute(f"CREATE VIEW records AS {union(self._read)}")
        self._connection.execute("CREATE VIEW decisions AS SELECT * FROM records WHERE kind = 'decision'")

    def close(self) -> None:
        """Let the database go."""
        self._connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- questions --------------------------------------------------------------------------------------------

    def records(self, limit: int | None = None) -> Iterator[AnyRecord]:
        """The records wanted, oldest first. Days are read one after the other: a first page needs the first only."""
        left = limit
        for day in _days(self._read):
            for entry in self._records_of(day, left):
                yield entry
                left = None if left is None else left - 1
            if left == 0:
                return

    def _records_of(self, day: list[Segment], limit: int | None) -> Iterator[AnyRecord]:
        names = [*COLUMNS]
        shown = ", ".join(f'"{name}"' for name in names)
        where, values = self.condition()
        upto = "" if limit is None else f" LIMIT {int(limit)}"
        sql = f'SELECT {shown} FROM ({union(day, self._wanted.id)}) WHERE {where} ORDER BY "at", writer, seq{upto}'
        self._looked_at.update(segment.path for segment in day)
        for row in self.table(sql, values)[1]:
            entry = record_of_row(dict(zip(names, row, strict=True)))
            if entry is not None:
                yield entry

    def table(self, sql: str, values: list[Any] | None = None) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The headings and rows of an answer. Raises SettingsError for what DuckDB cannot do."""
        cursor = self._run(lambda: self._connection.execute(sql, values))
        return [column[0] for column in cursor.description or ()], self._fetched(cursor)

    def rows(self, sql: str, values: list[Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of an answer from all files."""
        self._looked_at.update(segment.path for segment in self._read)
        return self.table(sql, values)[1]

    def run(self, sql: str, values: list[Any]) -> None:
        """A statement that has no answer."""
        self._run(lambda: self._connection.execute(sql, values))

    def condition(self, *, any_kind: bool = False) -> tuple[str, list[Any]]:
        """What is wanted, as a condition of SQL and its values."""
        return conditions(msgspec.structs.replace(self._wanted, kind=None) if any_kind else self._wanted)

    def ask(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The answer to SQL of a person's own. Raises SettingsError for all but one SELECT."""
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
        except self._error as error:
            raise SettingsError(f"--sql: {first_line(error)}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SettingsError("--sql takes one SELECT, and nothing that changes anything")
        self._looked_at.update(segment.path for segment in self._read)
        self._asked = "--sql"
        return self.table(sql)

    def unreadable(self) -> Trouble:
        """What of the files looked at could not be read."""
        lines = sorted(path for path in self._looked_at if not path.name.endswith(PARQUET))
        if lines:
            sql = f"SELECT filename, count(*) FROM {records_in(lines)} WHERE {NOT_READABLE} GROUP BY 1 ORDER BY 1"
            for name, count in self.table(sql)[1]:
                self.trouble.lines[Path(name).name] = count
        return self.trouble

    # -- the tables -------------------------------------------------------------------------------------------

    def _shut_in(self) -> None:
        """From now on: these files and no others, and nothing of this can be undone."""
        paths = [segment.path for segment in self._read]
        allowed = ", ".join(literal(name) for path in paths for name in {named(path), unglobbed(path)})
        for setting in (
            f"allowed_paths = [{allowed}]",
            f"temp_directory = {literal(named(Path(self._spill.name)))}",  # read and written, so it is ours alone
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "allow_community_extensions = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")

    def _is_plain(self, segment: Segment) -> bool:
        why = why_not_plain(segment.path) or why_not_readable(self._connection, segment)
        if why is not None:
            self.trouble.files[segment.path.name] = why
        return why is None

    # -- running ----------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], T]) -> T:
        """Run in a thread of its own, so that an interrupt is heard and progress shown."""
        outcome: list[Any] = []

        def runs() -> None:
            try:
                outcome.append(work())
            except Exception as error:  # noqa: BLE001  raised again by whoever waits
                outcome.append(error)

        thread = threading.Thread(target=runs, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL)
                if self._progress:
                    with suppress(self._error):
                        self._progress(self._connection.query_progress())
        except BaseException:
            self._connection.interrupt()
            thread.join()
            raise
        (result,) = outcome
        if isinstance(result, self._error):
            raise SettingsError(f"{self._asked}: {first_line(result)}") from result
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]  # what `work` gave

    def _fetched(self, cursor: Any) -> Iterator[tuple[Any, ...]]:
        while rows := self._run(lambda: cursor.fetchmany(PAGE)):
            yield from rows


NOT_READABLE = '"schema" IS NULL OR "schema" <> 1 OR kind IS NULL OR length("at") IS DISTINCT FROM 24'


def union(read: list[Segment], identity: str | None = None, parsed: str = "") -> str:
    """All records of files, in all columns; or at least those with an id, which few lines are parsed for.

    `parsed` is a table that has the lines already.
    """
    columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in COLUMNS.items())
    lines = [segment.path for segment in read if segment.form != PARQUET]
    compacted = [segment.path for segment in read if segment.form == PARQUET]
    parts = [f"SELECT {columns} WHERE false"]
    if lines and identity and _PLAIN.fullmatch(identity):  # no JSON writes it in another way
        parts.append(f"SELECT * FROM {records_with(lines, identity)} WHERE NOT ({NOT_READABLE})")
    elif lines:
        parts.append(f"SELECT * EXCLUDE (filename) FROM {parsed or records_in(lines)} WHERE NOT ({NOT_READABLE})")
    if compacted:
        parts.append(f"SELECT * EXCLUDE (raw) FROM read_parquet({files_in(compacted)}, union_by_name = true)")
    return f'SELECT *, TRY_CAST("at" AS TIMESTAMP) AS "time" FROM ({" UNION ALL BY NAME ".join(parts)})'


def _days(read: list[Segment]) -> list[list[Segment]]:
    """Files by their day; all together if one may be of any day."""
    if not all(segment.day for segment in read):
        return [read]
    ordered = sorted(read, key=lambda segment: segment.day)
    return [list(day) for _, day in groupby(ordered, key=lambda segment: segment.day)]


def conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """Which records are wanted, as a condition of SQL and its values."""
    tests: list[tuple[str, Any]] = [(f'"{name}" = ?', value) for name, value in wanted.equals.items()]
    if wanted.since is not None:
        tests.append(('"at" >= ?', wanted.since))
    if wanted.until is not None:
        tests.append(('"at" < ?', wanted.until))
    if wanted.agent is not None:
        tests.append(("lower(agent) = ?", wanted.agent.lower()))
    if wanted.override == "any":
        tests.append(("override IS NOT NULL AND ?", True))
    elif wanted.override is not None:
        tests.append(("override = ?", wanted.override))
    return " AND ".join(test for test, _ in tests) or "true", [value for _, value in tests]


def _may_hold(segment: Segment, wanted: Filter) -> bool:
    """Whether a file can hold a record of the time wanted; a writer may be late, or unable to begin a new file."""
    if not segment.day or segment.form == PARQUET:  # which looks it up itself
        return True
    if wanted.until is not None and segment.day > _day(wanted.until, 1):
        return False
    if wanted.since is None or segment.day >= _day(wanted.since, -1):
        return True
    return segment.path.lstat().st_mtime >= datetime.fromisoformat(wanted.since).timestamp()


def _day(at: str, days: int) -> str:
    return f"{datetime.fromisoformat(at) + timedelta(days=days):%Y%m%d}"


def record_of_row(values: dict[str, Any]) -> AnyRecord | None:
    """The record of a row, or None for what is none."""
    found = {name: value for name, value in values.items() if value is not None}
    if "settings" in found:
        found["settings"] = msgspec.json.decode(found["settings"])
    try:
        entry: AnyRecord = msgspec.convert(found, AnyRecord)
    except msgspec.ValidationError:
        return None
    return entry
