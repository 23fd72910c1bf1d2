"""The export of the audit log to Parquet files, a file for each table, day and source.

The files of the log are read in groups of one day, and the records of each group are merged into
the files of the export: a record that is there already is not written again. So an export can be
repeated at any time, after a crash too, and records that retention has removed from the log stay.

Invariant: a record of the log is in the export exactly once. A file of the log counts as exported,
in the list of the source, only when all of its records are there; until then it is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from robots_guard.audit.files import remove
from robots_guard.audit.lake.places import LakePlace
from robots_guard.audit.lake.source import SOURCE, check_source
from robots_guard.audit.partitions import DAY, LISTS, refuse_lake
from robots_guard.audit.read.parquet import (
    can_read,
    count_rows,
    database,
    described,
    duckdb_error,
    why_not_exported,
    why_not_readable,
)
from robots_guard.audit.read.reader import Unreadable, copy_records
from robots_guard.audit.read.search import COUNTED, note_unreadable
from robots_guard.audit.schema import (
    COLUMNS,
    NOT_READABLE,
    files_in,
    first_line,
    lines_in,
    literal,
    named,
    parsed_line,
)
from robots_guard.audit.segments import (
    JSONL,
    PARQUET,
    PART,
    Segment,
    is_gone,
    segments,
    why_not_plain,
)
from robots_guard.audit.tables import (
    LAKE_TABLES,
    NO_DAY,
    RAW,
    VERSION,
    VERSION_KEY,
    LakeTable,
    belongs,
    day_of_record,
    records_of,
    rows_of,
)
from robots_guard.errors import SettingsError

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"  # that DuckDB may use; it writes what needs more to the disk
THREADS = 4  # at most: each needs memory of its own
PIECE = 128 * 1024 * 1024  # bytes of lines that are sorted at once
ROW_GROUP = 20_480  # rows; each thread has some in memory
MAX_ATTEMPTS = 6  # while files of the log are compressed or compacted

#: The order of rows. A record of foreign origin may have no writer or number.
_KEY_PARTS = ("coalesce(writer, '')", "coalesce(seq, 0)")
_KEY = ", ".join(_KEY_PARTS)
_KEY_COLUMNS = f"{_KEY_PARTS[0]} AS w, {_KEY_PARTS[1]} AS s"
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


class ExportedFile(NamedTuple):
    """A file of the export that was written, and the number of its records; `added` of them are
    new."""

    name: str
    records: int
    added: int


class _Exported(msgspec.Struct):
    """The list of a source: which files of the log it contains, with their sizes and times.
    `columns` are those of the version that exported them: another one exports them again."""

    version: int
    columns: str
    files: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


def export(
    directory: Path, place: LakePlace, until: str, trouble: Unreadable, source: str = SOURCE
) -> Iterator[ExportedFile]:
    """Export the records of the days before the day `until` (YYYY-MM-DD), and yield the files that
    were written. What cannot be read is added to `trouble`.

    Raises SettingsError if there is no such directory, or the place cannot be written; MissingExtra
    without DuckDB.
    """
    refuse_lake(directory, "an export")
    check_source(source)
    with place.locked(LISTS), TemporaryDirectory(prefix="robots-guard-") as scratch:
        yield from _Export(directory, place, until, trouble, source, Path(scratch)).run()


class _Export:
    """One run of an export."""

    def __init__(
        self,
        directory: Path,
        place: LakePlace,
        until: str,
        trouble: Unreadable,
        source: str,
        scratch: Path,
    ) -> None:
        self._directory = directory
        self._place = place
        self._until = until
        self._trouble = trouble
        self._source = source
        self._scratch = scratch
        self._error = duckdb_error()
        self._list = f"{LISTS}/{source}.json"
        self._exported = self._read_list()

    def run(self) -> Iterator[ExportedFile]:
        """Export the files of the log that are not exported yet, day by day."""
        done: set[str] = set()
        for _ in range(MAX_ATTEMPTS):
            present = segments(self._directory)
            self._forget_gone(present)
            is_whole = True
            for _, group in groupby(self._todo(present, done), key=lambda each: each.day):
                files = [*group]
                try:
                    yield from self._export_group(files, done)
                except (OSError, SettingsError):
                    if not any(map(is_gone, files)):
                        raise
                    is_whole = False
            if is_whole:
                return
        raise SettingsError(
            f"{str(self._directory)!r} changes faster than it can be read: try again later"
        )

    def _todo(self, present: Sequence[Segment], done: set[str]) -> list[Segment]:
        """The files that may have records to export, in order of days."""
        until = self._until.replace("-", "")
        found = [
            segment
            for segment in present
            if segment.day < until
            and segment.path.name not in done
            and self._exported.files.get(segment.path.name) != _state(segment)
        ]
        return sorted(found, key=lambda segment: (segment.day, segment.path.name))

    # -- the list ----------------------------------------------------------------------------------

    def _read_list(self) -> _Exported:
        """The list of the source; an empty one if there is none, it is damaged, or of another
        version."""
        empty = _Exported(VERSION, _columns())
        try:
            path = self._place.copy_of(self._list, self._scratch)
            found = msgspec.json.decode(path.read_bytes(), type=_Exported) if path else empty
        except (msgspec.DecodeError, UnicodeDecodeError):
            return empty
        except OSError as error:
            raise _unwritable(error) from error
        if (found.version, found.columns) != (VERSION, empty.columns):
            return empty
        return found

    def _write_list(self) -> None:
        part = self._place.scratch_for(self._list, self._scratch)
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self._exported), indent=1))
        self._place.put(part, self._list)

    def _forget_gone(self, present: Sequence[Segment]) -> None:
        names = {segment.path.name for segment in present}
        for name in self._exported.files.keys() - names:
            del self._exported.files[name]

    # -- a group of files --------------------------------------------------------------------------

    def _export_group(self, files: list[Segment], done: set[str]) -> Iterator[ExportedFile]:
        """Export the records of files of one day."""
        states = {segment.path.name: _state(segment) for segment in files}
        with database() as connection:
            self._configure(connection)
            readable = [segment for segment in files if self._is_readable(connection, segment)]
            if any(map(is_gone, files)):
                raise FileNotFoundError
            unfinished: set[str] = set()
            if readable:
                self._stage_or_copy(connection, readable)
                yield from self._export_staged(connection)
                unfinished = self._unfinished(connection)
        done |= states.keys()
        for segment in readable:
            name = segment.path.name
            if segment.stem not in unfinished and name not in self._trouble.newer:
                self._exported.files[name] = states[name]
        try:
            self._write_list()
        except OSError as error:
            raise _unwritable(error) from error

    def _configure(self, connection: duckdb.DuckDBPyConnection) -> None:
        (threads,) = connection.execute("SELECT current_setting('threads')").fetchone() or (1,)
        connection.execute(f"SET temp_directory = {literal(named(self._scratch))}")
        connection.execute(f"SET memory_limit = {literal(MEMORY)}")
        connection.execute(f"SET threads = {min(THREADS, int(threads))}")
        database_file = self._scratch / "staged.duckdb"
        remove(database_file)
        connection.execute(f"ATTACH {literal(named(database_file))} AS scratch")
        connection.execute("USE scratch")

    def _is_readable(self, connection: duckdb.DuckDBPyConnection, segment: Segment) -> bool:
        why = why_not_plain(segment.path) or why_not_readable(connection, segment)
        if why is not None and not is_gone(segment):
            self._trouble.files[segment.path.name] = why
        return why is None

    def _stage_or_copy(self, connection: duckdb.DuckDBPyConnection, files: list[Segment]) -> None:
        """Stage the lines of files. Of one that DuckDB cannot read, a copy of its records is
        staged."""
        try:
            _stage(connection, [(segment.path, segment.form) for segment in files])
        except self._error:
            if any(map(is_gone, files)):
                raise FileNotFoundError from None
            copies = [self._readable_copy(connection, segment) for segment in files]
            try:
                _stage(connection, copies)
            except self._error as error:
                raise SettingsError(
                    f"the audit log cannot be exported ({first_line(error)}): make room in TMPDIR,"
                    " or move the files away that audit verify calls damaged"
                ) from error
        unreadable = f"SELECT {COUNTED} FROM staged WHERE {NOT_READABLE} GROUP BY 1 ORDER BY 1"
        note_unreadable(self._trouble, connection.execute(unreadable).fetchall())
        connection.execute(f"DELETE FROM staged WHERE {NOT_READABLE}")

    def _readable_copy(
        self, connection: duckdb.DuckDBPyConnection, segment: Segment
    ) -> tuple[Path, str]:
        if not segment.has_lines or can_read(connection, segment.path):
            return segment.path, segment.form
        return copy_records(segment, self._scratch, self._trouble), JSONL

    # -- the staged records ------------------------------------------------------------------------

    def _export_staged(self, connection: duckdb.DuckDBPyConnection) -> Iterator[ExportedFile]:
        for table in LAKE_TABLES.values():
            days = connection.execute(
                f"SELECT DISTINCT day FROM staged WHERE {belongs(table)} ORDER BY 1"
            )
            for (day,) in days.fetchall():
                if not self._is_later(day):
                    yield from self._merge(connection, table, day)

    def _is_later(self, day: str) -> bool:
        return day != NO_DAY and day >= self._until

    def _unfinished(self, connection: duckdb.DuckDBPyConnection) -> set[str]:
        """The stems of the files that have records of later days."""
        rows = connection.execute(
            "SELECT DISTINCT filename FROM staged WHERE day <> ? AND day >= ?",
            [NO_DAY, self._until],
        ).fetchall()
        return {
            Path(filename).name.partition(".jsonl")[0].removesuffix(PARQUET) for (filename,) in rows
        }

    def _merge(
        self, connection: duckdb.DuckDBPyConnection, table: LakeTable, day: str
    ) -> Iterator[ExportedFile]:
        """Write the file of a table and a day, with the records that it has and the staged ones.
        Nothing is written if it has them all."""
        name = f"{table.name}/{DAY}{day}/{self._source}{PARQUET}"
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW added AS SELECT {_NAMES}, {RAW} FROM scratch.staged"
            f" WHERE {belongs(table)} AND day = {literal(day)}"
        )
        try:
            old = self._place.copy_of(name, self._scratch)
            is_current, known = True, 0
            if old is not None:
                is_current = self._check(connection, table, old, name)
                known = _split(connection, table, old)
            added = count_rows(connection, "added")
            if old is not None and is_current and not added:
                return
            part = self._place.scratch_for(name, self._scratch)
            relation = "(SELECT * FROM known UNION ALL SELECT * FROM added)" if known else "added"
            _write(connection, table, relation, part, known + added)
            self._place.put(part, name)
        except OSError as error:
            raise _unwritable(error) from error
        yield ExportedFile(name, known + added, added)

    def _check(
        self, connection: duckdb.DuckDBPyConnection, table: LakeTable, path: Path, name: str
    ) -> bool:
        """Whether a file of the export has all columns of this version. Raises SettingsError if it
        cannot be read, or has others."""
        why = why_not_exported(connection, path, table)
        rows = [] if why else described(connection, path)
        names = {column for column, _ in rows}
        unknown = sorted(names - table.stored.keys())
        if unknown:
            why = f"a newer robots_guard has written its column {unknown[0]!r}: update robots_guard"
        if why is not None:
            raise SettingsError(f"--parquet: {name!r} cannot be added to ({why})")
        return names == table.stored.keys()


def _stage(connection: duckdb.DuckDBPyConnection, files: list[tuple[Path, str]]) -> None:
    """Parse the lines of files into the table `staged`, each line once. Raises DuckDB's errors.

    A line that is there twice, as in the copy of a file, has the same writer, number and text.
    """
    lines = [path for path, form in files if form != PARQUET]
    compacted = [path for path, form in files if form == PARQUET]
    parts = []
    if lines:
        parts.append(f"SELECT {RAW}, filename FROM {lines_in(lines, names=True)}")
    if compacted:
        parquet = f"read_parquet({files_in(compacted)}, union_by_name = true, filename = true)"
        parts.append(f"SELECT {RAW}, filename FROM {parquet}")
    parsed = f"SELECT {RAW}, filename, {parsed_line()} AS entry FROM ({' UNION ALL '.join(parts)})"
    columns = ", ".join(f'entry."{name}" AS "{name}"' for name in COLUMNS)
    connection.execute(
        f"CREATE OR REPLACE TABLE staged AS SELECT {columns}, {RAW}, filename,"
        f" {day_of_record()} AS day FROM ({parsed}) WHERE trim({RAW}) <> ''"
    )
    numbers = f"row_number() OVER (PARTITION BY writer, seq, hash({RAW}))"
    repeated = (
        f"SELECT id FROM (SELECT rowid AS id, {numbers} AS number FROM staged) WHERE number > 1"
    )
    connection.execute(f"DELETE FROM staged WHERE rowid IN ({repeated})")


def _split(connection: duckdb.DuckDBPyConnection, table: LakeTable, old: Path) -> int:
    """Divide the records of a file and those in `added`: `known` has the former, and `added` those
    that are new. Return the number of the former."""
    digest = f"hash({_NAMES})"
    connection.execute(f"CREATE OR REPLACE TABLE known AS {records_of(table, [old])}")
    same = (
        "a.writer IS NOT DISTINCT FROM k.writer AND a.seq IS NOT DISTINCT FROM k.seq"
        " AND a.digest = k.digest"
    )
    connection.execute(
        f"CREATE OR REPLACE TABLE fresh AS SELECT a.* EXCLUDE (digest)"
        f" FROM (SELECT *, {digest} AS digest FROM added) AS a"
        f" ANTI JOIN (SELECT writer, seq, {digest} AS digest FROM known) AS k ON {same}"
    )
    connection.execute("CREATE OR REPLACE TEMP VIEW added AS SELECT * FROM scratch.fresh")
    return count_rows(connection, "known")


def _write(
    connection: duckdb.DuckDBPyConnection,
    table: LakeTable,
    records: str,
    part: Path,
    expected: int,
) -> None:
    """Write rows in order of writers and numbers. Raises SettingsError and OSError.

    DuckDB cannot sort any number of wide rows in a limited memory. So they are written in pieces
    that can be sorted there, and the pieces are joined, in order.
    """
    pieces = []
    try:
        for number, condition in enumerate(_ranges(connection, records)):
            rows = rows_of(table, f"(SELECT * FROM {records} WHERE {condition})")
            piece = part.with_name(f"{part.name}.{number}{PART}")
            pieces.append(piece)
            _copy(connection, f'SELECT * FROM ({rows}) ORDER BY {_KEY}, "at"', piece)
        if len(pieces) == 1:
            pieces.pop().rename(part)
        else:
            joined = f"read_parquet({files_in(pieces)}, hive_partitioning = false)"
            _copy(connection, f"SELECT * FROM {joined}", part)
        written = count_rows(connection, f"read_parquet({files_in([part])})")
    except duckdb_error() as error:
        remove(part)
        raise SettingsError(
            f"the export cannot be written ({first_line(error)}): make room there, or in TMPDIR"
        ) from error
    finally:
        for piece in pieces:
            remove(piece)
    if written != expected:
        raise SettingsError(f"{part.name!r} has {written} of {expected} records: export again")


def _copy(connection: duckdb.DuckDBPyConnection, rows: str, path: Path) -> None:
    """Write rows to a Parquet file, in their order. Raises DuckDB's errors."""
    connection.execute(
        f"COPY ({rows}) TO {literal(named(path))} (FORMAT parquet, COMPRESSION zstd,"
        f" ROW_GROUP_SIZE {ROW_GROUP}, KV_METADATA {{{VERSION_KEY}: '{VERSION}'}})"
    )


def _ranges(connection: duckdb.DuckDBPyConnection, records: str) -> list[str]:
    """Conditions that divide records into ranges of their order, of about PIECE bytes each."""
    size = (
        f"coalesce(strlen({RAW}), 500 + coalesce(strlen(url), 0) + coalesce(strlen(evidence), 0))"
    )
    narrow = f"SELECT {_KEY_COLUMNS}, {size} AS size FROM {records}"
    sums = f"SELECT w, s, sum(size) OVER (ORDER BY w, s ROWS UNBOUNDED PRECEDING) AS total FROM ({narrow})"
    firsts = connection.execute(
        f"SELECT min({{w: w, s: s}}) FROM ({sums}) GROUP BY CAST(total AS BIGINT) // {PIECE} ORDER BY 1"
    ).fetchall()
    bounds = [(literal(first["w"]), first["s"]) for (first,) in firsts][1:]
    writer, number = _KEY_PARTS
    conditions = []
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        tests = []
        if low:
            tests.append(f"{writer} >= {low[0]} AND ({writer} > {low[0]} OR {number} >= {low[1]})")
        if high:
            tests.append(
                f"{writer} <= {high[0]} AND ({writer} < {high[0]} OR {number} < {high[1]})"
            )
        conditions.append(" AND ".join(tests) or "true")
    return conditions


def _state(segment: Segment) -> tuple[int, int]:
    """What changes if a file is written to or replaced: its size in bytes, and when it was modified, in
    nanoseconds; -1 each if it is gone."""
    try:
        state = segment.path.lstat()
    except OSError:
        return -1, -1
    return state.st_size, state.st_mtime_ns


def _columns() -> str:
    """The digest of all columns."""
    described = [(table.name, *table.stored.items()) for table in LAKE_TABLES.values()]
    return hashlib.sha256(msgspec.json.encode(described)).hexdigest()


def _unwritable(error: OSError) -> SettingsError:
    return SettingsError(
        f"the export cannot be written ({error.strerror or error}): name another place with --parquet"
    )


def first_day_not_exported(now: float, until: str | None = None) -> str:
    """The first day that is not exported: that of `until`, a moment as in records, or else today,
    whose records are still being written. A day is exported when all of it is past `until`."""
    if until is not None:
        return until[:10]
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
