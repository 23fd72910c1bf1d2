"""One file of the audit log, while its writer has it open.

Invariant: a file gets the name under which it is read and kept only once its writer has locked it. Until then it has a
name that no reader lists, and that housekeeping removes only if the file is not locked and holds nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from robots_guard.audit.files import FILES, NO_LINKS, Files, lock, remove, sync_path
from robots_guard.audit.segments import JSONL, NoDirectory, segments, unfinished, why_not_plain
from robots_guard.errors import SettingsError

# Never through a symlink, and never into a file that is there already: a file has one writer.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
_TRIES = 5  # housekeeping may take the lock first, and then removes the file


class LogFile:
    """A file that this process appends lines to."""

    def __init__(self, path: Path, descriptor: int, files: Files = FILES) -> None:
        there = files.fstat(descriptor)
        self.path = path
        self.size = there.st_size
        self.is_foreign = False  # another process removed or cut it: no more lines go there
        self.is_moved = False  # another process gave it another name, under which readers find it
        self._identity = (there.st_dev, there.st_ino)
        self._descriptor = descriptor
        self._files = files
        self._is_torn = False  # its last line has no end

    def append(self, line: bytes) -> OSError | None:
        """Append a record as a line of its own. Raises OSError; a part of it that was written is then no record.

        Returns the error of a write that put the rest of the record into the file all the same. The operating system
        says why a write was short only when the rest is written.
        """
        rest = b"\n" + line if self._is_torn else line
        while rest:
            written, error = self._write(rest)
            if written:
                self.size += written
                rest = rest[written:]
                self._is_torn = bool(rest)
            if error is None:
                continue
            if rest not in (b"", b"\n"):
                raise error
            return error if written else None  # the next record brings the newline
        return None

    def check(self, line: bytes) -> None:
        """Check that the line just appended is still in the file. Raises Gone if it is not, and OSError if that
        cannot be seen."""
        there = self._under_its_name()
        if there.st_size == self.size:
            return
        self.is_foreign = True  # also if it cannot be read
        stands = self._ends_with(line, there.st_size)
        self.is_foreign = not stands or there.st_size < self.size  # if cut shorter, it may have no start any more
        self.size = there.st_size
        if not stands:
            raise Gone

    def sync(self) -> None:
        """Flush the file's data to the disk. Raises OSError."""
        self._files.fdatasync(self._descriptor)

    def close(self) -> None:
        """Release the lock, and the file."""
        if self._is_ours():
            with suppress(OSError):  # for a child, too, that was forked and has the file open
                self._files.flock(self._descriptor, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: release the file, and leave the lock to the parent."""
        if self._is_ours():
            with suppress(OSError):
                self._files.close(self._descriptor)
        self._descriptor = -1

    def discard(self) -> None:
        """Close a file that has no record, and remove it."""
        with suppress(OSError):
            remove(self.path, self._files)
        self.close()

    def _write(self, rest: bytes) -> tuple[int, OSError | None]:
        """How many bytes of it are in the file now, and the error that kept the others out."""
        try:
            written = self._files.write(self._descriptor, rest)
        except OSError as error:
            return self._growth(len(rest)), error
        return written, None if written else OSError(errno.ENOSPC, "nothing was written")

    def _growth(self, most: int) -> int:
        """How many bytes a failed write has put into the file: on NFS, data is taken, and then an error reported."""
        try:
            grown = self._files.fstat(self._descriptor).st_size - self.size
        except OSError:
            return 0
        return grown if 0 < grown <= most else 0

    def _under_its_name(self) -> os.stat_result:
        """The state of the file. Raises Gone if no reader finds it, and OSError if that cannot be seen."""
        try:
            there = self._files.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return self._under_another_name()
        except PermissionError:  # the process gave up its right to search the directory when it had opened the file
            there = self._files.fstat(self._descriptor)
        if not there.st_nlink or (there.st_dev, there.st_ino) != self._identity:
            return self._under_another_name()
        return there

    def _under_another_name(self) -> os.stat_result:
        """The state of a file that lost its name. Where readers find it under another, its lines are in the log."""
        found = self._found()
        if found is None:
            self.is_foreign = True
            raise Gone from None
        self.path, self.is_moved = found, True
        return self._files.fstat(self._descriptor)

    def _found(self) -> Path | None:
        """Where readers find the file. Raises OSError if that cannot be seen."""
        try:
            listed = segments(self.path.parent)
        except NoDirectory:
            return None
        except SettingsError as error:
            if not self._files.fstat(self._descriptor).st_nlink:
                return None
            raise OSError(errno.EACCES, "it was renamed, perhaps to a name that readers list") from error
        return next((each.path for each in listed if each.form == JSONL and self._is_at(each.path)), None)

    def _is_at(self, path: Path) -> bool:
        try:
            there = self._files.stat(path)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._identity and why_not_plain(path) is None

    def _ends_with(self, line: bytes, size: int) -> bool:
        tail = self._files.pread(self._descriptor, len(line) + 1, max(size - len(line) - 1, 0))
        return tail in (line, b"\n" + line)

    def _is_ours(self) -> bool:
        """False if the descriptor was closed, and perhaps opened anew for something else: a daemon closes all."""
        if self._descriptor < 0:
            return False
        try:
            there = self._files.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._identity


class Gone(OSError):
    """The error of a file that another process took away, or from which it took the last line."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "it was removed or changed by another process")


def create(path: Path, files: Files = FILES, *, sync: bool = False) -> LogFile:
    """Create a file, lock it, and name it; with `sync`, flush the name to the disk. Raises OSError."""
    for _ in range(_TRIES):
        made = _created(path, files)
        if made is not None:
            break
    else:
        raise OSError(errno.EWOULDBLOCK, "another process locks each new file")
    try:
        if sync:
            sync_path(path.parent, files)
    except OSError:
        made.discard()
        raise
    return made


def _created(path: Path, files: Files) -> LogFile | None:
    """None if housekeeping took the file for one that was left over."""
    new = unfinished(path)
    descriptor = files.open(new, _FLAGS, 0o640)
    made = None
    try:
        if lock(descriptor, files) and files.fstat(descriptor).st_nlink:
            file = LogFile(path, descriptor, files)
            _name(new, path, files)
            made = file
    finally:
        if made is None:
            with suppress(OSError):
                remove(new, files)
            files.close(descriptor)
    return made


def _name(new: Path, path: Path, files: Files) -> None:
    """Give a file its name. With its first name left beside it, it would not be seen when the file is removed."""
    try:
        files.link(new, path)  # never in the place of another
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        files.rename(new, path)
        return
    try:
        files.unlink(new)
    except FileNotFoundError:
        pass
    except OSError:
        remove(path, files)
        raise
