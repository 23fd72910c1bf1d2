"""Maintenance of the audit log's files: closed files are compressed, and old ones removed unless a
legal hold covers them. Holds are added and released here, each on record in the audit log.

Invariant: it changes only files whose names are the audit log's and that no writer has locked. It
may be killed at any moment, and may run in several processes at once. A full disk stops
maintenance, but never a writer. audit/write/retention.py determines the age of a file; its account
is a file in the directory, which one process at a time may change.

Invariant: a hold is in force before it is recorded, and its release is recorded before it takes
effect. Maintenance cannot run in between, because the directory is locked.
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
from robots_guard.audit.holds import Hold, read_holds, write_holds
from robots_guard.audit.segments import (
    INDEX,
    JSONL,
    PART,
    WARC,
    ZSTD,
    day_of,
    index_of_day,
    is_kept,
    is_unfinished,
    log_stems_of,
    names_in,
    put_in_place,
    read_plain,
    why_not_plain,
)
from robots_guard.audit.write.retention import Account, Inspection, Retention, determine_ages
from robots_guard.decisions.events import Event, HoldChanged
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.invocation import invocation_for

log = logging.getLogger("robots_guard")

LEVEL = 6  # of zstd compression
PIECE = 1024 * 1024  # bytes
HOUR = 3600.0  # seconds
MIB = 1024 * 1024  # bytes
SMALL = 16 * 1024 * 1024  # bytes; smaller closed files of today stay uncompressed, for grep and jq

ACCOUNT = ".retention"
#: Called with the name of each file before it is removed; it stays if the result is false.
Announce = Callable[[str], bool]
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def inspect(now: float) -> Inspection:
    """An inspection at the wall-clock time `now`.

    Where the uptime clock stops while the machine sleeps, files appear younger than they are, never
    older.
    """
    boot = ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text("ascii").strip()
    return Inspection(boot=boot, up=uptime(), wall=now)


def uptime() -> float:
    """Seconds since the machine was booted."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _announce_nothing(_: str) -> bool:
    return True


def tidy(
    directory: Path,
    retention: Retention,
    now: Inspection,
    announce: Announce = _announce_nothing,
) -> None:
    """Compress closed files and remove old ones. Never raises: the next run finds what this one
    left."""
    try:
        today = f"{datetime.fromtimestamp(now.wall, UTC):%Y%m%d}"
        compress(directory, lambda path: day_of(path.name) < today or path.stat().st_size > SMALL)
    except MissingExtra:
        log.debug("closed files of the audit log are not compressed: zstandard is not installed")
    except (OSError, ValueError, OverflowError) as error:
        # The latter two if the clock is beyond the calendar.
        log.warning("a closed file of the audit log could not be compressed: %s", error)
    for work in (lambda: clear(directory), lambda: retain(directory, retention, now, announce)):
        try:
            work()
        except (OSError, SettingsError) as error:
            log.warning("old files of the audit log could not be removed: %s", error)


def compress(directory: Path, chosen: Callable[[Path], bool] = lambda path: True) -> int:  # noqa: ARG005  (any file)
    """Compress all chosen files that their writers have closed, and return their number.

    Warns of a file that cannot be compressed. Raises OSError if the disk is full or the directory
    cannot be read, and MissingExtra without zstandard.
    """
    done = 0
    for path in _files_in(directory):
        try:
            if path.name.endswith(JSONL) and why_not_plain(path) is None and chosen(path):
                with try_lock(path) as descriptor:
                    done += descriptor is not None and _compress(path, descriptor)
        except FileNotFoundError:  # another process compressed or removed it
            continue
        except OSError as error:
            if error.errno in FULL:
                raise
            log.warning("%s could not be compressed: %s", path.name, error)
    return done


def _compress(path: Path, descriptor: int) -> bool:
    """Compress a file. Return False for an empty one, which is removed."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra("audit", "compressing the audit log") from error
    if os.fstat(descriptor).st_size == 0:
        path.unlink()
        return False
    whole = path.with_name(path.name.removesuffix(JSONL) + ZSTD)
    part = whole.with_name(whole.name + PART)
    part.unlink(missing_ok=True)  # left by a killed process, or a symlink that another user planted
    with open(descriptor, "rb", closefd=False) as plain, part.open("xb") as packed:
        os.fchmod(packed.fileno(), 0o640)
        zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).copy_stream(
            plain, packed, size=os.fstat(descriptor).st_size, read_size=PIECE, write_size=PIECE
        )
    put_in_place(part, whole)
    path.unlink()
    return True


@contextmanager
def try_lock(path: Path) -> Iterator[int | None]:
    """A locked descriptor of a file that no writer has locked; None if one has, or if it is not a
    regular file or does not exist any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state = os.fstat(descriptor)
        is_usable = state.st_nlink > 0 and stat.S_ISREG(state.st_mode)
    except OSError:
        is_usable = False
    try:
        yield descriptor if is_usable else None
    finally:
        with suppress(OSError):  # explicitly, because a forked child may still have the file open
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def clear(directory: Path) -> None:
    """Remove the temporary files of processes that were killed while creating or compressing a
    file. Raises OSError."""
    names = FILES.listdir(directory)
    _clear_unfinished(directory, names)
    _clear_half_compressed(directory, names)


def _clear_unfinished(directory: Path, names: list[str]) -> None:
    """Remove new files that are not locked and have no record that is not also in another file.

    Only files an hour old by the file system's clock are removed. This is not needed for safety,
    because a writer notices the removal of a file that it has not locked yet; it only saves the
    writer from creating another.
    """
    latest = directory.stat().st_mtime
    for name in names:
        path = directory / name
        if not is_unfinished(name) or latest - _modified(path) < HOUR:
            continue
        with try_lock(path) as descriptor:
            if descriptor is not None and _is_redundant(os.fstat(descriptor)):
                path.unlink(missing_ok=True)


def _clear_half_compressed(directory: Path, names: list[str]) -> None:
    """Remove half-compressed files whose originals are gone. While the original exists, it is
    compressed again."""
    for name in names:
        original = directory / (name.removesuffix(ZSTD + PART) + JSONL)
        if day_of(name) and name.endswith(ZSTD + PART) and not os.path.lexists(original):
            (directory / name).unlink(missing_ok=True)


def _is_redundant(state: os.stat_result) -> bool:
    """Whether removing this name loses nothing: the file is empty, or has another name."""
    return state.st_size == 0 or state.st_nlink > 1


def _modified(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.lstat().st_mtime
    return math.inf


def retain(
    directory: Path,
    retention: Retention,
    now: Inspection,
    announce: Announce = _announce_nothing,
) -> list[Path]:
    """Remove files that are old enough, then the oldest, until the rest is small enough. Return the
    removed ones.

    Nothing is removed while another process does the same, or if the file system has no locks; and
    no file that a hold covers. Raises OSError, and SettingsError if the directory or its holds cannot
    be read.
    """
    with lock_directory(directory) as is_locked:
        if is_locked:
            return _remove_due(directory, retention, now, announce)
        return []


@contextmanager
def lock_directory(directory: Path, *, waits: bool = False) -> Iterator[bool]:
    """Lock the directory for housekeeping; False if it cannot be locked, or not without waiting.
    Raises OSError if it does not exist."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    operation = fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        try:
            fcntl.flock(descriptor, operation)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            # Explicitly, because a forked child may still have it open.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _remove_due(
    directory: Path, retention: Retention, now: Inspection, announce: Announce
) -> list[Path]:
    names = [name for name in names_in(directory) if is_kept(name)]
    held = held_names(directory, names)
    account = _load_account(directory)
    ageing = determine_ages(account, now, names, retention)
    removable = set(names) - held
    files = [
        directory / name
        for name in sorted(removable, key=lambda name: (-ageing.age_of(name), name))
    ]
    sizes = {path: _size(path) for path in files}
    total, removed = sum(sizes.values()), []
    for path in files:
        is_due = bool(retention.days) and ageing.age_of(path.name) >= retention.seconds
        is_excess = bool(retention.size) and total > retention.size
        if (is_due or is_excess) and _try_remove(path, announce):
            removed.append(path)
            total -= sizes[path]
    if retention.size and held:
        kept = sum(_size(directory / name) for name in held)
        _warn_of_held(directory, total, kept, retention.size)
    if ageing.account != account:
        _save_account(directory, ageing.account)
    return removed


def held_names(directory: Path, names: list[str]) -> set[str]:
    """The files that holds cover. Raises SettingsError if the holds cannot be read."""
    holds = read_holds(directory)
    return {name for name in names if any(hold.covers(name) for hold in holds)}


def _warn_of_held(directory: Path, rest: int, held: int, limit: int) -> None:
    """Warn if holds keep more bytes than the limit allows. Held files do not count towards it: the
    latest files would otherwise be removed to make room for them."""
    if rest + held > limit:
        log.warning(
            "the audit log has %d MiB more than audit_retention_bytes allows, because holds keep %d MiB"
            " (%s)",
            (rest + held - limit) // MIB,
            held // MIB,
            invocation_for(directory).command("audit", "hold"),
        )


def _load_account(directory: Path) -> Account | None:
    """Read the account of earlier inspections; None, which lets all ages begin at 0, if it cannot
    be read."""
    try:
        return msgspec.json.decode(read_plain(directory / ACCOUNT), type=Account)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning(
            "%s cannot be read (%s): the ages of the audit log's files restart at 0", ACCOUNT, error
        )
        return None


def _save_account(directory: Path, account: Account) -> None:
    whole = directory / ACCOUNT
    part = whole.with_name(ACCOUNT + PART)
    part.unlink(missing_ok=True)  # left by a killed process, or a symlink that another user planted
    with part.open("xb") as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(msgspec.json.encode(account))
    put_in_place(part, whole)


def _try_remove(path: Path, announce: Announce) -> bool:
    """Remove a file, and return whether it is gone. A file being written stays, and so does its
    evidence."""
    with try_lock(path) as descriptor:
        if descriptor is None or (path.name.endswith(WARC) and _is_evidence_of_open_file(path)):
            return False
        if not announce(path.name):
            return False
        try:
            _remove_index(path.parent / INDEX, day_of(path.name))
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", path.name, error)
            return False
        return True


def _remove_index(folder: Path, day: str) -> None:
    """Remove the copies of a day's records, which are not to be kept longer than the records. They
    belong to the same user (read/index.py)."""
    with suppress(OSError):
        for copy in index_of_day(folder, day):
            copy.unlink(missing_ok=True)


def _is_evidence_of_open_file(path: Path) -> bool:
    return any(_is_open(path.with_name(stem + JSONL)) for stem in log_stems_of(path.name))


def _is_open(path: Path) -> bool:
    with try_lock(path) as descriptor:
        return descriptor is None and path.exists()


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _files_in(directory: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(directory) if day_of(entry.name)]


def add_hold(directory: Path, hold: Hold, now: float, note: Callable[[Event], None]) -> None:
    """Put a hold in force, and record it. Raises OSError, SettingsError if the holds cannot be read,
    and AuditLogError if the hold is in force but was not recorded."""
    with lock_directory(directory, waits=True):
        write_holds(directory, [*read_holds(directory), hold])
        note(_change(hold, "add", hold.owner, hold.reason, now))


def release_hold(
    directory: Path,
    identity: str,
    owner: str,
    reason: str,
    now: float,
    note: Callable[[Event], None],
) -> Hold:
    """Record the release of a hold, and end it. Raises OSError, SettingsError if there is no such
    hold, and AuditLogError; the hold is then still in force."""
    with lock_directory(directory, waits=True):
        holds = read_holds(directory)
        found = [hold for hold in holds if hold.id == identity]
        if not found:
            known = invocation_for(directory).command("audit", "hold")
            raise SettingsError(f"there is no hold {identity!r}: see {known}")
        note(_change(found[0], "release", owner, reason, now))
        write_holds(directory, [hold for hold in holds if hold.id != identity])
        return found[0]


def _change(hold: Hold, change: str, owner: str, reason: str, now: float) -> HoldChanged:
    return HoldChanged(
        at=now,
        hold=hold.id,
        change=change,
        owner=owner,
        reason=reason,
        origins=tuple(hold.origins),
        since=hold.since,
        until=hold.until,
    )
