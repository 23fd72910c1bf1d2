"""Compacted files: one Parquet file per day, read by DuckDB by lines or by columns.

Each line is kept as it was written in addition to its columns, so that reading, verifying and
exporting give the line itself.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from robots_guard.audit.partitions import table_of
from robots_guard.audit.schema import (
    COLUMNS,
    files_in,
    first_line,
    lines_in,
    named,
    parsed_line,
    records_in,
)
from robots_guard.audit.segments import (
    LAKE,
    PARQUET,
    ZSTD,
    Segment,
    day_of,
    parts_of,
    stem_of,
    why_not_plain,
)
from robots_guard.audit.tables import LAKE_TABLES, VERSION, VERSION_KEY, LakeTable
from robots_guard.errors import MissingExtra

if TYPE_CHECKING:
    import duckdb

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def database() -> duckdb.DuckDBPyConnection:
    """A new DuckDB database in memory. Raises MissingExtra."""
    connection: duckdb.DuckDBPyConnection = _duckdb().connect()
    # Python variables must not become tables.
    connection.execute("SET python_enable_replacements = false")
    return connection


def duckdb_error() -> type[Exception]:
    """The base class of DuckDB's errors. Raises MissingExtra."""
    error: type[Exception] = _duckdb().Error
    return error


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("audit", "querying the audit log") from error
    return duckdb


def why_not_readable(connection: duckdb.DuckDBPyConnection, segment: Segment) -> str | None:
    """Why a file would make every query fail, or None. Reads only its name and its first and last
    bytes."""
    try:
        named(segment.path)
        first = first_bytes(segment.path)
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    if segment.form == PARQUET:
        return _why_not_compacted(connection, segment.path)
    if segment.form == LAKE:
        return why_not_exported(connection, segment.path, LAKE_TABLES[table_of(segment)])
    if segment.form == ZSTD and first not in (ZSTD_MAGIC, b""):
        return "damaged: not compressed by zstd"
    return None


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file. Raises OSError: DuckDB itself does not distinguish missing
    permission from damage."""
    with path.open("rb") as file:
        return file.read(len(ZSTD_MAGIC))


def _why_not_compacted(connection: duckdb.DuckDBPyConnection, path: Path) -> str | None:
    """Why a Parquet file is not one that compaction wrote, or None."""
    try:
        rows = connection.execute(
            f"DESCRIBE SELECT * FROM read_parquet({files_in([path])})"
        ).fetchall()
    except duckdb_error() as error:
        return f"damaged: {first_line(error)}"
    types = {name: kind for name, kind, *_ in rows}
    if types.get("raw") != "VARCHAR":
        return "damaged: not a table of records"
    for name, kind in types.items():  # unknown columns are accepted: a later version may have more
        if name == "time" or COLUMNS.get(name, kind) != kind:
            return f"damaged: not a table of records (column {name!r})"
    return None


def why_not_exported(
    connection: duckdb.DuckDBPyConnection, path: Path, table: LakeTable
) -> str | None:
    """Why a file is not one of an export that this version can read, or None."""
    try:
        types = dict(described(connection, path))
        version = connection.execute(
            f"SELECT decode(value) FROM parquet_kv_metadata({files_in([path])})"
            " WHERE decode(key) = ?",
            [VERSION_KEY],
        ).fetchone()
    except duckdb_error() as error:
        return f"damaged: {first_line(error)}"
    if version is None:
        return "not written by `robots-guard audit export`"
    if version != (str(VERSION),):
        return f"exported by a newer robots_guard (version {version[0]}): update robots_guard"
    for name, kind in table.stored.items():
        if types.get(name, kind) != kind:
            return f"damaged: not a table of records (column {name!r})"
    return None


def described(connection: duckdb.DuckDBPyConnection, path: Path) -> list[tuple[str, str]]:
    """The columns of a Parquet file, and their types. Raises DuckDB's errors."""
    table = f"read_parquet({files_in([path])}, hive_partitioning = false)"
    rows = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    return [(name, kind) for name, kind, *_ in rows]


def can_read(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether DuckDB can read all of a file of lines, including lines that are not records."""
    try:
        for table, column in ((lines_in([path]), "raw"), (records_in([path]), '"at"')):
            connection.execute(f"SELECT count({column}) FROM {table}").fetchone()
    except duckdb_error():
        return False
    return True


#: The columns of a line, or NULL for one that is not JSON.
PARSED = parsed_line()


def count_tampered_rows(path: Path) -> int:
    """The number of rows of a compacted file whose columns differ from their lines. Raises OSError
    if it is gone."""
    table = f"read_parquet({files_in([path])})"
    with database() as connection, _converting_errors(path):
        present = {
            name for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
        }
        pairs = " OR ".join(
            f't."{name}" IS DISTINCT FROM entry."{name}"' for name in COLUMNS if name in present
        )
        try:
            return count_rows(
                connection,
                f"(SELECT t, {PARSED} AS entry FROM {table} AS t) WHERE {pairs or 'true'}",
            )
        except duckdb_error():  # columns of other types
            return count_rows(connection, table)


@contextmanager
def _converting_errors(path: Path) -> Iterator[None]:
    """Convert DuckDB's errors on a file to OSError, and to FileNotFoundError if the file is gone."""
    try:
        yield
    except duckdb_error() as error:
        first_bytes(path)
        raise OSError(errno.EIO, f"damaged: {first_line(error)}") from error


def count_rows(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    """The number of rows in a table or a selection of one."""
    (count,) = connection.execute(f"SELECT count(*) FROM {rows}").fetchone() or (0,)
    return int(count)


def lines_of(path: Path, order: str) -> Iterator[bytes]:
    """The lines of a compacted file, ordered by these columns. Raises OSError, also for damage, and
    MissingExtra."""
    return _lines(path, f"SELECT raw FROM read_parquet({files_in([path])}) ORDER BY {order}", [])


def lines_of_stem(path: Path, stem: str, after: int) -> Iterator[bytes]:
    """The lines of a compacted file that come from the source `stem`, in its order, with sequence
    numbers above `after`. Raises as `lines_of`.

    A start record has the number of the source that it begins; that source's records reach to the
    next start record.
    """
    writer, number = parts_of(stem)
    numbered = (
        "SELECT raw, seq, max(CASE kind WHEN 'start' THEN segment END) OVER (ORDER BY seq) AS number"
        f" FROM read_parquet({files_in([path])}) WHERE writer = ?"
    )
    sql = f"SELECT raw FROM ({numbered}) WHERE number = ? AND seq > ? ORDER BY seq"
    return _lines(path, sql, [writer, number, after])


def lines_of_writer(path: Path, writer: str, first: int, last: int) -> Iterator[bytes]:
    """The lines of a writer in a compacted file with the numbers from `first` to `last`, in order
    of their numbers. Raises as `lines_of`."""
    sql = (
        f"SELECT raw FROM read_parquet({files_in([path])})"
        " WHERE writer = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    )
    return _lines(path, sql, [writer, first, last])


def stems_in(path: Path) -> set[str]:
    """The stems of a compacted file's sources; none if it cannot be read. Raises MissingExtra."""
    if why_not_plain(path):
        return set()
    sql = f"SELECT DISTINCT writer, segment FROM read_parquet({files_in([path])}) WHERE kind = 'start'"
    with database() as connection, suppress(duckdb_error()):
        return {stem_of(day_of(path.name), *found) for found in connection.execute(sql).fetchall()}
    return set()


def _lines(path: Path, sql: str, values: list[str | int]) -> Iterator[bytes]:
    first_bytes(path)
    with _converting_errors(path), database() as connection:
        rows = connection.execute(sql, values)
        while page := rows.fetchmany(10_000):
            yield b"".join(raw.encode() + b"\n" for (raw,) in page)
