"""The writer: one process's files in the journal's directory.

Invariant: a record is in a file, under a name that readers list, before `append` returns. It is one write(2), and
nothing is buffered, so that a killed process loses nothing that it acknowledged. A record that could not be written
leaves a gap in the numbers, and the next one begins on a line of its own. With a chain, each line's hash takes in
the one before, over every file of the writer; checkpoints say where it stands.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
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

from robots_guard.audit import logfile
from robots_guard.audit.files import FILES, FULL, Files, make_directory
from robots_guard.audit.logfile import LogFile
from robots_guard.audit.record import SCHEMA, Checkpoint, Entry, Start, Stop, Writer, moment
from robots_guard.audit.segments import JSONL, stem_of
from robots_guard.errors import JournalError
from robots_guard.ports import Clocks

log = logging.getLogger("robots_guard")

DAY = 86400.0  # seconds
CHECKPOINT = 1000  # lines of a chain from one checkpoint to the next
PAUSE = 1.0  # seconds from one attempt to go on in another file to the next

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
    """One writer, which is one process. A forked child calls `abandon` and makes a writer of its own."""

    def __init__(
        self,
        directory: Path,
        writing: Writing,
        clocks: Clocks,
        files: Files = FILES,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.pid = os.getpid()
        self.host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
        name = f"{self.host}-{self.pid}-{tokens(4)}"
        self.identity = Writer(writer=name, door=writing.door, job=writing.job)
        self.lost = 0
        self.rotated: Callable[[], None] = lambda: None  # called when a file has been begun
        self._directory = directory
        self._writing = writing
        self._clocks = clocks
        self._files = files
        self._lock = threading.Lock()
        self._seq = 0
        self._segment = 0
        self._head: bytes | None = None
        self._unchecked = 0
        self._is_started = self._is_failing = self._is_closed = False
        self._midnight = 0.0
        self._next_attempt = -math.inf
        self._file = self._begun(clocks.now())

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._file.path

    # -- one record -------------------------------------------------------------------------------------------

    def append(self, at: float, made: Callable[[Head], Entry]) -> None:
        """Write the record that `made` gives. Raises JournalError or OSError if it could not be."""
        with self._lock:
            if self._is_closed:
                raise JournalError(f"{self.path}: the writer has been closed")
            if self._is_due(at):
                self._rotate(at)
            before = self._seq, self.lost, self._head, self._unchecked
            try:
                self._put(at, made)
            except OSError as error:
                if not self._may_leave(error):
                    raise
                self._seq, self.lost, self._head, self._unchecked = before
                self._leave(at, error)
                self._put(at, made)
            if self._writing.chain and self._unchecked >= CHECKPOINT:
                with contextlib.suppress(JournalError, OSError):  # the record stands, and the next one tries again
                    self._checkpoint(moment(at))

    def close(self) -> None:
        """Say that this was the end, as far as that can be written; a file without a record goes."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._is_started:
                with contextlib.suppress(JournalError, OSError):
                    self._end(moment(self._clocks.now()))
            self._release(self._file)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file."""
        self._file.abandon()

    def _put(self, at: float, made: Callable[[Head], Entry]) -> None:
        if not self._is_started:
            self._line(lambda head: self._start(moment(at), head))
            self._is_started = True
            self.rotated()
        self._line(made)

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
            failure = self._written(line)
        except OSError:
            self.lost += 1
            raise
        if self._head is not None:
            self._head = chained(self._head, line)
            self._unchecked += 1
        if failure:  # the line is there, but may not be after a power failure
            self.lost += 1
            raise JournalError(f"{self.path}: {failure.strerror}") from failure

    def _written(self, line: bytes) -> OSError | None:
        """Why the line is not known to be on the disk, if it is to be. Raises OSError if it is not in the file."""
        if self._file.is_foreign:
            raise logfile.gone()
        self._file.append(line)
        failure = self._synced() if self._writing.fsync else None
        self._file.check(line)
        return failure

    def _synced(self) -> OSError | None:
        """After an error a file is not synced again: the system may have dropped the data, and would not say so."""
        try:
            self._file.sync()
        except OSError as error:
            self._is_failing = error.errno not in FULL
            return error
        return None

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

    def _is_due(self, at: float) -> bool:
        """Whether to go on in another file: at midnight (UTC), when this one is large, and when it is not synced."""
        is_another_day = at >= self._midnight or at < self._midnight - 2 * DAY  # the clock was set back, too
        due = is_another_day or self._file.size >= self._writing.rotate_bytes or self._is_failing
        return due and self._clocks.monotonic() >= self._next_attempt

    def _rotate(self, at: float) -> None:
        """Go on in another file; in the old one, if no other can be begun."""
        is_failing = self._is_failing
        try:
            self._replace(at)
        except OSError:
            self._wait()
        else:
            if is_failing:
                self._wait()

    def _may_leave(self, error: OSError) -> bool:
        """Whether another file may take what this one did not. On a full disk it does not, and in a file that another
        process took away nothing is ever found."""
        if self._file.is_foreign:
            return True
        if error.errno in FULL or self._clocks.monotonic() < self._next_attempt:
            return False
        self._wait()
        return True

    def _leave(self, at: float, why: OSError) -> None:
        """Go on in another file. Raises JournalError."""
        left = self.path
        try:
            self._replace(at)
        except OSError as error:
            self._seq, self.lost = self._seq + 1, self.lost + 1
            raise JournalError(f"{left}: {why.strerror}, and no other file can be begun: {error.strerror}") from error
        log.warning("journal: %s: %s; it goes on in %s", left, why.strerror, self.path)

    def _wait(self) -> None:
        self._next_attempt = self._clocks.monotonic() + PAUSE

    def _replace(self, at: float) -> None:
        old = self._file
        make_directory(self._directory, self._files)
        begun = self._begun(at)
        self._release(old)
        self._file, self._is_started, self._is_failing = begun, False, False

    def _release(self, file: LogFile) -> None:
        if self._is_started:
            file.close()
        else:
            file.discard()

    def _begun(self, at: float) -> LogFile:
        self._segment += 1  # also when it fails: its name may be left over
        day = (moment(at) or "0000-00-00")[:10].replace("-", "")
        path = self._directory / (stem_of(day, self.identity.writer, self._segment) + JSONL)
        begun = logfile.create(path, self._files, sync=self._writing.fsync)
        self._midnight = _midnight_after(at)
        return begun

    def _start(self, at: str | None, head: Head) -> Start:
        previous = self._head
        if self._writing.chain and previous is None:
            self._head = previous = beginning(self.identity.writer)
        return Start(
            schema=SCHEMA,
            at=at,
            version=_version(),
            host=self.host,
            pid=self.pid,
            segment=self._segment,
            settings=self._writing.settings,
            chain="sha256" if self._writing.chain else None,
            previous=previous.hex() if previous else None,
            **head,
        )


@functools.cache
def _version() -> str:
    """Of this package; looking it up takes a millisecond."""
    return version("robots_guard")


def _midnight_after(at: float) -> float:
    return at - at % DAY + DAY


def beginning(writer: str) -> bytes:
    """Where a writer's chain begins."""
    return hashlib.sha256(writer.encode()).digest()


def chained(before: bytes, line: bytes) -> bytes:
    """The chain's head after a line, its newline included."""
    return hashlib.sha256(before + line).digest()
