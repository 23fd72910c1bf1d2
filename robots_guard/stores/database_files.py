"""The files of an SQLite database: the file itself, its two journals, its lock, and a second name of the file.

SQLite pairs files by their names alone: the file with its write-ahead log (``-wal``) and with the index of that
log (``-shm``), which every process maps into its memory. Invariant: a file is never opened beside journals of
another one, and no guard truncates an index that another process maps, which would kill that process (SIGBUS).
So journals are renamed or unlinked, under the lock, and never written to. Only SQLite opens the three files: a
process that closes any descriptor of a file loses all its locks on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from robots_guard.stores.patience import Left, Patience
from robots_guard.stores.system import System

KEPT_ASIDE = 3  # damaged files kept for a person to look at

_ASIDE = re.compile(r"\.corrupt-(?P<time>\d{8}T\d{6}Z)(-(?P<serial>\d+))?(-wal)?$")
_MARK = b"robots_guard "  # other programs have files called `.lock`, too, which are empty or hold a number
_MARKED = re.compile(re.escape(_MARK) + rb"(\d+)")

Inode = tuple[int, int]  # device and number


class Found(NamedTuple):
    """The files under a database's names at one moment; None where there is none, or an empty one."""

    file: Inode | None
    wal: Inode | None
    shm: Inode | None
    shm_size: int

    def continues(self, earlier: Found) -> bool:
        """Whether these are the same three files as earlier, and the index has not been truncated."""
        return None not in self and self[:3] == earlier[:3] and self.shm_size >= earlier.shm_size


class Lock:
    """The lock of a database's files, while it is held. Its content, written once a store has been opened, marks the
    file as a store, and names the file to which the journals belong."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def marks_a_store(self) -> bool:
        """Whether a store has been at the path, so that what is damaged there is ours."""
        return self._named() is not None

    def names_another(self, file: Inode) -> bool:
        """Whether the journals belong to another file; False if the lock names none."""
        return self._named() not in (None, file[1])

    def name(self, file: Inode) -> None:
        """Record which file the journals belong to from now on."""
        if self._named() == file[1]:
            return
        with contextlib.suppress(OSError):  # a full disk: the lock then names none
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%s%d" % (_MARK, file[1]), 0)

    def _named(self) -> int | None:
        return _named_in(os.pread(self._descriptor, 60, 0))


def marks_a_store(file: str) -> bool:
    """Whether the lock beside a file, which is not taken for that, marks the file as a store."""
    try:
        with Path(f"{file}.lock").open("rb") as lock:
            return _named_in(lock.read(60)) is not None
    except OSError:
        return False


def _named_in(lock: bytes) -> int | None:
    found = _MARKED.fullmatch(lock)
    return int(found[1]) if found else None


class DatabaseFiles:
    """The files of one database, by name."""

    def __init__(self, path: Path, system: System) -> None:
        self.path, self.system = path, system
        self.patience = Patience()
        self._descriptors: set[int] = set()  # of the lock
        self.resolve()

    def resolve(self) -> None:
        """Resolve the path if it is a link: the journals and the lock are beside the file itself."""
        self._file = os.path.realpath(self.path)
        self._wal, self._shm = f"{self._file}-wal", f"{self._file}-shm"
        self._lock, self._link = f"{self._file}.lock", f"{self._file}.link"

    @property
    def resolved(self) -> str:
        """The name of the file itself."""
        return self._file

    def found(self) -> Found:
        """The files as they are now."""
        file, shm = self._stat(str(self.path)), self._stat(self._shm)
        return Found(
            file=_inode(file) if file and file.st_size else None,
            wal=_inode(self._stat(self._wal)),
            shm=_inode(shm),
            shm_size=shm.st_size if shm else 0,
        )

    def insist_on_a_regular_file(self) -> None:
        """Raise OSError where the path names a directory, a pipe or a device: SQLite may wait on it for ever."""
        found = self._stat(self._file)
        if found and not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")

    @contextlib.contextmanager
    def locked(self) -> Iterator[Lock]:
        """Hold the lock. One that is created for this stays only if all went well."""
        descriptor, is_new = self._taken()
        lock = Lock(descriptor)
        try:
            yield lock
        except BaseException:
            if is_new and not lock.marks_a_store:  # another process may have held it first
                self._remove(self._lock)
            raise
        finally:
            self._close_lock(descriptor)

    def close_inherited_locks(self) -> None:
        """Close what the parent of this process had open of the lock when it forked: else this process would hold the
        lock as long as it lives."""
        for descriptor in list(self._descriptors):
            self._close_lock(descriptor)

    def part_from_strangers(self, lock: Lock) -> None:
        """Move away journals that do not belong to the present file, if there is one."""
        found = self.found()
        if found.file is None and (found.wal or found.shm):
            self.set_aside()  # an empty file as well: other processes may have locked it
        elif found.file and lock.names_another(found.file):
            aside = self._name_aside()
            self._move_journals(aside)
            self._tidy(aside)

    def keep_the_number_of(self, file: Inode) -> None:
        """Give the file a second name. While it has that, no other file is given its inode number.

        The lock knows a file by that number only. A backup restored in place of a deleted file would else often get
        the same one, and would be opened beside the journals of the deleted file. The lock is held.
        """
        with contextlib.suppress(OSError):  # not every file system can: then the number is all there is to go by
            if _inode(self._stat(self._link)) != file:
                self._remove(self._link)
                self.system.link(self._file, self._link)

    def set_aside(self, renamed: Callable[[Path | None], None] = lambda _: None) -> None:
        """Rename the file and its log, which must not be replayed into the next one.

        `renamed` is called with the file's new name, or None if there was no file, before anything else may fail.
        The file goes first: SQLite then does not touch its old names when another process closes it.
        """
        aside = self._name_aside()
        was_there = True
        try:
            self.system.rename(self._file, aside)
        except FileNotFoundError:
            was_there = False
        renamed(Path(aside) if was_there else None)
        self._move_journals(aside)
        self._tidy(aside)

    def _move_journals(self, aside: str) -> None:
        """Keep the log, which has the last commits; the index is of no use to a person."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rename(self._wal, f"{aside}-wal")
        self._remove(self._shm)

    def _name_aside(self) -> str:
        label = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())  # for people, and for the order of removal
        aside = f"{self._file}.corrupt-{label}"
        serial, name = 1, aside
        while self._stat(name) or self._stat(f"{name}-wal"):
            serial += 1
            name = f"{aside}-{serial}"
        return name

    def _tidy(self, made: str) -> None:
        """Keep the latest few: a failing disk must not be filled with damaged files.

        By the times in their names, because a restored backup often has an old time of its own. The one just `made` is
        kept whatever the clock says.
        """
        file = Path(self._file)
        times: dict[str, tuple[str, int]] = {}
        for name in file.parent.glob(f"{_literal(file.name)}.corrupt-*"):
            found = _ASIDE.search(str(name))
            if found:
                times[str(name).removesuffix("-wal")] = (found["time"], int(found["serial"] or 1))
        times.pop(made, None)
        for old in sorted(times, key=lambda name: times[name])[: 1 - KEPT_ASIDE]:
            self._remove(old)
            self._remove(f"{old}-wal")

    def _taken(self) -> tuple[int, bool]:
        """Take the lock; its descriptor, and whether its file was created for that.

        Raises BlockingIOError when another process does not give it back, and Left when the wait is broken off.
        """
        deadline = self.system.monotonic() + self.system.busy
        while True:
            descriptor, is_new = self._lock_opened()
            try:
                self.system.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _inode(os.fstat(descriptor)) == _inode(self._stat(self._lock)):
                    return descriptor, is_new  # it has not been removed meanwhile
            except BlockingIOError as error:
                if self.system.monotonic() > deadline:
                    self._close_lock(descriptor)
                    raise
                if self.patience.is_over:
                    self._close_lock(descriptor)
                    raise Left("was left while another process had its lock") from error
            except BaseException:
                self._close_lock(descriptor)
                raise
            self._close_lock(descriptor)
            self.system.sleep(0.02)

    def _lock_opened(self) -> tuple[int, bool]:
        """Open the file of the lock; its descriptor, and whether it was created: never both by two processes."""
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
    return (found.st_dev, found.st_ino) if found else None


def _literal(name: str) -> str:
    """A name as a pattern that matches it only."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
