"""A simulated disk for the audit log: it can be full or failing, and other programs change its
files.

Every system call of a log writer passes through this module. Before each one, the disk may fail the
call, and a concurrent maintenance process or an `rm` may take a step, so that every interleaving
occurs.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from robots_guard.audit.files import Files
from robots_guard.audit.segments import day_of
from simulation.kernel import Kernel, Process
from simulation.plan import Plan

DIRECTORY = Path("/log")
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO, "large": errno.EFBIG, "stale": errno.ESTALE}


class Inode:
    """A file, independent of its names."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytearray()
        self.links = 1
        # of its lock: a process and its descriptor
        self.holder: tuple[View | None, int] | None = None


class Disk:
    """The files of all processes of a history."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.names: dict[Path, Inode] = {}
        self.kept: list[bytes] = []  # content that maintenance has compressed, or that was removed
        self.numbers = count(1)
        self._maintenance = self._maintain()

    def interfere(self, *, is_starting: bool) -> None:
        """Let maintenance or a removal take a step, with the plan's probabilities."""
        drawn = self.kernel.random.random()
        if drawn < self.plan.housekeeping:
            next(self._maintenance)
        elif drawn > 1 - self.plan.removals and not is_starting:
            self._remove()

    def fault(self) -> int:
        """Return the error number that a call fails with now; 0 for none."""
        now = self.kernel.time
        for span in self.plan.log:
            if span.begins <= now < span.ends and (
                span.share >= 1 or self.kernel.random.random() < span.share
            ):
                return ERRORS[span.kind]
        return 0

    def unlink(self, path: Path) -> None:
        """Remove a name. Raises FileNotFoundError."""
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self.names.pop(path).links -= 1

    def records(self) -> Iterator[bytes]:
        """Yield every line that is still stored, in files or in `kept`."""
        for data in (*self.kept, *(bytes(inode.data) for inode in self.names.values())):
            yield from data.splitlines()

    def _maintain(self) -> Iterator[None]:
        """Do what `audit.write.maintenance` does to files that no writer has locked, step by step."""
        while True:
            segments = [path for path in self.names if day_of(path.name)]
            yield
            if not segments:
                continue
            path = self.kernel.random.choice(segments)
            inode = self.names.get(path)
            yield
            if inode is None or inode.holder is not None:
                continue
            inode.holder = (None, 0)
            yield
            if inode.links and self.names.get(path) is inode:  # a compressed file hides its source
                self.kept.append(bytes(inode.data))
                self.unlink(path)
            yield
            inode.holder = None
            yield

    def _remove(self) -> None:
        """Remove a file that may be in use.

        Its content so far does not count as lost by the guard.
        """
        if self.names:
            path = self.kernel.random.choice(list(self.names))
            self.kept.append(bytes(self.names[path].data))
            self.unlink(path)


class View(Files):
    """The disk as one process sees it."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._open: dict[int, Inode] = {}
        self._next = count(3)
        # no faults yet: a process does not start with a log that it cannot write
        self.is_starting = True

    def release(self) -> None:
        """Close the files and release the locks of a process that has died."""
        for descriptor in list(self._open):
            self._close(descriptor)

    def _call(self, *, may_fail: bool = True) -> None:
        self._disk.interfere(is_starting=self.is_starting)
        if may_fail and not self.is_starting and (error := self._disk.fault()):
            raise OSError(error, os.strerror(error))

    def open(self, path: Path, flags: int, mode: int = 0o640) -> int:
        self._call()
        if path in self._disk.names and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "file exists")
        inode = self._disk.names.get(path)
        if inode is None:
            inode = Inode(next(self._disk.numbers))
            if flags & os.O_CREAT:
                self._disk.names[path] = inode
        descriptor = next(self._next)
        self._open[descriptor] = inode
        return descriptor

    def close(self, descriptor: int) -> None:
        self._call(may_fail=False)
        self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        inode = self._open.pop(descriptor)
        if inode.holder == (self, descriptor):
            inode.holder = None

    def write(self, descriptor: int, data: bytes) -> int:
        self._call()
        random = self._disk.kernel.random
        length = len(data)
        if self._disk.plan.log and random.random() < 0.05:
            length = random.randrange(1, length + 1)  # a write may be partial
        self._open[descriptor].data += data[:length]
        return length

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        self._call()
        return bytes(self._open[descriptor].data[offset : offset + length])

    def flock(self, descriptor: int, operation: int) -> None:
        self._call(may_fail=False)
        inode = self._open[descriptor]
        if operation == fcntl.LOCK_UN:
            if inode.holder == (self, descriptor):
                inode.holder = None
        elif inode.holder is not None and inode.holder != (self, descriptor):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock")
        else:
            inode.holder = (self, descriptor)

    def fstat(self, descriptor: int) -> Any:
        self._call(may_fail=False)
        if descriptor not in self._open:
            raise OSError(errno.EBADF, "bad file descriptor")
        return self._stat_of(self._open[descriptor])

    def _stat_of(self, inode: Inode) -> Any:
        return SimpleNamespace(
            st_dev=1, st_ino=inode.number, st_nlink=inode.links, st_size=len(inode.data)
        )

    def stat(self, path: Path) -> Any:
        self._call(may_fail=False)
        if not path.suffix:
            return SimpleNamespace(st_dev=1)  # a directory
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory")
        return self._stat_of(self._disk.names[path])

    def fsync(self, descriptor: int) -> None:
        self._call()

    def fdatasync(self, descriptor: int) -> None:
        self._call()

    def link(self, old: Path, new: Path) -> None:
        self._call()
        if new in self._disk.names:
            raise FileExistsError(errno.EEXIST, "file exists")
        if old not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self._disk.names[new] = self._disk.names[old]
        self._disk.names[new].links += 1

    def rename(self, old: Path, new: Path) -> None:
        self.link(old, new)
        self._disk.unlink(old)

    def unlink(self, path: Path) -> None:
        self._call()
        self._disk.unlink(path)

    def mkdir(self, path: Path, mode: int) -> None:
        raise FileExistsError(errno.EEXIST, "file exists")

    def listdir(self, path: Path) -> list[str]:
        self._call()
        return [name.name for name in self._disk.names]
