"""The writer: one process's files in the journal's directory.

The law of this file: one write(2) a record, before `append` returns. What a killed process has acknowledged is
therefore in the file; nothing is buffered and no queue stands between. A record that could not be written leaves
a gap in the numbers, and the next one begins on a line of its own. With a chain, each line's hash takes in the
one before, over every file of the writer; checkpoints say where it stands.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from robots_guard.audit.record import SCHEMA, Checkpoint, Entry, Start, Stop, Writer, moment
from robots_guard.audit.segments import JSONL, stem_of, sync_directory
from robots_guard.errors import JournalError
from robots_guard.ports import Clocks

log = logging.getLogger("robots_guard")

DAY = 86400.0  # seconds
CHECKPOINT = 1000  # lines of a chain from one checkpoint to the next
# Never through a symlink, never into a file that is there already: a file has one writer.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC

Head = dict[str, Any]  # what stands in every record, but for `schema` and `at`


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How a writer writes. `rotate_bytes` bounds a file; `settings` is what a `start` record tells of."""

    door: str = ""
    job: str = ""
    fsync: bool = False
    chain: bool = False
    rotate_bytes: int = 256 * 1024 * 1024
    settings: dict[str, str] = {}


class JournalWriter:
    """One writer, which is one process. A forked child leaves its parent's alone, lock and all."""

    def __init__(self, directory: Path, writing: Writing, clocks: Clocks) -> None:
        self.pid = os.getpid()
        self.host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
        name = f"{self.host}-{self.pid}-{secrets.token_hex(4)}"
        self.identity = Writer(writer=name, door=writing.door, job=writing.job)
        self.lost = 0
        self.rotated: Callable[[], None] = lambda: None  # called when a file has been begun
        self._directory = directory
        self._writing = writing
        self._clocks = clocks
        self._lock = threading.Lock()
        self._seq = 0
        self._segment = 0
        self._head: bytes | None = None
        self._unchecked = 0
        self._descriptor = -1
        self._size, self._limit = 0, 0
        self._torn = self._started = False
        self._midnight = 0.0
        self.path = directory
        self._begin(clocks.now())

    # -- one record -------------------------------------------------------------------------------------------

    def append(self, at: float, made: Callable[[Head], Entry]) -> None:
        """Write the record that `made` gives. Raises JournalError if it was cut short, OSError if it failed."""
        with self._lock:
            is_another_day = at >= self._midnight or at < self._midnight - 2 * DAY  # the clock was set back, too
            if self._size >= self._limit or is_another_day or self._is_gone():
                self._turn(at)
            if not self._started:
                self._line(lambda head: self._start(moment(at), head))
                self._started = True
                self.rotated()
            self._line(made)
            if self._writing.chain and self._unchecked >= CHECKPOINT:
                self._checkpoint(moment(at))

    def close(self) -> None:
        """Say that this was the end, as far as that can be written; a file without a record goes."""
        with self._lock:
            if self._descriptor < 0 or os.getpid() != self.pid:
                return
            if self._started:
                with contextlib.suppress(JournalError, OSError):
                    self._end(moment(self._clocks.now()))
            else:
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _end(self, at: str | None) -> None:
        self._line(lambda head: Stop(schema=SCHEMA, at=at, lost=self.lost, **head))
        if self._writing.chain:
            self._checkpoint(at)

    def _checkpoint(self, at: str | None) -> None:
        assert self._head is not None
        reached = self._head.hex()
        self._line(lambda head: Checkpoint(schema=SCHEMA, at=at, head=reached, **head))
        self._unchecked = 0

    def _line(self, made: Callable[[Head], Entry]) -> None:
        self._seq += 1  # also when it fails: the gap shows that a record is missing
        line = made(self._numbered()).line_of_json()
        try:
            self._write(b"\n" + line if self._torn else line)
            if self._head is not None:
                self._head = chained(self._head, line)
                self._unchecked += 1
            if self._writing.fsync:
                os.fdatasync(self._descriptor)  # should this fail, the line is there, but nobody can rely on it
        except (JournalError, OSError):
            self.lost += 1
            raise

    def _write(self, octets: bytes) -> None:
        written = os.write(self._descriptor, octets)  # if this fails, nothing was written
        self._torn = True
        self._size += written
        if written < len(octets) - 1:  # but for its newline a record is whole, and the next one brings it
            raise JournalError(f"{self.path}: only {written} of {len(octets)} octets could be written")
        self._torn = written < len(octets)

    def _numbered(self) -> Head:
        identity = self.identity
        return {
            "mono": round(self._clocks.monotonic(), 6),
            "seq": self._seq,
            "writer": identity.writer,
            "door": identity.door,
            "job": identity.job,
        }

    # -- one file ---------------------------------------------------------------------------------------------

    def _turn(self, at: float) -> None:
        """Go on in a new file: at midnight (UTC), when this one is large (in the old one if none can be had), and when
        it has been removed, for what is written then is nowhere. Raises JournalError."""
        old, empty, gone = self._descriptor, None if self._started else self.path, self._is_gone()
        try:
            if gone:
                self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._begin(at)
        except OSError as error:
            if gone:
                self._seq, self.lost = self._seq + 1, self.lost + 1
                raise JournalError(f"{self.path} was removed, and none can be begun: {error.strerror}") from error
            self._limit, self._midnight = self._size + self._writing.rotate_bytes // 16, _midnight_after(at)
        else:
            os.close(old)
            if gone:
                log.warning("journal: a file was removed while it was written; it goes on in %s", self.path)
            elif empty:
                empty.unlink(missing_ok=True)

    def _is_gone(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0

    def _begin(self, at: float) -> None:
        number = self._segment + 1
        day = (moment(at) or "0000-00-00")[:10].replace("-", "")
        path = self._directory / (stem_of(day, self.identity.writer, number) + JSONL)
        descriptor = os.open(path, _FLAGS, 0o640)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: then nobody compresses beside us
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._writing.fsync:
                sync_directory(self._directory)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._descriptor = descriptor
        self.path, self._segment, self._midnight = path, number, _midnight_after(at)
        self._size, self._limit, self._torn, self._started = 0, self._writing.rotate_bytes, False, False

    def _start(self, at: str | None, head: Head) -> Start:
        previous = self._head
        if self._writing.chain and previous is None:
            self._head = previous = beginning(self.identity.writer)
        return Start(
            schema=SCHEMA,
            at=at,
            version=version("robots_guard"),
            host=self.host,
            pid=self.pid,
            segment=self._segment,
            settings=self._writing.settings,
            chain="sha256" if self._writing.chain else None,
            previous=previous.hex() if previous else None,
            **head,
        )


def _midnight_after(at: float) -> float:
    return at - at % DAY + DAY


def beginning(writer: str) -> bytes:
    """Where a writer's chain begins."""
    return hashlib.sha256(writer.encode()).digest()


def chained(before: bytes, line: bytes) -> bytes:
    """The chain's head after a line, its newline included."""
    return hashlib.sha256(before + line).digest()
