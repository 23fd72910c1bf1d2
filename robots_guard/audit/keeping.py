"""Keeping the files of a journal: closed ones are compressed, old ones go.

The law of this file: only files of ours, by their names, and only those that no writer holds. It may be killed at
any moment, and run in several processes at once. A disk that is full stops it, never a writer. How old a file is
says audit/retention.py, whose account lies in the directory and is changed by one process at a time.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from robots_guard.audit.files import FILES, FULL
from robots_guard.audit.retention import Account, Look, Retention, aged
from robots_guard.audit.segments import (
    JSONL,
    PARQUET,
    PART,
    SOURCES,
    WARC,
    ZSTD,
    beside,
    day_of,
    exchanges,
    is_kept,
    is_unfinished,
    names_in,
    put_in_place,
    read_plain,
    why_not_plain,
)
from robots_guard.errors import MissingExtra, SettingsError

log = logging.getLogger("robots_guard")

LEVEL = 6
PIECE = 1024 * 1024
HOUR = 3600.0
SMALL = 16 * 1024 * 1024  # octets up to which a closed file of today stays as it is, for whoever looks with other tools


ACCOUNT = ".retention"
COMPACTING = ".compacting"  # the lock of the process that compacts
_OF_COMPACTION = (SOURCES, SOURCES + PART, PARQUET + PART)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def look(now: float) -> Look:
    """A look at this moment. A clock that does not count while the machine sleeps makes files younger, never older."""
    boot = ""
    with suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
    return Look(boot=boot, up=uptime(), wall=now)


def uptime() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def tidy(directory: Path, retention: Retention, now: Look) -> None:
    """Compress what is closed, remove what is old. Never raises: the next one finds what this one left."""
    try:
        today = f"{datetime.fromtimestamp(now.wall, UTC):%Y%m%d}"
        compress(directory, lambda path: day_of(path.name) < today or path.stat().st_size > SMALL)
    except MissingExtra:
        log.debug("closed files of the journal stay as they are: zstandard is not installed")
    except (OSError, ValueError, OverflowError) as error:  # a clock beyond the calendar, too
        log.warning("a closed file of the journal could not be compressed: %s", error)
    for work in (lambda: clear(directory), lambda: retain(directory, retention, now)):
        try:
            work()
        except (OSError, SettingsError) as error:
            log.warning("old files of the journal could not be removed: %s", error)


def compress(directory: Path, chosen: Callable[[Path], bool] = lambda path: True) -> int:  # noqa: ARG005  (any file)
    """Compress every file that is chosen and that its writer has closed; how many. One that cannot be is warned of.

    Raises OSError for a full disk and for the directory, and MissingExtra for zstandard.
    """
    done = 0
    for path in _ours(directory):
        try:
            if path.name.endswith(JSONL) and why_not_plain(path) is None and chosen(path):
                with unheld(path) as descriptor:
                    done += descriptor is not None and _compressed(path, descriptor)
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            if error.errno in FULL:
                raise
            log.warning("%s could not be compressed: %s", path.name, error)
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
    """Remove what killed processes left when they were beginning, compressing or compacting files. Raises OSError."""
    names = FILES.listdir(directory)
    _clear_begun(directory, names)
    _clear_packed(directory, names)
    if any(day_of(name) and name.endswith(_OF_COMPACTION) for name in names):
        with suppress(SettingsError), compacting(directory):  # the process that compacts removes them itself
            finish(directory)


def _clear_begun(directory: Path, names: list[str]) -> None:
    """Remove begun files that are not locked, and have no record of their own.

    Their age, on the file system's own clock, only saves a live writer from trying again: a writer that lost its file
    before it was locked sees that, and begins another.
    """
    latest = directory.stat().st_mtime
    for name in names:
        path = directory / name
        if not is_unfinished(name) or latest - _modified(path) < HOUR:
            continue
        with unheld(path) as descriptor:
            if descriptor is not None and _is_void(os.fstat(descriptor)):
                path.unlink(missing_ok=True)


def _clear_packed(directory: Path, names: list[str]) -> None:
    """Remove half-compressed files whose originals have gone; as long as there is one, it is compressed again."""
    for name in names:
        if day_of(name) and name.endswith(ZSTD + PART) and not os.path.lexists(directory / _packed_from(name)):
            (directory / name).unlink(missing_ok=True)


def _packed_from(name: str) -> str:
    return name.removesuffix(ZSTD + PART) + JSONL


@contextmanager
def compacting(directory: Path) -> Iterator[None]:
    """Only one process compacts at a time. Raises SettingsError."""
    lock = -1
    try:  # never through a symlink, never waiting for a pipe
        lock = os.open(
            directory / COMPACTING, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640
        )
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise SettingsError(f"somebody is compacting {str(directory)!r} already: wait until it is done") from error
    except OSError as error:
        if lock >= 0:
            os.close(lock)
        raise SettingsError(
            f"{str(directory / COMPACTING)!r} cannot be used as a lock ({error.strerror}): mend it, or remove it"
        ) from error
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
        os.close(lock)


def finish(directory: Path) -> None:
    """Remove what a compacted file has taken in, and the listing of it, also after being cut off. Only the process
    that compacts may do so. Raises OSError."""
    names = FILES.listdir(directory)
    for _, stems in exchanges(directory, set(names)):
        for stem in stems:
            for form in (JSONL, ZSTD):
                (directory / f"{Path(stem).name}{form}").unlink(missing_ok=True)
    for name in names:
        path = directory / name
        if day_of(name) and name.endswith(_OF_COMPACTION) and not path.is_dir():
            path.unlink(missing_ok=True)


def _is_void(there: os.stat_result) -> bool:
    """Whether nothing is lost with this name: the file is empty, or has another name."""
    return there.st_size == 0 or there.st_nlink > 1


def _modified(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.lstat().st_mtime
    return math.inf


def retain(directory: Path, retention: Retention, now: Look) -> list[Path]:
    """Remove files that are old enough, then the oldest, until the rest is small enough; what is gone.

    Nothing is removed while another process is at it, or where the file system has no locks. Raises OSError, and
    SettingsError if the directory cannot be read.
    """
    with _alone(directory) as is_alone:
        return _retained(directory, retention, now) if is_alone else []


@contextmanager
def _alone(directory: Path) -> Iterator[bool]:
    """Whether no other process keeps house. Raises OSError if there is no such directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
    finally:
        os.close(descriptor)


def _retained(directory: Path, retention: Retention, now: Look) -> list[Path]:
    names = [name for name in names_in(directory) if is_kept(name)]
    before = _account(directory)
    ageing = aged(before, now, names, retention)
    settled = set(names) - _in_exchange(directory)
    files = [directory / name for name in sorted(settled, key=lambda name: (-ageing.age_of(name), name))]
    sizes = {path: _size(path) for path in files}
    held, gone = sum(sizes.values()), []
    for path in files:
        is_due = bool(retention.days) and ageing.age_of(path.name) >= retention.seconds
        too_much = bool(retention.octets) and held > retention.octets
        if (is_due or too_much) and _removed(path):
            gone.append(path)
            held -= sizes[path]
    if ageing.account != before:
        _save(directory, ageing.account)
    return gone


def _in_exchange(directory: Path) -> set[str]:
    """The files of compactions that are not finished: the compacted one, and what it has taken in. Their records are
    there twice until `finish` has removed the latter. Without the former, it would remove the only copy."""
    found = set()
    for compacted, stems in exchanges(directory, set(names_in(directory))):
        found.update([compacted, *(stem + form for stem in stems for form in (JSONL, ZSTD))])
    return found


def _account(directory: Path) -> Account | None:
    """What earlier looks have left; None if there is nothing, or nothing that can be read: all ages begin anew."""
    try:
        return msgspec.json.decode(read_plain(directory / ACCOUNT), type=Account)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("%s cannot be read (%s): the ages of the journal's files are counted anew", ACCOUNT, error)
        return None


def _save(directory: Path, account: Account) -> None:
    whole = directory / ACCOUNT
    part = whole.with_name(ACCOUNT + PART)
    part.unlink(missing_ok=True)  # of one that was killed, or a link that somebody laid
    with part.open("xb") as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(msgspec.json.encode(account))
    put_in_place(part, whole)


def _removed(path: Path) -> bool:
    """Whether a file is gone now: one that is being written stays, and so does the evidence beside it."""
    with unheld(path) as descriptor:
        if descriptor is None or (path.name.endswith(WARC) and _is_evidence_of_written(path)):
            return False
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", path.name, error)
            return False
        return True


def _is_evidence_of_written(path: Path) -> bool:
    return any(_is_written(path.with_name(stem + JSONL)) for stem in beside(path.name))


def _is_written(path: Path) -> bool:
    with unheld(path) as descriptor:
        return descriptor is None and path.exists()


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _ours(directory: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(directory) if day_of(entry.name)]
