"""Searching the audit log with DuckDB, across plain and compressed files, and their index.

Invariant: no query can change the files, reach another file or use the network. Values are passed
as parameters. A user's SQL must be one SELECT, and runs on a connection that can open only the
audit log's files. If a file was compressed or removed, the query is repeated on the
files that exist then, so that an answer is always complete.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from robots_guard.audit.read.index import READABLE, Indexed, indexed, remove_damaged
from robots_guard.audit.read.reader import (
    DECISION,
    Filter,
    Newer,
    Unreadable,
    copy_records,
    pinned_texts,
)
from robots_guard.audit.read.resource import host_pattern, prefix_of
from robots_guard.audit.record import SCHEMA, AnyRecord, Record, SignalsRecord
from robots_guard.audit.schema import (
    COLUMNS,
    JSON_COLUMNS,
    NOT_READABLE,
    TIME,
    can_read,
    database,
    duckdb_error,
    files_in,
    first_line,
    literal,
    named,
    records_in,
    records_with,
    unglobbed,
)
from robots_guard.audit.segments import (
    INDEX,
    JSONL,
    ZSTD,
    Segment,
    is_gone,
    segments,
    why_not_plain,
)
from robots_guard.decisions.signal_settings import Use
from robots_guard.errors import SettingsError
from robots_guard.text import printable

if TYPE_CHECKING:
    import duckdb

MAX_ATTEMPTS = 6  # while files disappear; the second half of them uses copies
PAGE = 10_000  # rows fetched at once
LONGEST_MESSAGE = 2000  # characters of an error of DuckDB
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
POLL = 0.1  # seconds between two progress reports
T = TypeVar("T")

_LINES = "lines"  # a table of parsed lines
_UNESCAPED = re.compile(r"[A-Za-z0-9_-]+")

Progress = Callable[[float], None]  # called with a percentage


class Search:
    """A search over an audit log. Raises SettingsError if there is no such directory, MissingExtra
    without DuckDB.

    Files whose day `wanted` excludes are not read. `progress` is called during long queries.
    `makes_copies` says whether the index is made where it is missing, which pays unless only few
    records are read. Without `trusts_index`, this search has an index of its own: with write access
    to the log, one can change that of the log, and no proof shows it.
    """

    def __init__(
        self,
        directory: Path,
        wanted: Filter | None = None,
        progress: Progress | None = None,
        *,
        makes_copies: bool = True,
        trusts_index: bool = True,
    ) -> None:
        self._directory = directory
        self._makes_copies = makes_copies
        self._connections: list[duckdb.DuckDBPyConnection] = []
        self.trouble = Unreadable()
        self._error = duckdb_error()
        self._spill = tempfile.TemporaryDirectory(prefix="robots-guard-")
        self._folder = (directory if trusts_index else Path(self._spill.name)) / INDEX
        self._progress = progress
        self.wanted = wanted or Filter(kind=None)
        self._used: set[str] = set()  # stems of the files that queries have read
        self._error_prefix = "the audit log"  # names the cause of a failed query
        self._explain: Callable[[Exception], str] = first_line
        self._segments: list[Segment] = []
        self._index = Indexed([], [])
        self._period = Filter(kind=None)  # of the records that the next queries are about
        self._unusable: set[str] = set()  # stems of files that DuckDB cannot read
        self._dropping: list[str] | None = None  # writers that drop queries, once they are known
        try:
            self._retry(lambda: None, opens=True)
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """The audit log's directory."""
        return self._directory

    def close(self) -> None:
        """Close the database and remove the temporary files."""
        for connection in self._connections:
            connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- queries -----------------------------------------------------------------------------------

    def records(
        self, limit: int | None = None, *, newest_first: bool = False
    ) -> Iterator[AnyRecord]:
        """The first `limit` of the records wanted, oldest or newest first. Days are read one by
        one, so that a first page reads only the first."""
        left = limit
        days = _days(self._segments)
        for day in reversed(days) if newest_first else days:
            for entry in self._records_of(day, left, "DESC" if newest_first else "ASC"):
                yield entry
                if left is not None:
                    left -= 1
            if left == 0:
                return

    def _records_of(
        self, day: str | None, limit: int | None, direction: str
    ) -> Iterator[AnyRecord]:
        names = [*COLUMNS]
        columns = ", ".join(f'"{name}"' for name in names)
        where, values = self.condition
        order = f'"at" {direction}, writer {direction}, seq {direction}'
        tail = "" if limit is None else f" LIMIT {int(limit)}"

        def sql() -> str:
            def is_of_day(segment: Segment) -> bool:
                return day is None or segment.day == day

            self._note_used(filter(is_of_day, self._segments))
            table = self._records_in(is_of_day, self.wanted.id)
            return f"SELECT {columns} FROM ({table}) WHERE {where} ORDER BY {order}{tail}"

        for row in self._rows(sql, values):
            entry = record_of_row(dict(zip(names, row, strict=True)))
            if entry is not None:
                yield entry

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """The filter as an SQL condition and its values, as `conditions` gives it, with the records
        of writers that drop queries."""
        return self.condition_of(self.wanted)

    def condition_of(self, wanted: Filter) -> tuple[str, list[Any]]:
        """The same for another filter with the same URL."""
        if self._dropping is None:
            self._dropping = self._find_dropping()
        return conditions(wanted, self._dropping)

    @property
    def files(self) -> list[Segment]:
        """The files that are searched."""
        return list(self._segments)

    def _find_dropping(self) -> list[str]:
        """The writers that drop queries, if the URL wanted has one."""
        resource = self.wanted.resource
        if resource is None or resource.without_query in resource.forms:
            return []
        sql = (
            "SELECT DISTINCT writer FROM records"
            " WHERE kind = 'start' AND settings->>'$.audit_query' = 'drop' ORDER BY 1"
        )
        return [writer for (writer,) in self.rows(sql)]

    def rows(self, sql: str, values: list[Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of a query over all files. Raises SettingsError if DuckDB cannot execute it."""
        self._note_used(self._segments)
        return self._rows(lambda: sql, values)

    @contextmanager
    def only_since(self, at: str | None) -> Iterator[None]:
        """Read only files that may have records since then, for queries that need no others: a
        query opens each file to learn that it has none."""
        try:
            self._period = Filter(kind=None, since=at)
            self._retry(self._define_records)
            yield
        finally:
            self._period = Filter(kind=None)
            self._retry(self._define_records)

    def execute(self, sql: str, values: list[Any]) -> None:
        """Execute a statement without a result."""
        self._retry(lambda: self._in_thread(lambda: self._connection.execute(sql, values)))

    def select(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The column names and rows of a user's SQL. Raises SettingsError unless it is one SELECT."""
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
        except self._error as error:
            raise SettingsError(f"--sql: {_with_hints(error)}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SettingsError("--sql takes a single SELECT statement")
        self._note_used(self._segments)
        self._error_prefix, self._explain = "--sql", _with_hints
        return self._retry(lambda: self._query_spooled(sql))

    def unreadable(self) -> Unreadable:
        """The parts of the files used that could not be read."""
        note_unreadable(self.trouble, self._rows(self._unreadable))
        return self.trouble

    def _unreadable(self) -> str:
        """SQL for the number of unreadable lines in each file of this attempt: a retry may read other
        copies."""
        tables = []
        lines = [segment for segment in self._index.rest if segment.stem in self._used]
        if lines:
            tables.append(f"{self._parsed(sorted(lines))} WHERE {NOT_READABLE}")
        copies = self._copies_of(lambda segment: segment.stem in self._used)
        if copies:
            tables.append(f"{_copied(copies)} WHERE NOT {READABLE}")
        counts = [f"SELECT {COUNTED} FROM {table} GROUP BY 1" for table in tables]
        if not counts:
            return "SELECT '', 0, 0, 0 WHERE false"
        return f"{' UNION ALL '.join(counts)} ORDER BY 1"

    def _note_used(self, used: Iterable[Segment]) -> None:
        self._used.update(segment.stem for segment in used)

    # -- files that disappear ----------------------------------------------------------------------

    def _retry(self, work: Callable[[], T], *, opens: bool = False) -> T:
        """The result of work, which is repeated on the files that exist then if some that it read
        disappeared."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                if opens:
                    self._open(copies=attempt >= MAX_ATTEMPTS // 2)
                return work()
            except (SettingsError, FileNotFoundError) as error:
                opens = self._has_missing_file() or self._has_new_unusable(error)
                if not opens:
                    raise
        raise SettingsError(
            f"{str(self._directory)!r} changes faster than it can be read: try again later"
        )

    def _has_missing_file(self) -> bool:
        """Whether a file that is read no longer exists."""
        return any(map(is_gone, self._segments)) or not self._has_copies()

    def _has_copies(self) -> bool:
        return all(copy.path.exists() for copy in self._index.copies)

    def _has_new_unusable(self, error: Exception) -> bool:
        """Whether DuckDB failed because of files that it could read before. Copies of them are used
        from now on."""
        import duckdb

        if isinstance(error.__cause__, self._error) and remove_damaged(self._copies_of()):
            return True
        if not isinstance(error.__cause__, (duckdb.InvalidInputException, duckdb.IOException)):
            return False
        lines = {segment.stem: segment.path for segment in self._index.rest}
        found = {
            stem
            for stem in lines.keys() - self._unusable
            if not can_read(self._connection, lines[stem])
        }
        self._unusable |= found
        return bool(found)

    def _rows(
        self, sql: Callable[[], str], values: list[Any] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. If they are sorted, all files have been read when the first one is available."""
        _, pages = self._retry(lambda: self._query(sql(), values))
        return chain.from_iterable(pages)

    def _query(
        self, sql: str, values: list[Any] | None = None
    ) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
        """The column names and the rows of a query, in pages. The first page is fetched at once, so
        that a failing query fails here."""
        cursor = self._in_thread(lambda: self._connection.execute(sql, values))
        names = [column[0] for column in cursor.description or ()]
        first = self._in_thread(lambda: cursor.fetchmany(PAGE))
        return names, chain([first], self._pages(cursor) if first else ())

    def _query_spooled(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The column names and the rows of a query, as `_query` returns them, with all rows fetched.

        A query that does not sort its rows returns the first ones before it has read all files, so
        that it could still fail. So the rows are kept in a file.
        """
        names, pages = self._query(sql)
        with tempfile.NamedTemporaryFile(dir=self._spill.name, delete=False) as spool:
            for page in pages:
                pickle.dump(page, spool)
        return names, chain.from_iterable(_spooled_pages(Path(spool.name)))

    # -- the tables --------------------------------------------------------------------------------

    def _open(self, *, copies: bool = False) -> None:
        """Open the files that exist now in a new database, because the files that one may open
        cannot be changed.

        With `copies`, copies are used of the files that may yet be compressed: at midnight, a
        fleet's files may be compressed for minutes.
        """
        self._connection = database()
        self._connections.append(self._connection)
        self._segments = segments(self._directory)
        days = {segment.day for segment in self._segments}
        if copies or self._unusable:
            self._copy(None if copies else self._unusable)
        readable = [segment for segment in self._segments if self._is_readable(segment)]
        if any(map(is_gone, self._segments)):
            raise FileNotFoundError
        self._segments = [segment for segment in readable if self._is_wanted(segment)]
        self._index = indexed(
            self._directory,
            self._folder,
            readable,
            days,
            self._is_wanted,
            makes=self._makes_copies,
        )
        self._restrict()
        self._load()
        self._define_records()
        self._define(f"CREATE VIEW decisions AS SELECT * FROM records WHERE {DECISIONS}")
        self._define(f"CREATE VIEW signals AS {SIGNALS}")

    def _is_wanted(self, segment: Segment) -> bool:
        return may_match(segment, self.wanted)

    def _load(self) -> None:
        """Load what queries are to read from memory."""

    def _define_records(self) -> None:
        records = self._records_in(lambda segment: may_match(segment, self._period))
        self._define(f"CREATE OR REPLACE VIEW records AS {records}")

    def _records_in(self, is_read: Callable[[Segment], bool], identity: str | None = None) -> str:
        """SQL for all records of some of the files, in all columns.

        With an `identity`, records with other ids may be missing, so that few lines must be parsed.
        """
        columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in _ALL.items())
        parts = [f"SELECT {columns} WHERE false"]
        lines = [segment for segment in self._index.rest if is_read(segment)]
        if lines and identity and _UNESCAPED.fullmatch(identity):
            # JSON cannot contain this id in an escaped form, so a search of the text finds it.
            table = records_with((segment.path for segment in lines), identity)
            parts.append(f"SELECT *, {TIME} FROM {table} WHERE NOT ({NOT_READABLE})")
        elif lines:
            parts.append(
                f"SELECT * EXCLUDE (filename), {TIME} FROM {self._parsed(lines)}"
                f" WHERE NOT ({NOT_READABLE})"
            )
        copies = self._copies_of(is_read)
        if copies:
            columns = f"* EXCLUDE (filename, {READABLE})"
            parts.append(f"SELECT {columns} FROM {_copied(copies)} WHERE {READABLE}")
        return " UNION ALL BY NAME ".join(parts)

    def _parsed(self, lines: Iterable[Segment]) -> str:
        """A table of the rows of files that have no copy, with their file names."""
        return records_in(segment.path for segment in lines)

    def _copies_of(self, is_read: Callable[[Segment], bool] = lambda _: True) -> list[Path]:
        """The copies that have records of some of the files."""
        return [copy.path for copy in self._index.copies if any(map(is_read, copy.files))]

    def _copy(self, stems: set[str] | None) -> None:
        """Replace these files by copies; None for all."""
        self._segments = [segment for segment in self._segments if self._is_wanted(segment)]
        directory, trouble = Path(tempfile.mkdtemp(dir=self._spill.name)), Unreadable()
        for number, segment in enumerate(self._segments):
            if stems is None or segment.stem in stems:
                copy = copy_records(segment, directory, trouble)
                self._segments[number] = Segment(copy, segment.stem, JSONL)
        self.trouble.add(trouble)

    def _define(self, sql: str) -> None:
        self._in_thread(lambda: self._connection.execute(sql))

    def _restrict(self) -> None:
        """Allow the database to open these files only, and lock its configuration."""
        paths = [*(segment.path for segment in self._index.rest), *self._copies_of()]
        allowed = ", ".join(
            literal(name) for path in paths for name in {named(path), unglobbed(path)}
        )
        for setting in (
            f"allowed_paths = [{allowed}]",
            # Used by this search only.
            f"temp_directory = {literal(named(Path(self._spill.name)))}",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "allow_community_extensions = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")

    def _is_readable(self, segment: Segment) -> bool:
        why = why_not_plain(segment.path) or _why_not_readable(segment)
        if why is not None and not is_gone(segment):
            self.trouble.files[segment.path.name] = why
        return why is None

    # -- running -----------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[[], T]) -> T:
        """The result of work, done in a thread so that this one can handle interrupts and report progress."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(work())
            except Exception as error:  # noqa: BLE001  raised again in the waiting thread
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
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
            raise SettingsError(f"{self._error_prefix}: {self._explain(result)}") from result
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]  # the result of `work`

    def _pages(self, cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
        while rows := self._in_thread(lambda: cursor.fetchmany(PAGE)):
            yield rows


def _spooled_pages(spool: Path) -> Iterator[list[tuple[Any, ...]]]:
    with spool.open("rb") as file, suppress(EOFError):
        while True:
            yield pickle.load(file)  # noqa: S301  (written by this process, in its own directory)


#: The decisions on requests, and those on responses that were refused, or only passed because of a
#: setting.
DECISIONS = (
    "(kind = 'decision' OR (kind = 'signals'"
    " AND (action <> 'pass' OR would IS NOT NULL OR relaxed IS NOT NULL)))"
)
_ALL = {**COLUMNS, "time": "TIMESTAMP"}
_USES = {f"use_{use.value.replace('-', '_')}": "VARCHAR" for use in Use if use is not Use.CRAWL}
#: The records of responses, with a column for each use and for max-snippet.
SIGNALS = (
    "SELECT *, "
    + ", ".join(
        f"coalesce(uses->>'$.\"{use}\"', 'unknown') AS use_{use.value.replace('-', '_')}"
        for use in Use
        if use is not Use.CRAWL
    )
    + ", TRY_CAST(limits->>'$.\"max-snippet\"' AS BIGINT) AS max_snippet"
    " FROM records WHERE kind = 'signals'"
)

#: The tables for a user's SQL: their columns, and the types of these.
TABLES: Mapping[str, Mapping[str, str]] = {
    "decisions": _ALL,
    "signals": _ALL | _USES | {"max_snippet": "BIGINT"},
    "records": _ALL,
}

_NEWER = f'"schema" > {SCHEMA} AND kind IS NOT NULL'
#: How many lines of a file are not readable, and of these, how many are of a newer version, and of
#: which at most.
COUNTED = (
    f'filename, count(*), count(*) FILTER ({_NEWER}), coalesce(max("schema") FILTER ({_NEWER}), 0)'
)


def note_unreadable(trouble: Unreadable, counted: Iterable[tuple[Any, ...]]) -> None:
    """Note the lines that were not readable, counted by COUNTED."""
    for filename, count, newer, schema in counted:
        name = Path(filename).name
        if newer:
            trouble.newer[name] = Newer(newer, schema)
        if count > newer:
            trouble.lines[name] = count - newer


def _with_hints(error: Exception) -> str:
    """DuckDB's message with its suggestions and the position, fit for a terminal."""
    return printable(str(error).rstrip(), keep="\n")[:LONGEST_MESSAGE]


def _copied(copies: list[Path]) -> str:
    """A table of the rows of copies, from the newest on, so that a query for the newest records does
    not read the others."""
    return f"read_parquet({files_in(reversed(copies))})"


def _why_not_readable(segment: Segment) -> str | None:
    """Why a file would make every query fail, or None. Reads only its name and its first bytes:
    DuckDB itself does not distinguish missing permission from damage."""
    try:
        named(segment.path)
        with segment.path.open("rb") as file:
            first = file.read(len(ZSTD_MAGIC))
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    if segment.form == ZSTD and first not in (ZSTD_MAGIC, b""):
        return "damaged: not compressed by zstd"
    return None


def _days(read: list[Segment]) -> Sequence[str | None]:
    """The days of files; a single None for all together if the day of one is unknown."""
    if not all(segment.day for segment in read):
        return [None]
    return [*sorted({segment.day for segment in read})]


class Reach(NamedTuple):
    """The time of the first record of an audit log, if a period begins before it, and that of the
    last one, if the period goes on after it."""

    first: str = ""
    last: str = ""

    def __str__(self) -> str:
        parts = []
        if self.first:
            parts.append(f"begins at {self.first} and says nothing of the time before")
        if self.last:
            parts.append(f"ends at {self.last} and says nothing of the time after")
        return f"the audit log {', and '.join(parts)}" if parts else ""


def reach_of(directory: Path, wanted: Filter, now: str) -> Reach:
    """Which parts of the period of a filter an audit log does not reach. Only the files of its first
    and its last day are read, and only if that is in question."""
    days = sorted({each.day for each in segments(directory) if each.day})
    if not days:
        return Reach()
    since, until = wanted.since or "", wanted.until or ""
    first = last = ""
    if since and since[:10].replace("-", "") <= days[0]:
        first = _time_of(directory, "min", days[0])
    if (until and until <= now and until[:10].replace("-", "") >= days[-1]) or (
        since[:10].replace("-", "") > days[-1]
    ):
        last = _time_of(directory, "max", days[-1])
    return Reach(first if since < first else "", last if max(since, until) > last else "")


def _time_of(directory: Path, function: str, day: str) -> str:
    """The first or the last time in the files of a day."""
    at = f"{day[:4]}-{day[4:6]}-{day[6:]}T12:00:00.000Z"
    of_day = Filter(kind=None, until=at) if function == "min" else Filter(kind=None, since=at)
    with Search(directory, of_day) as search:
        ((found,),) = search.rows(f'SELECT {function}("at") FROM records')
    return found or ""


def find_decision(
    directory: Path, identity: str, progress: Progress | None = None
) -> Record | SignalsRecord | None:
    """The decision with this id, on a request or a response, whether it passed or not; None if
    there is none."""
    for kind in (DECISION, "signals"):
        wanted = Filter(kind=kind, id=identity)
        with Search(directory, wanted, progress, makes_copies=False) as search:
            for entry in search.records(limit=1):
                if isinstance(entry, Record | SignalsRecord):
                    return entry
    return None


def conditions(wanted: Filter, dropping: Sequence[str] = ()) -> tuple[str, list[Any]]:
    """A filter as an SQL condition and its values. `dropping` are the writers that drop queries."""
    tests: list[tuple[str, Any]] = [
        (f'"{name}" = ?', value) for name, value in wanted.equals.items()
    ]
    if wanted.kind == DECISION:
        tests.append((f"{DECISIONS} AND ?", True))
    elif wanted.kind is not None:
        tests.append(("kind = ?", wanted.kind))
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
    for test, values in _place_tests(wanted, dropping):
        tests += [(test, values[0]), *(("", value) for value in values[1:])]
    return (
        " AND ".join(test for test, _ in tests if test) or "true",
        [value for _, value in tests],
    )


def _place_tests(wanted: Filter, dropping: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """The tests of URL and host, each with its values. That of the origin lets DuckDB skip files."""
    resource = wanted.resource
    if resource is not None:
        yield "origin = ?", [resource.origin]
        test, values = resource.spellings.condition
        if dropping:
            other, others = resource.spellings_without_query.condition
            writers = ", ".join("?" for _ in dropping)
            test = f"({test} OR (writer IN ({writers}) AND {other}))"
            values += [*dropping, *others]
        yield test, values
    if wanted.url_prefix is not None:
        prefix = prefix_of(wanted.url_prefix)
        yield "origin = ?", [prefix.origin]
        yield "regexp_full_match(url, ?)", [prefix.pattern]
    if wanted.host is not None:
        yield "regexp_full_match(origin, ?)", [host_pattern(wanted.host)]


def may_match(segment: Segment, wanted: Filter) -> bool:
    """Whether a file may have records of the time wanted. Its writer may be late, or unable to
    begin a new file; a file was last changed when its last record was written, or later."""
    if not segment.day:
        return True
    if wanted.until is not None and segment.day > _day(wanted.until, 1):
        return False
    if wanted.since is None or segment.day >= _day(wanted.since, -1):
        return True
    try:
        return segment.path.lstat().st_mtime >= datetime.fromisoformat(wanted.since).timestamp()
    except FileNotFoundError:  # its replacement is found later
        return True


def _day(at: str, days: int) -> str:
    return f"{datetime.fromisoformat(at) + timedelta(days=days):%Y%m%d}"


def record_of_row(values: dict[str, Any]) -> AnyRecord | None:
    """The record of a row, or None if it is not one."""
    found = {name: value for name, value in values.items() if value is not None}
    try:
        for name in JSON_COLUMNS & found.keys():
            found[name] = msgspec.json.decode(found[name])
        entry: AnyRecord = msgspec.convert(found, AnyRecord)
    except msgspec.DecodeError:  # of a forged record
        return None
    return entry


def pinned_document(search: Search, sha256: str) -> bytes | None:
    """Return the content of a robots.txt that an override pinned, as the log has it; None if it does
    not have all of it."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    sql = f"SELECT {names} FROM records WHERE kind = 'pinned' AND sha256 = ?"
    rows = search.rows(sql, [sha256])
    entries = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return pinned_texts(each for each in entries if each is not None).get(sha256)


class LoadedSearch(Search):
    """A Search for repeated queries, such as those of web pages: the lines of files that have no copy are
    parsed once, when the log is opened. Records written after opening are not included."""

    def _load(self) -> None:
        self._note_used(self._segments)
        if self._index.rest:
            rows = f"SELECT * FROM {records_in(segment.path for segment in self._index.rest)}"
            self._define(f"CREATE TEMP TABLE {_LINES} AS {rows}")

    def _parsed(self, lines: Iterable[Segment]) -> str:  # noqa: ARG002  (all are in the table)
        return _LINES

    def is_whole(self) -> bool:
        """Whether the copies still exist: retention may have removed one."""
        return self._has_copies()
