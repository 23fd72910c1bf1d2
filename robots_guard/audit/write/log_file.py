"""One file of the audit log, open for writing.

Invariant: a file gets the name under which readers find it only once its writer has locked it.
Until then it has a name that no reader lists, and housekeeping removes it only if it is unlocked
and empty.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from robots_guard.audit.files import FILES, NO_LINKS, Files, lock, remove, sync_path
from robots_guard.audit.segments import JSONL, NoDirectory, all_segments, unfinished, why_not_plain
from robots_guard.errors import SettingsError

# Never follow a symlink, and never open an existing file: a file has one writer.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
_TRIES = 5  # housekeeping may lock the new file first, and then removes it


class LogFile:
    """A file that this process appends lines to."""

    def __init__(self, path: Path, descriptor: int, files: Files = FILES) -> None:
        state = files.fstat(descriptor)
        self.path = path
        self.size = state.st_size
        # Another process removed or truncated it: nothing more is written to it.
        self.is_foreign = False
        self.is_moved = False  # another process renamed it, to a name that readers list
        self._identity = (state.st_dev, state.st_ino)
        self._descriptor = descriptor
        self._files = files
        self._is_torn = False  # its last line is incomplete

    def append(self, line: bytes) -> OSError | None:
        """Append a record as a line of its own. Raises OSError; what was written of it is then not
        a valid record.

        Returns the error, if any, of a write that failed although the whole record is now in the
        file. The system reports the reason for a short write only when the rest is written.
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
            if written:  # the next append writes the missing newline
                return error
            return None
        return None

    def check(self, line: bytes) -> None:
        """Check that the line just appended is still in the file. Raises Gone if it is not, and
        OSError if this cannot be determined."""
        state = self._stat_following_rename()
        if state.st_size == self.size:
            return
        self.is_foreign = True  # in case the next line raises
        has_line = self._ends_with(line, state.st_size)
        # A truncated file may lack its start record.
        self.is_foreign = not has_line or state.st_size < self.size
        self.size = state.st_size
        if not has_line:
            raise Gone

    def sync(self) -> None:
        """Flush the file's data to the disk. Raises OSError."""
        self._files.fdatasync(self._descriptor)

    def close(self) -> None:
        """Release the lock and close the file."""
        if self._owns_descriptor():
            with suppress(OSError):
                # Explicitly, because a forked child may still have the file open.
                self._files.flock(self._descriptor, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Close the file but leave the lock to the parent: for a forked child."""
        if self._owns_descriptor():
            with suppress(OSError):
                self._files.close(self._descriptor)
        self._descriptor = -1

    def discard(self) -> None:
        """Close and remove a file that has no record."""
        with suppress(OSError):
            remove(self.path, self._files)
        self.close()

    def _write(self, rest: bytes) -> tuple[int, OSError | None]:
        """The number of bytes of `rest` that are in the file now, and the error that stopped the
        write, if any."""
        try:
            written = self._files.write(self._descriptor, rest)
        except OSError as error:
            return self._growth(len(rest)), error
        if not written:
            return 0, OSError(errno.ENOSPC, "nothing was written")
        return written, None

    def _growth(self, most: int) -> int:
        """The number of bytes that a failed write added: NFS may accept the data and report an
        error later."""
        try:
            grown = self._files.fstat(self._descriptor).st_size - self.size
        except OSError:
            return 0
        if 0 < grown <= most:
            return grown
        return 0

    def _stat_following_rename(self) -> os.stat_result:
        """Return the status of the file at `path`, or where it was moved to; then `path` changes.

        Raises Gone if readers cannot find the file, and OSError if this cannot be determined.
        """
        try:
            state = self._files.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return self._follow_rename()
        except PermissionError:
            # After opening the file, the process dropped its right to search the directory.
            state = self._files.fstat(self._descriptor)
        if not state.st_nlink or (state.st_dev, state.st_ino) != self._identity:
            return self._follow_rename()
        return state

    def _follow_rename(self) -> os.stat_result:
        """Set `path` and `is_moved` to where readers find the file now, and return its status.

        Raises Gone if they cannot find it.
        """
        found = self._find()
        if found is None:
            self.is_foreign = True
            raise Gone from None
        self.path, self.is_moved = found, True
        return self._files.fstat(self._descriptor)

    def _find(self) -> Path | None:
        """The path by which readers find the file. Raises OSError if this cannot be determined."""
        try:
            listed = all_segments(self.path.parent)
        except NoDirectory:
            return None
        except SettingsError as error:
            if not self._files.fstat(self._descriptor).st_nlink:
                return None
            raise OSError(
                errno.EACCES, "it was renamed, perhaps to a name that readers list"
            ) from error
        return next(
            (each.path for each in listed if each.form == JSONL and self._is_at(each.path)), None
        )

    def _is_at(self, path: Path) -> bool:
        try:
            state = self._files.stat(path)
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == self._identity and why_not_plain(path) is None

    def _ends_with(self, line: bytes, size: int) -> bool:
        tail = self._files.pread(self._descriptor, len(line) + 1, max(size - len(line) - 1, 0))
        return tail in (line, b"\n" + line)

    def _owns_descriptor(self) -> bool:
        """Whether the descriptor still refers to this file: a daemon closes all, and the number may
        be reused."""
        if self._descriptor < 0:
            return False
        try:
            state = self._files.fstat(self._descriptor)
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == self._identity


class Gone(OSError):
    """Raised when another process removed the file, or the line just written to it."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "it was removed or changed by another process")


def create(path: Path, files: Files = FILES, *, sync: bool = False) -> LogFile:
    """Create a file, lock it, and give it its name; with `sync`, flush the name to the disk. Raises
    OSError."""
    for _ in range(_TRIES):
        file = _try_create(path, files)
        if file is not None:
            break
    else:
        raise OSError(errno.EWOULDBLOCK, "another process locks each new file")
    try:
        if sync:
            sync_path(path.parent, files)
    except OSError:
        file.discard()
        raise
    return file


def _try_create(path: Path, files: Files) -> LogFile | None:
    """Create a file. Return None if housekeeping took it for a leftover and locked or removed it."""
    new = unfinished(path)
    descriptor = files.open(new, _FLAGS, 0o640)
    created = None
    try:
        if lock(descriptor, files) and files.fstat(descriptor).st_nlink:
            file = LogFile(path, descriptor, files)
            _give_name(new, path, files)
            created = file
    finally:
        if created is None:
            with suppress(OSError):
                remove(new, files)
            files.close(descriptor)
    return created


def _give_name(new: Path, path: Path, files: Files) -> None:
    """Rename a new file without replacing another. Both names must not remain: the removal of
    `path` would then go unnoticed, because the file would still have a link."""
    try:
        files.link(new, path)  # unlike a rename, this never replaces an existing file
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
