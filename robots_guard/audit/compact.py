"""Compacting: closed files become one Parquet file a day, which questions are answered from fast.

The law of this file: nothing is lost on the way. Each line is kept as it was written, beside its columns, so that
what is read back, verified or handed on is the line itself. The steps can be cut off anywhere (segments.py).
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from robots_guard.audit.keeping import compacting, finish, unheld
from robots_guard.audit.query import Reader, Trouble, unpacked
from robots_guard.audit.schema import COLUMNS, files_in, first_line, lines_in, literal, named, records_in, structure
from robots_guard.audit.segments import (
    JSONL,
    PARQUET,
    PART,
    SOURCES,
    ZSTD,
    Segment,
    day_of,
    is_gone,
    parts_of,
    put_in_place,
    segments,
    stem_of,
    why_not_plain,
)
from robots_guard.errors import MissingExtra, SettingsError

if TYPE_CHECKING:
    import duckdb

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Compacted(NamedTuple):
    """A new file, what it took in, and how many of those lines were no records."""

    path: Path
    files: int
    records: int
    unreadable: int


def database() -> duckdb.DuckDBPyConnection:
    """A DuckDB of our own, in memory. Raises MissingExtra."""
    connection: duckdb.DuckDBPyConnection = _duckdb().connect()
    connection.execute("SET python_enable_replacements = false")  # no variable of ours is a table
    return connection


def duckdb_error() -> type[Exception]:
    """What DuckDB raises. Raises MissingExtra."""
    error: type[Exception] = _duckdb().Error
    return error


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("audit", "asking the journal") from error
    return duckdb


def why_not_readable(connection: duckdb.DuckDBPyConnection, segment: Segment) -> str | None:
    """Why a file would make every question fail, or None. Looks at its name, its first and last octets only."""
    try:
        named(segment.path)
        first = first_octets(segment.path)
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeDecodeError:
        return "its name is no text"
    if segment.form == PARQUET:
        return _why_no_table(connection, segment.path)
    if segment.form == ZSTD and first not in (ZSTD_MAGIC, b""):
        return "damaged: not compressed by zstd"
    return None


def first_octets(path: Path) -> bytes:
    """Of a file that may be read: where it may not, DuckDB does not tell that from damage. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(ZSTD_MAGIC))


def _why_no_table(connection: duckdb.DuckDBPyConnection, path: Path) -> str | None:
    try:
        rows = connection.execute(f"DESCRIBE SELECT * FROM read_parquet({files_in([path])})").fetchall()
    except duckdb_error() as error:
        return f"damaged: {first_line(error)}"
    types = {name: kind for name, kind, *_ in rows}  # a later version may have more columns
    if types.get("raw") != "VARCHAR":
        return "damaged: no table of records"
    strange = [name for name, kind in types.items() if name == "time" or COLUMNS.get(name, kind) != kind]
    return f"damaged: no table of records (column {strange[0]!r})" if strange else None


def is_legible(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether DuckDB can read all lines of a file, and what lies between them."""
    try:
        for table, column in ((lines_in([path]), "raw"), (records_in([path]), '"at"')):
            connection.execute(f"SELECT count({column}) FROM {table}").fetchone()
    except duckdb_error():
        return False
    return True


def copied_out(segment: Segment, place: Path, trouble: Trouble, apart: Collection[str] = ()) -> Path:
    """A copy of a file, of its records only, as they were written: DuckDB can read that whatever else the file holds.

    Raises OSError."""
    copy = place / f"{segment.stem}{JSONL}"
    with copy.open("wb") as file:
        file.writelines(line + b"\n" for line, _ in Reader(segment, trouble, apart=apart).lines(last=True))
    return copy


def compact(directory: Path, before: str, trouble: Trouble | None = None) -> list[Compacted]:
    """Compact what was closed and begun before a day (YYYYMMDD). What cannot be read stays where it is, and is named
    in `trouble`. Raises MissingExtra."""
    with compacting(directory):
        return _compact(directory, before, Trouble() if trouble is None else trouble)


def _compact(directory: Path, before: str, trouble: Trouble) -> list[Compacted]:
    finish(directory)
    found = [segment for segment in segments(directory) if segment.form != PARQUET and "" < segment.day < before]
    made = []
    for day, group in groupby(found, key=lambda segment: segment.day):
        with ExitStack() as held:
            closed = [each for each in group if _is_closed(each, held, trouble)]
            if closed:
                made.append(_compacted(directory, day, closed, trouble))
    return made


def _is_closed(segment: Segment, held: ExitStack, trouble: Trouble) -> bool:
    """Whether no writer has it any more, and all of it can be read. One that was compressed meanwhile waits."""
    path = segment.path
    is_free = why_not_plain(path) is None and held.enter_context(unheld(path)) is not None
    if is_gone(segment):
        return False
    why = why_not_plain(path) or _why_not_whole(segment)
    if why is not None:
        trouble.files[path.name] = why
    return is_free and why is None


def _why_not_whole(segment: Segment) -> str | None:
    try:
        first_octets(segment.path)
        for _ in unpacked(segment.path) if segment.form == ZSTD else ():
            pass
    except OSError as error:
        return error.strerror or str(error)
    return None


def _compacted(directory: Path, day: str, closed: list[Segment], trouble: Trouble) -> Compacted:
    whole = _free(directory, day)
    part, sources = whole.with_name(whole.name + PART), whole.with_suffix(SOURCES)
    with database() as connection, TemporaryDirectory(prefix="robots-guard-") as spill:
        connection.execute(f"SET temp_directory = {literal(named(Path(spill)))}")
        try:
            records, lines = _copied(connection, [segment.path for segment in closed], part)
        except duckdb_error():
            files = [_legible(connection, segment, Path(spill), trouble) for segment in closed]
            records, lines = _copy(connection, files, part)
    listing = sources.with_name(sources.name + PART)
    listing.write_text("\n".join(segment.stem for segment in closed))
    put_in_place(listing, sources)
    part.chmod(0o640)
    put_in_place(part, whole)
    finish(directory)
    return Compacted(whole, len(closed), records, lines - records)


def _legible(connection: duckdb.DuckDBPyConnection, segment: Segment, place: Path, trouble: Trouble) -> Path:
    return segment.path if is_legible(connection, segment.path) else copied_out(segment, place, trouble)


def _copy(connection: duckdb.DuckDBPyConnection, files: list[Path], part: Path) -> tuple[int, int]:
    """Records copied, and lines there were."""
    try:
        return _copied(connection, files, part)
    except duckdb_error() as error:
        raise SettingsError(
            f"the journal cannot be compacted ({first_line(error)}): move away what audit verify calls damaged"
        ) from error


def _copied(connection: duckdb.DuckDBPyConnection, files: list[Path], part: Path) -> tuple[int, int]:
    names = ", ".join(f'entry."{name}" AS "{name}"' for name in COLUMNS)
    lines = f"(SELECT raw, {_PARSED} AS entry FROM {lines_in(files)} WHERE raw <> '')"
    target = literal(named(part))
    connection.execute(
        f'COPY (SELECT {names}, raw FROM {lines} WHERE entry.schema = 1 AND entry."at" IS NOT NULL'
        f' ORDER BY entry."at", entry.writer, entry.seq)'
        f" TO {target} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000)"
    )
    return _count(connection, f"read_parquet({target})"), _count(connection, f"{lines_in(files)} WHERE raw <> ''")


_PARSED = f"CASE WHEN json_valid(raw) THEN from_json(raw, {literal(structure())}) END"


def lies_in(path: Path) -> int:
    """How many rows of a compacted file do not have in their columns what their lines say. Raises OSError if it is
    gone."""
    table = f"read_parquet({files_in([path])})"
    with database() as connection, _telling_of(path):
        there = {name for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()}
        pairs = " OR ".join(f't."{name}" IS DISTINCT FROM entry."{name}"' for name in COLUMNS if name in there)
        try:
            return _count(connection, f"(SELECT t, {_PARSED} AS entry FROM {table} AS t) WHERE {pairs or 'true'}")
        except duckdb_error():  # columns of other types
            return _count(connection, table)


@contextmanager
def _telling_of(path: Path) -> Iterator[None]:
    """What DuckDB raises of a file, as an OSError. Raises FileNotFoundError where it is gone."""
    try:
        yield
    except duckdb_error() as error:
        first_octets(path)
        raise OSError(errno.EIO, f"damaged: {first_line(error)}") from error


def _count(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM {rows}").fetchone() or (0,)
    return int(count)


def _free(directory: Path, day: str) -> Path:
    """The first name of the day that is not taken."""
    return next(path for number in count(1) if not (path := directory / f"{day}.{number}{PARQUET}").exists())


def lines_of(path: Path, order: str) -> Iterator[bytes]:
    """The lines of a compacted file, by these columns. Raises OSError, also for damage, and MissingExtra."""
    return _lines(path, f"SELECT raw FROM read_parquet({files_in([path])}) ORDER BY {order}", [])


def lines_of_stem(path: Path, stem: str, after: int) -> Iterator[bytes]:
    """The lines of a compacted file that it took from this one, behind the record of that number, as they stood
    there. Raises as above.

    A writer's file begins with a start record, which has its number, and goes on to the next.
    """
    writer, number = parts_of(stem)
    numbered = (
        "SELECT raw, seq, max(CASE kind WHEN 'start' THEN segment END) OVER (ORDER BY seq) AS number"
        f" FROM read_parquet({files_in([path])}) WHERE writer = ?"
    )
    sql = f"SELECT raw FROM ({numbered}) WHERE number = ? AND seq > ? ORDER BY seq"
    return _lines(path, sql, [writer, number, after])


def stems_in(path: Path) -> set[str]:
    """The files that a compacted one holds; none for one that cannot be read. Raises MissingExtra."""
    sql = f"SELECT DISTINCT writer, segment FROM read_parquet({files_in([path])}) WHERE kind = 'start'"
    with database() as connection, suppress(duckdb_error()):
        return {stem_of(day_of(path.name), *found) for found in connection.execute(sql).fetchall()}
    return set()


def _lines(path: Path, sql: str, values: list[str | int]) -> Iterator[bytes]:
    first_octets(path)
    with _telling_of(path), database() as connection:
        rows = connection.execute(sql, values)
        while some := rows.fetchmany(10_000):
            yield b"".join(raw.encode() + b"\n" for (raw,) in some)
