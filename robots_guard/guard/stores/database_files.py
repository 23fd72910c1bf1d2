"""The files of an SQLite database: the file itself, its two journals, its lock, and a hard link to it.

SQLite pairs files by name alone: the database with its write-ahead log (``-wal``) and with the
index of that log (``-shm``), which every process maps into memory.

Invariant: a file is never opened beside the journals of another one, and no guard truncates an
index that another process maps, which would kill that process (SIGBUS). So journals are renamed or
unlinked, under the lock, and never written to. Only SQLite opens the three files: a process that
closes any descriptor of a file loses all its locks on it.

The file must be closed when a process forks, so a call that waits for a lock has to stop waiting.
SQLite's own wait cannot be interrupted from outside (`interrupt` ends a running statement, not a
wait); `Patience` splits it into short slices. A test can replace its calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from robots_guard.errors import StoreError, StoreReset

SLICE = 0.1  # seconds of one uninterruptible wait in SQLite


class Interrupted(StoreError):
    """A call lost its connection before it had locked it: to a fork, or to a replaced file.

    The call must retry with the next connection.
    """


class Patience:
    """Tells waiting threads when to stop waiting for one database's locks.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._ended_by: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether this thread must stop waiting. False for the thread that called `end`."""
        return self._ended_by not in (None, threading.get_ident())

    def end(self) -> None:
        """Interrupt the waits of all other threads, current and future."""
        self._ended_by = threading.get_ident()

    def begin(self) -> None:
        """Allow waits again."""
        self._ended_by = None


class Connection(sqlite3.Connection):
    """A connection that waits for a lock in slices, and checks `patience` between them."""

    patience = Patience()
    slices = 1

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement, waiting for its lock.

        Raises Interrupted if the wait is interrupted.
        """
        for _ in range(self.slices - 1):
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if self.patience.is_over:
                    raise Interrupted(
                        "was interrupted while another process had it locked"
                    ) from error
        return super().execute(sql, parameters)


def connect(path: Path) -> Connection:
    """Return a connection in autocommit mode, usable from any thread."""
    return sqlite3.connect(
        path, timeout=SLICE, isolation_level=None, check_same_thread=False, factory=Connection
    )


def is_busy(error: Exception) -> bool:
    """Whether the error is a lock held by another process (SQLITE_BUSY)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


BUSY = 5.0  # seconds to wait for another process's write


@dataclass(frozen=True)
class System:
    """The system calls of a Database in one object, its clock, and its timeout for another process's lock.

    SQLite makes further system calls that cannot be replaced from Python.
    """

    open: Callable[[str, int, int], int] = os.open
    close: Callable[[int], None] = os.close
    flock: Callable[[int, int], None] = fcntl.flock
    stat: Callable[[str], os.stat_result] = os.stat
    rename: Callable[[str, str], None] = os.rename
    unlink: Callable[[str], None] = os.unlink
    link: Callable[[str, str], None] = os.link
    connect: Callable[[Path], Connection] = connect
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    busy: float = BUSY


MAX_QUARANTINED = 3  # damaged files kept for a person to examine

_QUARANTINED = re.compile(r"\.corrupt-(?P<time>\d{8}T\d{6}Z)(-(?P<serial>\d+))?(-wal)?$")
_MARK = b"robots_guard "  # other programs' `.lock` files are empty or contain a number
_MARKED = re.compile(re.escape(_MARK) + rb"(\d+)")

Inode = tuple[int, int]  # device and number


class FoundFiles(NamedTuple):
    """The inodes of the files at a database's paths at one moment, and the size of the index.

    An inode is None if there is no such file. An empty database counts as missing, but an empty
    log or index does not.
    """

    file: Inode | None
    wal: Inode | None
    shm: Inode | None
    shm_size: int

    def continues(self, earlier: FoundFiles) -> bool:
        """Whether these are the same three files as in `earlier`, and the index was not truncated."""
        return None not in self and self[:3] == earlier[:3] and self.shm_size >= earlier.shm_size


class Lock:
    """The lock of a database's files, while this process holds it.

    The content of the lock file, written after a store was opened, marks the database as a policy
    store and names the inode that the journals belong to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def marks_a_store(self) -> bool:
        """Whether a policy store was ever opened at the path, so that a damaged file there is one."""
        return self._inode_number() is not None

    def names_another(self, file: Inode) -> bool:
        """Whether the journals belong to another file; False if the lock names none."""
        return self._inode_number() not in (None, file[1])

    def name(self, file: Inode) -> None:
        """Record which file the journals belong to from now on."""
        if self._inode_number() == file[1]:
            return
        with contextlib.suppress(OSError):  # if the disk is full, the lock names no file
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%s%d" % (_MARK, file[1]), 0)

    def _inode_number(self) -> int | None:
        return _inode_number_in(os.pread(self._descriptor, 60, 0))


def marks_a_store(file: str) -> bool:
    """Whether the lock beside a file marks the file as a policy store. Does not take the lock."""
    try:
        with Path(f"{file}.lock").open("rb") as lock:
            return _inode_number_in(lock.read(60)) is not None
    except OSError:
        return False


def _inode_number_in(content: bytes) -> int | None:
    found = _MARKED.fullmatch(content)
    if found:
        return int(found[1])
    return None


class DatabaseFiles:
    """The files of one database."""

    def __init__(self, path: Path, system: System) -> None:
        self.path, self.system = path, system
        self.patience = Patience()
        self._descriptors: set[int] = set()  # open descriptors of the lock file
        self.resolve()

    def resolve(self) -> None:
        """Resolve links in the path: the journals and the lock are beside the file itself."""
        self._file = os.path.realpath(self.path)
        self._wal, self._shm = f"{self._file}-wal", f"{self._file}-shm"
        self._lock, self._link = f"{self._file}.lock", f"{self._file}.link"

    @property
    def resolved(self) -> str:
        """The path of the file with links resolved."""
        return self._file

    def inodes_now(self) -> FoundFiles:
        """Return which files are at the paths now."""
        file, shm = self._stat(str(self.path)), self._stat(self._shm)
        return FoundFiles(
            file=_inode(file) if file and file.st_size else None,
            wal=_inode(self._stat(self._wal)),
            shm=_inode(shm),
            shm_size=shm.st_size if shm else 0,
        )

    def inode_now(self) -> Inode | None:
        """Return the inode of the database at the path now, even of an empty one."""
        return _inode(self._stat(str(self.path)))

    def require_regular_file(self) -> None:
        """Raise OSError for a directory, a pipe or a device, on which SQLite may wait forever."""
        found = self._stat(self._file)
        if found and not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")

    @contextlib.contextmanager
    def locked(self) -> Iterator[Lock]:
        """Hold the lock for a block. A newly created lock file is removed if the block fails."""
        descriptor, is_new = self._take_lock()
        lock = Lock(descriptor)
        try:
            yield lock
        except BaseException:
            if is_new and not lock.marks_a_store:  # another process may have taken it first
                self._remove(self._lock)
            raise
        finally:
            self._close_lock(descriptor)

    def close_inherited_locks(self) -> None:
        """Close the lock descriptors inherited from the parent; else this process would hold the
        lock for its whole life.
        """
        for descriptor in list(self._descriptors):
            self._close_lock(descriptor)

    def remove_foreign_journals(self, lock: Lock) -> None:
        """Move journals away that do not belong to the current file."""
        found = self.inodes_now()
        if found.file is None and (found.wal or found.shm):
            self.quarantine()  # with the empty file, if any: other processes may have locked it
        elif found.file and lock.names_another(found.file):
            target = self._quarantine_name()
            self._move_journals(target)
            self._remove_old_quarantined(target)

    def pin_inode(self, file: Inode) -> None:
        """Hard-link the file, so that its inode number is not reused after a deletion.

        Requires the lock. The lock file names the database by that number only. Without the link, a
        backup restored over a deleted file would often get the same number, and be opened beside
        the deleted file's journals.
        """
        with contextlib.suppress(OSError):  # not every file system has hard links
            if _inode(self._stat(self._link)) != file:
                self._remove(self._link)
                self.system.link(self._file, self._link)

    def quarantine(self, on_rename: Callable[[Path | None], None] = lambda _: None) -> None:
        """Rename the file and its log, which must not be replayed into the next file.

        Calls `on_rename` with the file's new path, or None if there was no file, before anything
        else can fail. The file is renamed first, so that SQLite does not touch its old paths when
        another process closes it.
        """
        target = self._quarantine_name()
        existed = True
        try:
            self.system.rename(self._file, target)
        except FileNotFoundError:
            existed = False
        on_rename(Path(target) if existed else None)
        self._move_journals(target)
        self._remove_old_quarantined(target)

    def _move_journals(self, target: str) -> None:
        """Keep the log, which contains the last commits. Delete the index, which is of no use."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rename(self._wal, f"{target}-wal")
        self._remove(self._shm)

    def _quarantine_name(self) -> str:
        # for people, and for the order of removal
        label = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        base = f"{self._file}.corrupt-{label}"
        serial, name = 1, base
        while self._stat(name) or self._stat(f"{name}-wal"):
            serial += 1
            name = f"{base}-{serial}"
        return name

    def _remove_old_quarantined(self, newest: str) -> None:
        """Delete all but the latest few quarantined files, so that they do not fill a failing disk.

        Files are ordered by the times in their names, because a restored backup often keeps an old
        modification time. `newest` is kept whatever the clock says.
        """
        file = Path(self._file)
        times: dict[str, tuple[str, int]] = {}
        for name in file.parent.glob(f"{_literal(file.name)}.corrupt-*"):
            found = _QUARANTINED.search(str(name))
            if found:
                times[str(name).removesuffix("-wal")] = (found["time"], int(found["serial"] or 1))
        times.pop(newest, None)
        for old in sorted(times, key=lambda name: times[name])[: 1 - MAX_QUARANTINED]:
            self._remove(old)
            self._remove(f"{old}-wal")

    def _take_lock(self) -> tuple[int, bool]:
        """Take the lock. Returns its descriptor and whether its file was created for that.

        Raises BlockingIOError if another process does not release it in time, and Interrupted if
        the wait is interrupted.
        """
        deadline = self.system.monotonic() + self.system.busy
        while True:
            descriptor, is_new = self._open_or_create_lock()
            try:
                self.system.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _inode(os.fstat(descriptor)) == _inode(self._stat(self._lock)):
                    return descriptor, is_new  # the lock file was not replaced meanwhile
            except BlockingIOError as error:
                if self.system.monotonic() > deadline:
                    self._close_lock(descriptor)
                    raise
                if self.patience.is_over:
                    self._close_lock(descriptor)
                    raise Interrupted(
                        "was interrupted while another process had its lock"
                    ) from error
            except BaseException:
                self._close_lock(descriptor)
                raise
            self._close_lock(descriptor)
            self.system.sleep(0.02)

    def _open_or_create_lock(self) -> tuple[int, bool]:
        """Open the lock file. Returns its descriptor and whether this process created it."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            with contextlib.suppress(FileExistsError):
                return self._open_lock(flags | os.O_CREAT | os.O_EXCL), True
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                return self._open_lock(flags), False

    def _open_lock(self, flags: int) -> int:
        descriptor = self.system.open(self._lock, flags, 0o600)
        self._descriptors.add(descriptor)
        return descriptor

    def _close_lock(self, descriptor: int) -> None:
        self._descriptors.discard(descriptor)
        self.system.close(descriptor)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.unlink(name)

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return self.system.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _inode(found: os.stat_result | None) -> Inode | None:
    if found:
        return found.st_dev, found.st_ino
    return None


def _literal(name: str) -> str:
    """Return a glob pattern that matches only this name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


class Resets:
    """The resets of damaged files in this process that no call has reported yet.

    A file may be quarantined when no new one can be created (the disk is full), or by a call that
    suppresses its failure. An exception in flight could therefore get lost; the reset is recorded
    here as soon as the file is renamed. Safe to use from several threads.
    """

    def __init__(self) -> None:
        # Older files are deleted.
        self._unreported: deque[tuple[Exception, Path | None]] = deque(maxlen=MAX_QUARANTINED)

    def __str__(self) -> str:
        """Return the names of the damaged files, as the end of a sentence about a new file that
        cannot be created.
        """
        renamed = [path for _, path in list(self._unreported) if path]
        return "".join(f"; the damaged file is now {str(path)!r}" for path in renamed)

    def record(self, why: Exception, quarantined: Path | None) -> None:
        """Record why a file was considered damaged, and its new name if this process renamed it."""
        self._unreported.append((why, quarantined))

    def pop(self) -> StoreReset | None:
        """Remove and return the earliest reset, for the caller to raise; None if there is none."""
        try:
            return store_reset(*self._unreported.popleft())
        except IndexError:
            return None


def store_reset(why: Exception, quarantined: Path | None) -> StoreReset:
    """Return the error that reports a damaged file and its replacement."""
    where = f"; the old file is {str(quarantined)!r}" if quarantined else ""
    return StoreReset(f"was damaged ({why}) and has been recreated{where}")
