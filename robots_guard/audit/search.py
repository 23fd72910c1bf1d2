"""Questions to the journal, answered by DuckDB over lines, compressed and compacted files together.

The law of this file: the files are evidence, and nothing asked can change them, reach another file, or the network.
Values of a question are parameters. SQL of a person's own must be one SELECT, and runs on a connection that may
open the journal's files and no others. Where a file has been compressed, compacted or removed, the question is asked
anew of the files that are there then: an answer is given whole, or not at all.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from robots_guard.audit.compact import copied_out, database, duckdb_error, is_legible, why_not_readable
from robots_guard.audit.query import Filter, Trouble
from robots_guard.audit.record import AnyRecord
from robots_guard.audit.schema import COLUMNS, files_in, first_line, literal, named, records_in, records_with, unglobbed
from robots_guard.audit.segments import JSONL, PARQUET, Segment, is_gone, segments, why_not_plain
from robots_guard.errors import SettingsError

if TYPE_CHECKING:
    import duckdb

LOOKS = 6  # at the files, while some go; half of them by copies
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
        self._directory = directory
        self._connections: list[duckdb.DuckDBPyConnection] = []
        self.trouble = Trouble() if trouble is None else trouble
        self._error = duckdb_error()
        self._spill = tempfile.TemporaryDirectory(prefix="robots-guard-")
        self._progress = progress
        self._wanted = wanted or Filter(kind=None)
        self._looked_at: set[str] = set()  # stems
        self._asked = "the journal"  # to whom a fault is due
        self._read: list[Segment] = []
        self._illegible: set[str] = set()  # stems of files that DuckDB fails at
        try:
            self._again(lambda: None, opens=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the database go."""
        for connection in self._connections:
            connection.close()
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

    def _records_of(self, day: str | None, limit: int | None) -> Iterator[AnyRecord]:
        names = [*COLUMNS]
        shown = ", ".join(f'"{name}"' for name in names)
        where, values = self.condition()
        upto = "" if limit is None else f" LIMIT {int(limit)}"

        def sql() -> str:
            read = [segment for segment in self._read if day is None or segment.day == day]
            self._look_at(read)
            return (
                f'SELECT {shown} FROM ({union(read, self._wanted.id)}) WHERE {where} ORDER BY "at", writer, seq{upto}'
            )

        for row in self._answer(sql, values)[1]:
            entry = record_of_row(dict(zip(names, row, strict=True)))
            if entry is not None:
                yield entry

    def table(self, sql: str, values: list[Any] | None = None) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The headings and rows of an answer. Raises SettingsError for what DuckDB cannot do."""
        return self._answer(lambda: sql, values)

    def rows(self, sql: str, values: list[Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of an answer from all files."""
        self._look_at(self._read)
        return self.table(sql, values)[1]

    def run(self, sql: str, values: list[Any]) -> None:
        """A statement that has no answer."""
        self._again(lambda: self._run(lambda: self._connection.execute(sql, values)))

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
        self._look_at(self._read)
        self._asked = "--sql"
        return self._again(lambda: self._spooled(sql))

    def unreadable(self) -> Trouble:
        """What of the files looked at could not be read."""
        for name, count in self._answer(self._unreadable)[1]:
            self.trouble.lines[Path(name).name] = count
        return self.trouble

    def _unreadable(self) -> str:
        looked_at = (segment for segment in self._read if segment.stem in self._looked_at)
        lines = sorted(segment.path for segment in looked_at if segment.form != PARQUET)
        if not lines:
            return "SELECT '', 0 WHERE false"
        return f"SELECT filename, count(*) FROM {records_in(lines)} WHERE {NOT_READABLE} GROUP BY 1 ORDER BY 1"

    def _look_at(self, read: list[Segment]) -> None:
        self._looked_at.update(segment.stem for segment in read)

    # -- files that go ----------------------------------------------------------------------------------------

    def _again(self, work: Callable[[], T], *, opens: bool = False) -> T:
        """The outcome of work, which is done anew with the files that are there then, while some it reads have gone."""
        for look in range(LOOKS):
            try:
                if opens:
                    self._open(copies=look >= LOOKS // 2)
                return work()
            except (SettingsError, FileNotFoundError) as error:
                opens = any(map(is_gone, self._read)) or self._is_of_a_file(error)
                if not opens:
                    raise
        raise SettingsError(f"{str(self._directory)!r} changes faster than it can be read: ask again later")

    def _is_of_a_file(self, error: Exception) -> bool:
        """Whether DuckDB failed at files that it had not failed at before. From now on it reads copies of them."""
        import duckdb

        if not isinstance(error.__cause__, (duckdb.InvalidInputException, duckdb.IOException)):
            return False
        lines = {segment.stem: segment.path for segment in self._read if segment.form != PARQUET}
        found = {stem for stem in lines.keys() - self._illegible if not is_legible(self._connection, lines[stem])}
        self._illegible |= found
        return bool(found)

    def _answer(
        self, sql: Callable[[], str], values: list[Any] | None = None
    ) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Headings and rows. Of an answer in an order, all files have been read when the first row is there."""
        headings, pages = self._again(lambda: self._begun(sql(), values))
        return headings, chain.from_iterable(pages)

    def _begun(self, sql: str, values: list[Any] | None = None) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
        cursor = self._run(lambda: self._connection.execute(sql, values))
        headings = [column[0] for column in cursor.description or ()]
        first = self._run(lambda: cursor.fetchmany(PAGE))
        return headings, chain([first], self._fetched(cursor) if first else ())

    def _spooled(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The same of SQL that may have no order: kept in a file until all of it is there."""
        headings, pages = self._begun(sql)
        with tempfile.NamedTemporaryFile(dir=self._spill.name, delete=False) as spool:
            for page in pages:
                pickle.dump(page, spool)
        return headings, chain.from_iterable(_pages(Path(spool.name)))

    # -- the tables -------------------------------------------------------------------------------------------

    def _open(self, *, copies: bool = False) -> None:
        """Look at the files that are there now, in a database of their own: what it may open is settled for good.

        With `copies`, at copies of those that may yet be compressed: a fleet's files can go for minutes at midnight.
        """
        self._connection = database()
        self._connections.append(self._connection)
        self._read = segments(self._directory)
        if copies or self._illegible:
            self._copy(None if copies else self._illegible)
        plain = [segment for segment in self._read if self._is_plain(segment)]
        if any(map(is_gone, self._read)):
            raise FileNotFoundError
        self._read = [segment for segment in plain if _may_hold(segment, self._wanted)]
        self._shut_in()
        self._define(f"CREATE VIEW records AS {union(self._read)}")
        self._define("CREATE VIEW decisions AS SELECT * FROM records WHERE kind = 'decision'")

    def _copy(self, stems: set[str] | None) -> None:
        """Go on with copies of these files; None for all."""
        self._read = [segment for segment in self._read if _may_hold(segment, self._wanted)]
        apart = {segment.stem for segment in self._read if segment.form == PARQUET}
        place, trouble = Path(tempfile.mkdtemp(dir=self._spill.name)), Trouble()
        for number, segment in enumerate(self._read):
            if segment.form != PARQUET and (stems is None or segment.stem in stems):
                copy = copied_out(segment, place, trouble, apart)
                self._read[number] = Segment(copy, segment.stem, JSONL)
        self.trouble.add(trouble)

    def _define(self, sql: str) -> None:
        self._run(lambda: self._connection.execute(sql))

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
        if why is not None and not is_gone(segment):
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

    def _fetched(self, cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
        while rows := self._run(lambda: cursor.fetchmany(PAGE)):
            yield rows


def _pages(spool: Path) -> Iterator[list[tuple[Any, ...]]]:
    with spool.open("rb") as file, suppress(EOFError):
        while True:
            yield pickle.load(file)  # noqa: S301  (written by this process, in a directory of its own)


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


def _days(read: list[Segment]) -> list[str | None]:
    """The days of files; None, for all together, if one may be of any day."""
    return [*sorted({segment.day for segment in read})] if all(segment.day for segment in read) else [None]


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
    try:
        return segment.path.lstat().st_mtime >= datetime.fromisoformat(wanted.since).timestamp()
    except FileNotFoundError:  # moved
        return True


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
