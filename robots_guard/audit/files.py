"""Files: the system calls that write and maintain the audit log, in one object.

Tests replace it by one that fails at a chosen call, lets another process run in between, or loses
what was not synced, as a disk does in a power cut.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

NO_LOCKS = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL))
NO_LINKS = frozenset(
    (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EXDEV)
)
FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class Files:
    """The operating system's own calls, unchanged. All raise OSError."""

    def open(self, path: Path, flags: int, mode: int = 0o640) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def flock(self, descriptor: int, operation: int) -> None:
        fcntl.flock(descriptor, operation)

    def fstat(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(str(path))  # noqa: PTH116  (for each record: `path.stat()` takes longer)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def link(self, old: Path, new: Path) -> None:
        new.hardlink_to(old)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path, mode: int) -> None:
        path.mkdir(mode)

    def listdir(self, path: Path) -> list[str]:
        return [entry.name for entry in os.scandir(path)]


FILES = Files()


def lock(descriptor: int, files: Files = FILES) -> bool:
    """Lock a file. Return False if another process has locked it, and True also if the file system
    has no locks. Raises OSError."""
    try:
        files.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def remove(path: Path, files: Files = FILES) -> None:
    """Remove a file if it exists. Raises OSError."""
    with suppress(FileNotFoundError):
        files.unlink(path)


def make_directory(directory: Path, files: Files = FILES, mode: int = 0o750) -> None:
    """Create a directory and its parents if they are missing. Raises OSError."""
    with suppress(FileExistsError):
        try:
            files.mkdir(directory, mode)
        except FileNotFoundError:
            make_directory(directory.parent, files, 0o777)
            files.mkdir(directory, mode)


def sync_directory(directory: Path, files: Files = FILES) -> None:
    """Flush the names in a directory to the disk. Raises OSError."""
    descriptor = files.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.fsync(descriptor)
    finally:
        files.close(descriptor)


def sync_path(directory: Path, files: Files = FILES) -> None:
    """Flush the names in a directory and in its parents up to the mount point to the disk. Raises
    OSError.

    Another process may just have created the directory without syncing it.
    """
    sync_directory(directory, files)
    device = files.stat(directory).st_dev
    for parent in directory.absolute().parents:
        if files.stat(parent).st_dev != device:
            break
        with suppress(PermissionError):
            # A directory that this process cannot open, it cannot have created either.
            sync_directory(parent, files)
