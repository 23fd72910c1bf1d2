"""A disk in memory that loses in a power cut what was not synced.

It is as unreliable as POSIX allows: data is safe once its file was synced, a name once its directory was. Of all other
changes any part may survive, in any order. A failed sync drops the data, and the next one reports no error.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from robots_guard.audit.files import Files

ROOT = Path("/disk")


@dataclass(eq=False)
class Inode:
    """A file or a directory: its visible state, and the part of it that is safe."""

    number: int
    is_directory: bool = False
    links: int = 0
    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    dropped: bool = False  # a sync failed: what came after the safe part is never written
    names: dict[str, Inode] = field(default_factory=dict)
    safe_names: dict[str, Inode] = field(default_factory=dict)
    # Changes of names since the last sync.
    changes: list[tuple[str, Inode | None]] = field(default_factory=list)

    def change(self, name: str, inode: Inode | None) -> None:
        if inode is None:
            self.names.pop(name).links -= 1
        else:
            self.names[name] = inode
            inode.links += 1
        self.changes.append((name, inode))


class Disk(Files):
    """The system calls of one process on this disk. `before` is called before each of them."""

    def __init__(self, before: Callable[[], None] = lambda: None):
        self.before = before
        self.root = Inode(0, is_directory=True)
        self.opened: dict[int, Inode] = {}
        self.made = 0
        self.room = 10**9
        self.fails_to_sync = 0
        self.sync_error = errno.EIO

    def open(self, path, flags, mode=0o640):
        self.before()
        parent, name = self._parent(path)
        inode = self.root if path == ROOT else parent.names.get(name)
        if inode is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory")
            inode = self._inode()
            parent.change(name, inode)
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists")
        descriptor = 1000 + len(self.opened)
        self.opened[descriptor] = inode
        return descriptor

    def close(self, descriptor):
        self.before()

    def write(self, descriptor, data):
        self.before()
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = data[: self.room]
        self.room -= len(written)
        self.opened[descriptor].data += written
        return len(written)

    def pread(self, descriptor, length, offset):
        return bytes(self.opened[descriptor].data[offset : offset + length])

    def flock(self, descriptor, operation):
        self.before()

    def fstat(self, descriptor):
        return self._stat(self.opened[descriptor])

    def stat(self, path):
        return (
            self._stat(self._find(path)) if path.is_relative_to(ROOT) else SimpleNamespace(st_dev=0)
        )

    def fsync(self, descriptor):
        self.before()
        inode = self.opened[descriptor]
        if self.fails_to_sync:
            self.fails_to_sync -= 1
            inode.dropped = True
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        if not inode.dropped:
            inode.safe = bytes(inode.data)
        inode.safe_names, inode.changes = dict(inode.names), []

    fdatasync = fsync

    def link(self, old, new):
        self.before()
        parent, name = self._parent(new)
        parent.change(name, self._find(old))

    def rename(self, old, new):
        self.link(old, new)
        self.unlink(old)

    def unlink(self, path):
        self.before()
        parent, name = self._parent(path)
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        parent.change(name, None)

    def mkdir(self, path, mode):
        self.before()
        if path == ROOT:
            raise FileExistsError(errno.EEXIST, "File exists")
        parent, name = self._parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, "File exists")
        inode = self._inode()
        inode.is_directory = True
        parent.change(name, inode)

    def _inode(self):
        self.made += 1
        return Inode(self.made)

    def _parent(self, path):
        return self._find(path.parent) if path != ROOT else self.root, path.name

    def _find(self, path):
        if path == ROOT:
            return self.root
        found = self._find(path.parent).names.get(path.name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return found

    @staticmethod
    def _stat(inode):
        return SimpleNamespace(
            st_dev=1, st_ino=inode.number, st_nlink=inode.links, st_size=len(inode.data)
        )

    # -- the power cut ------------------------------------------------------------------------------------------

    def leave(self, place: Path, chance: random.Random, share: float) -> None:
        """Write what a power cut leaves into a real directory. Of changes not synced, a random `share` is kept."""
        self._leave(self.root, place, chance, share, {})

    def _leave(self, directory, place, chance, share, left):
        place.mkdir()
        names = dict(directory.safe_names)
        for name, inode in directory.changes:
            if chance.random() >= share:
                continue
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        for name, inode in names.items():
            path = place / name
            if inode.is_directory:
                self._leave(inode, path, chance, share, left)
            elif inode in left:
                os.link(left[inode], path)
            else:
                path.write_bytes(inode.safe + _kept(inode, chance, share))
                left[inode] = path


def _kept(inode: Inode, chance: random.Random, share: float) -> bytes:
    """The bytes kept after the safe part: some of them, perhaps followed by zeros if only the size was written."""
    rest = bytes(inode.data[len(inode.safe) :])
    if inode.dropped or not rest or share == 0:
        return b""
    if share == 1:
        return rest
    whole = chance.randrange(len(rest) + 1)
    return rest[:whole] + b"\0" * (chance.random() < 0.3) * (len(rest) - whole)
