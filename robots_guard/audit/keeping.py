"""Keeping the files of a journal: closed ones are compressed, old ones go.

The law of this file: only files of ours, by their names, and only those that no writer holds. It may be killed at
any moment, and run in several processes at once. A disk that is full stops it, never a writer.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from robots_guard.audit.files import FILES
from robots_guard.audit.segments import JSONL, PART, ZSTD, day_of, is_unfinished, put_in_place, why_not_plain
from robots_guard.errors import MissingExtra

log = logging.getLogger("robots_guard")

LEVEL = 6
PIECE = 1024 * 1024
HOUR = 3600.0
SMALL = 16 * 1024 * 1024  # octets up to which a closed file of today stays as it is, for whoever looks with other tools


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long files are kept, and how much of them; 0 is for ever, and no bound."""

    days: int = 90
    octets: int = 0


def tidy(directory: Path, retention: Retention, now: float) -> None:
    """Compress what is closed, remove what is old. Never raises: the next one finds what this one left."""
    today = f"{datetime.fromtimestamp(now, UTC):%Y%m%d}"
    try:
        compress(directory, lambda path: day_of(path.name) < today or path.stat().st_size > SMALL)
    except MissingExtra:
        log.debug("closed files of the journal stay as they are: zstandard is not installed")
    except OSError as error:
        log.warning("a closed file of the journal could not be compressed: %s", error)
    try:
        clear(directory)
        retain(directory, retention, now)
    except OSError as error:
        log.warning("old files of the journal could not be removed: %s", error)


def compress(directory: Path, chosen: Callable[[Path], bool] = lambda path: True) -> int:  # noqa: ARG005  (any file)
    """Compress every file that is chosen and that its writer has closed; how many.

    Raises OSError, and MissingExtra for zstandard.
    """
    done = 0
    for path in _ours(directory):
        if path.name.endswith(JSONL) and why_not_plain(path) is None and chosen(path):
            with unheld(path) as descriptor:
                done += descriptor is not None and _compressed(path, descriptor)
    return done


def _compressed(path: Path, descriptor: int) -> bool:
    """False for a file without a record, which goes."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra("audit", "compressing the journal") from error
    if os.fstat(descriptor).st_size == 0:
        path.unlink()
        return False
    whole = path.with_name(path.name.removesuffix(JSONL) + ZSTD)
    part = whole.with_name(whole.name + PART)
    part.unlink(missing_ok=True)  # of one that was killed, or a link that somebody laid
    with open(descriptor, "rb", closefd=False) as plain, part.open("xb") as packed:
        os.fchmod(packed.fileno(), 0o640)
        zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).copy_stream(
            plain, packed, size=os.fstat(descriptor).st_size, read_size=PIECE, write_size=PIECE
        )
    put_in_place(part, whole)
    path.unlink()
    return True


@contextmanager
def unheld(path: Path) -> Iterator[int | None]:
    """A descriptor of a file that no writer holds, locked; None if one does, it is no plain file, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = os.fstat(descriptor)
        gone = there.st_nlink == 0 or not stat.S_ISREG(there.st_mode)
    except OSError:
        gone = True
    try:
        yield None if gone else descriptor
    finally:
        with suppress(OSError):  # for a child, too, that was forked and has the file open
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def clear(directory: Path) -> None:
    """Remove what killed processes left when they were beginning a file: not locked, and without a record of its own.

    Its age, on the file system's own clock, only saves a live writer from trying again: a writer that lost its file
    before it was locked sees that, and begins another.
    """
    latest = directory.stat().st_mtime
    for name in FILES.listdir(directory):
        path = directory / name
        if not is_unfinished(name) or latest - _modified(path) < HOUR:
            continue
        with unheld(path) as descriptor:
            if descriptor is not None and _is_void(os.fstat(descriptor)):
                path.unlink(missing_ok=True)


def _is_void(there: os.stat_result) -> bool:
    """Whether nothing is lost with this name: the file is empty, or has another name."""
    return there.st_size == 0 or there.st_nlink > 1


def _modified(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.lstat().st_mtime
    return math.inf


def retain(directory: Path, retention: Retention, now: float) -> list[Path]:
    """Remove files whose day is too long ago, then the oldest, until the rest is small enough; what is gone."""
    today = datetime.fromtimestamp(now, UTC)
    oldest = f"{today - timedelta(days=retention.days):%Y%m%d}" if retention.days else ""
    files = sorted(_ours(directory), key=lambda path: path.name)
    sizes = {path: _size(path) for path in files}
    held, gone = sum(sizes.values()), []
    for path in files:
        too_much = retention.octets and held > retention.octets
        if (day_of(path.name) < oldest or too_much) and _removed(path):
            gone.append(path)
            held -= sizes[path]
    return gone


def _removed(path: Path) -> bool:
    """Whether a file is gone now: one that is being written stays."""
    with unheld(path) as descriptor:
        if descriptor is None:
            return False
        path.unlink()
        return True


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _ours(directory: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(directory) if day_of(entry.name)]
