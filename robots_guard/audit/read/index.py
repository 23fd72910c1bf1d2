"""The index: the records of finished files, copied into columns, so that a line is parsed once and
not by each query.

    .index/DAY.DIGEST.parquet    the records of the finished files of a day

Invariant: the index is a cache, and says what the files say. The digest is that of the names, sizes,
inodes and times of the files: the copy of files of which one was changed, replaced or removed is
not found. Only files that no writer has open are copied. Without the index, or where none can be
written, the files themselves are read. Only its owner can read it: the files may be readable to
fewer than the directory. So only the owner's own files are copied: retention runs as their owner,
and removes the copies with them. Nothing that verifies the log or states that a selection is
complete reads it. It never takes the space that a writer needs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from robots_guard.audit.files import remove
from robots_guard.audit.schema import (
    COLUMNS,
    NOT_READABLE,
    TIME,
    database,
    duckdb_error,
    files_in,
    literal,
    named,
    records_in,
)
from robots_guard.audit.segments import (
    PART,
    ZSTD,
    Segment,
    put_in_place,
    why_not_plain,
)
from robots_guard.audit.write.maintenance import try_lock

#: Bytes of lines of a day from which on they are copied: to open a file of lines takes DuckDB 3 ms.
WORTHWHILE = 16 * 1024
COMPRESSION = 10  # about, of compressed lines
PARQUET = ".parquet"
ABANDONED = 3600.0  # seconds after which an unfinished copy counts as left by a killed process
#: Whether a row is a record: a column of the copy.
READABLE = "readable"
_COPIED = {**COLUMNS, "filename": "VARCHAR", "time": "TIMESTAMP", READABLE: "BOOLEAN"}


class DayCopy(NamedTuple):
    """A copy, and the files whose records it has."""

    path: Path
    files: list[Segment]


class Indexed(NamedTuple):
    """What a query reads: copies, and the files without one, both in the order of their days."""

    copies: list[DayCopy]
    rest: list[Segment]


class _Identity(NamedTuple):
    """What changes if a file is written to or replaced."""

    name: str
    owner: int
    size: int
    inode: int
    modified: int  # nanoseconds
    changed: int  # nanoseconds; of the inode, which a program cannot set


def indexed(
    directory: Path,
    folder: Path,
    files: Sequence[Segment],
    days: Collection[str],
    is_wanted: Callable[[Segment], bool],
    *,
    makes: bool,
) -> Indexed:
    """Find the copies of the days of files that are wanted in the folder; with `makes`, make those
    that are missing. `days` are the days of all files in the directory.

    A copy has the records of all finished files of its day, wanted or not.
    """
    found = Indexed([], [])
    by_day = sorted(files, key=lambda segment: segment.day)
    for day, group in groupby(by_day, key=lambda segment: segment.day):
        of_day = [*group]
        wanted = [*filter(is_wanted, of_day)]
        if not wanted:
            continue
        finished = _finished(of_day, directory)
        copy = _copy_of(folder, day, finished, makes=makes) if day else None
        if copy is None:
            found.rest.extend(wanted)
        else:
            found.copies.append(DayCopy(copy, finished))
            copied = set(finished)
            found.rest.extend(segment for segment in wanted if segment not in copied)
    with suppress(OSError):
        _remove_others(folder, [copy.path for copy in found.copies], days)
    return found


def _remove_others(folder: Path, copies: list[Path], days: Collection[str]) -> None:
    """Remove the copies of earlier states of these days, those of days whose files are gone, and what
    killed processes left. Raises OSError."""
    if not folder.exists() or not _is_usable(folder):
        return
    current = {_day_of(copy) for copy in copies}
    latest = folder.stat().st_mtime
    for other in set(folder.iterdir()).difference(copies):
        is_outdated = _day_of(other) in current or _day_of(other) not in days
        if other.name.endswith(PART):  # another process may be writing it
            is_outdated = latest - other.lstat().st_mtime > ABANDONED
        if is_outdated:
            remove(other)


def _day_of(copy: Path) -> str:
    return copy.name.partition(".")[0]


def remove_damaged(copies: Sequence[Path]) -> bool:
    """Remove the copies that cannot be read, or that are none; return whether there was one."""
    damaged = [copy for copy in copies if not _can_read(copy)]
    for copy in damaged:
        remove(copy)
    return bool(damaged)


def _can_read(copy: Path) -> bool:
    table = f"read_parquet({files_in([copy])})"
    with database() as connection, suppress(duckdb_error()):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
        connection.execute(f"SELECT count(COLUMNS(*)) FROM {table}").fetchall()
        types = {name: kind for name, kind, *_ in rows}
        return types == _COPIED
    return False


def _is_usable(folder: Path) -> bool:
    """Whether this user alone can write to the folder of copies. It is created if it is missing.
    Raises OSError."""
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    state = folder.lstat()
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
    return is_own and not state.st_mode & 0o077


def _finished(group: list[Segment], directory: Path) -> list[Segment]:
    """The files of a day that no writer has open."""
    finished: list[Segment] = []
    for segment in group:
        with try_lock(segment.path) as descriptor:
            if descriptor is not None and segment.path.parent == directory:
                finished.append(segment)
    return finished


def _copy_of(folder: Path, day: str, files: list[Segment], *, makes: bool) -> Path | None:
    """The copy of the finished files of a day; with `makes`, it is made if it is missing. None if
    there is none."""
    try:
        identities = [_identity(segment.path) for segment in files]
        weight = sum(map(_weight, files, identities))
        if weight < WORTHWHILE or not _are_own(identities):
            return None
        if not (makes or folder.exists()) or not _is_usable(folder):
            return None
        copy = folder / f"{day}.{_digest(identities)}{PARQUET}"
        if why_not_plain(copy) is None:
            return copy
        if not makes or shutil.disk_usage(folder).free < weight:  # a copy takes far less
            return None
        _make(copy, files)
        if identities == [_identity(segment.path) for segment in files]:
            return copy
        remove(copy)  # one was replaced meanwhile
    except (OSError, UnicodeError, duckdb_error()):
        pass  # the files themselves are read, and say what is wrong with them
    return None


def _identity(path: Path) -> _Identity:
    state = path.lstat()
    times = state.st_mtime_ns, state.st_ctime_ns
    return _Identity(path.name, state.st_uid, state.st_size, state.st_ino, *times)


def _are_own(identities: list[_Identity]) -> bool:
    """Whether files belong to this user."""
    return all(identity.owner == os.geteuid() for identity in identities)


def _weight(segment: Segment, identity: _Identity) -> int:
    """The size of a file's lines, about."""
    return identity.size * (COMPRESSION if segment.form == ZSTD else 1)


def _digest(identities: list[_Identity]) -> str:
    """The digest of files, and of the columns: another version of this package may have others."""
    described = msgspec.json.encode((identities, [*_COPIED.items()]))
    return hashlib.sha256(described).hexdigest()


def _make(copy: Path, files: list[Segment]) -> None:
    """Copy the rows of files, each in its order, so that a query for a period need not read the
    others. Raises OSError and DuckDB's errors."""
    part = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}{PART}")
    table = records_in(segment.path for segment in files)
    rows = f"SELECT *, {TIME}, NOT ({NOT_READABLE}) AS {READABLE} FROM {table}"
    try:
        with database() as connection:
            # Several take three times the memory and half as much CPU time again.
            connection.execute("SET threads = 1")
            connection.execute(
                f"COPY ({rows}) TO {literal(named(part))}"
                " (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 50000)"
            )
        part.chmod(0o600)
        put_in_place(part, copy)
    finally:
        remove(part)
