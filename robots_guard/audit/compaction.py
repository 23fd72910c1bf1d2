"""Compaction: closed files become one Parquet file per day, which can be queried fast.

Invariant: nothing is lost. Each line is kept as it was written in addition to its columns, so that
reading, verifying and exporting give the line itself. Compaction may be interrupted at any step
(see segments.py).
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from robots_guard.audit.read.parquet import (
    PARSED,
    can_read,
    count_rows,
    database,
    duckdb_error,
    first_bytes,
)
from robots_guard.audit.read.reader import Newer, Unreadable, copy_records, unpacked
from robots_guard.audit.record import SCHEMA
from robots_guard.audit.schema import COLUMNS, first_line, lines_in, literal, named
from robots_guard.audit.segments import (
    PARQUET,
    PART,
    SOURCES,
    ZSTD,
    Segment,
    is_gone,
    put_in_place,
    segments,
    why_not_plain,
)
from robots_guard.audit.write.maintenance import compacting, finish, try_lock
from robots_guard.errors import SettingsError

if TYPE_CHECKING:
    import duckdb


class Compacted(NamedTuple):
    """A new compacted file, the number of its source files and records, and of lines that were not
    records."""

    path: Path
    files: int
    records: int
    unreadable: int


def compact(directory: Path, before: str, trouble: Unreadable | None = None) -> list[Compacted]:
    """Compact the closed files that were begun before a day (YYYYMMDD).

    A file that cannot be read stays as it is, and is added to `trouble`. Raises MissingExtra, and
    SettingsError if another process is compacting.
    """
    with compacting(directory):
        return _compact(directory, before, Unreadable() if trouble is None else trouble)


def _compact(directory: Path, before: str, trouble: Unreadable) -> list[Compacted]:
    finish(directory)
    found = [
        segment
        for segment in segments(directory)
        if segment.form != PARQUET and "" < segment.day < before
    ]
    compacted = []
    for day, group in groupby(found, key=lambda segment: segment.day):
        with ExitStack() as locks:
            ready = [each for each in group if _is_ready(each, locks, trouble)]
            newer = _newer_records(ready)
            trouble.newer |= newer
            closed = [each for each in ready if each.path.name not in newer]
            if closed:
                compacted.append(_compact_day(directory, day, closed, trouble))
    return compacted


def _is_ready(segment: Segment, locks: ExitStack, trouble: Unreadable) -> bool:
    """Whether no writer has the file open, and all of it can be read. One just compressed is left
    for the next run."""
    path = segment.path
    is_free = why_not_plain(path) is None and locks.enter_context(try_lock(path)) is not None
    if is_gone(segment):
        return False
    why = why_not_plain(path) or _why_not_whole(segment)
    if why is not None:
        trouble.files[path.name] = why
    return is_free and why is None


def _why_not_whole(segment: Segment) -> str | None:
    try:
        first_bytes(segment.path)
        if segment.form == ZSTD:
            for _ in unpacked(segment.path):
                pass
    except OSError as error:
        return error.strerror or str(error)
    return None


def _newer_records(ready: list[Segment]) -> dict[str, Newer]:
    """The records of a later version, by file: such a file stays as it is, because their fields are
    not known."""
    if not ready:
        return {}
    lines = lines_in([segment.path for segment in ready], names=True)
    schema = "TRY_CAST(regexp_extract(raw, '\"schema\":([0-9]+)', 1) AS BIGINT)"
    with database() as connection, suppress(duckdb_error()):
        rows = connection.execute(
            f"SELECT filename, count(*), max({schema}) FROM {lines} WHERE starts_with(raw, '{{\"kind\"')"
            f" AND ends_with(raw, '}}') AND {schema} > {SCHEMA} GROUP BY 1 ORDER BY 1"
        )
        return {Path(name).name: Newer(*found) for name, *found in rows.fetchall()}
    return {}


def _compact_day(
    directory: Path, day: str, closed: list[Segment], trouble: Unreadable
) -> Compacted:
    whole = _free_name(directory, day)
    part, sources = whole.with_name(whole.name + PART), whole.with_suffix(SOURCES)
    with database() as connection, TemporaryDirectory(prefix="robots-guard-") as spill:
        connection.execute(f"SET temp_directory = {literal(named(Path(spill)))}")
        try:
            records, lines = _copy_records(connection, [segment.path for segment in closed], part)
        except duckdb_error():
            files = [
                _readable_copy(connection, segment, Path(spill), trouble) for segment in closed
            ]
            records, lines = _copy_or_explain(connection, files, part)
    listing = sources.with_name(sources.name + PART)
    listing.write_text("\n".join(segment.stem for segment in closed))
    put_in_place(listing, sources)
    part.chmod(0o640)
    put_in_place(part, whole)
    finish(directory)
    return Compacted(whole, len(closed), records, lines - records)


def _readable_copy(
    connection: duckdb.DuckDBPyConnection, segment: Segment, directory: Path, trouble: Unreadable
) -> Path:
    """The file itself if DuckDB can read it, otherwise a copy of its records."""
    if can_read(connection, segment.path):
        return segment.path
    return copy_records(segment, directory, trouble)


def _copy_or_explain(
    connection: duckdb.DuckDBPyConnection, files: list[Path], part: Path
) -> tuple[int, int]:
    """Do the same as `_copy_records`. Raises SettingsError."""
    try:
        return _copy_records(connection, files, part)
    except duckdb_error() as error:
        raise SettingsError(
            f"the audit log cannot be compacted ({first_line(error)}): move the files away that audit verify"
            " calls damaged"
        ) from error


def _copy_records(
    connection: duckdb.DuckDBPyConnection, files: list[Path], part: Path
) -> tuple[int, int]:
    """Copy the records of files into a Parquet file; return the number of records, and of lines."""
    names = ", ".join(f'entry."{name}" AS "{name}"' for name in COLUMNS)
    lines = f"(SELECT raw, {PARSED} AS entry FROM {lines_in(files)} WHERE raw <> '')"
    target = literal(named(part))
    connection.execute(
        f'COPY (SELECT {names}, raw FROM {lines} WHERE entry.schema = 1 AND entry."at" IS NOT NULL'
        f' ORDER BY entry."at", entry.writer, entry.seq)'
        f" TO {target} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000)"
    )
    written = count_rows(connection, f"read_parquet({target})")
    return written, count_rows(connection, f"{lines_in(files)} WHERE raw <> ''")


def _free_name(directory: Path, day: str) -> Path:
    """The first name for a compacted file of the day that is not taken."""
    return next(
        path for number in count(1) if not (path := directory / f"{day}.{number}{PARQUET}").exists()
    )
