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
from robots_guard.audit.segments import unfinished

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
        self._identity = (there.st_dev, there.st_ino)
        self._descriptor = descriptor
        self._files = files
        self._is_torn = False  # its last line has no end

    def append(self, line: bytes) -> None:
        """Append a record as a line of its own. Raises OSError; a part of it that was written is then no record.

        The operating system says why a write was short only when the rest is written.
        """
        rest = b"\n" + line if self._is_torn else line
        length = len(rest)
        while rest:
            try:
                written = self._files.write(self._descriptor, rest)
            except OSError:
                if len(rest) == 1 < length:
                    return  # but for its newline the record is whole, and the next one brings it
                raise
            if not written:
                raise OSError(errno.ENOSPC, "nothing was written")
            self.size += written
            rest = rest[written:]
            self._is_torn = bool(rest)

    def check(self, line: bytes) -> None:
        """Check that the line just appended is still in the file. Raises OSError (ESTALE) if it is not."""
        there = self._files.fstat(self._descriptor)
        if there.st_nlink and there.st_size == self.size:
            return
        self.is_foreign = True  # also if it cannot be read
        stands = there.st_nlink and self._ends_with(line, there.st_size)
        self.is_foreign = not stands or there.st_size < self.size  # if cut shorter, it may have no start any more
        self.size = there.st_size
        if not stands:
            raise gone()

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


def gone() -> OSError:
    """The error of a file that another process took away."""
    return OSError(errno.ESTALE, "it was removed or changed by another process")


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
            _name(new, path, files)
            made = LogFile(path, descriptor, files)
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
