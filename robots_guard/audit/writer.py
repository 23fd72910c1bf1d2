"""The writer: one process's files in the journal's directory.

Invariant: a record is in a file, under a name that readers list, before `append` returns. It is one write(2), and
nothing is buffered, so that a killed process loses nothing that it acknowledged. A record that is lost because it could
not be written leaves a gap in the numbers, and the next one begins on a line of its own. A number is given once: it is
free again only if its line is known not to be in a file. With a chain, each line's hash takes in the one before, over
every file of the writer; checkpoints say where it stands.
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
from robots_guard.audit.logfile import Gone, LogFile
from robots_guard.audit.record import SCHEMA, Checkpoint, Entry, Start, Stop, Writer, moment
from robots_guard.audit.segments import JSONL, stem_of
from robots_guard.errors import JournalError, UnconfirmedRecord
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
        self._directory = directory.absolute()  # the process may go to another
        self._writing = writing
        self._clocks = clocks
        self._files = files
        self._lock = threading.Lock()
        self._seq = 0
        self._segment = 0
        self._head: bytes | None = None
        self._unchecked = 0
        self._is_started = self._is_closed = False
        self._doubt: OSError | None = None  # why lines of the file may not last: none is acknowledged any more
        self._midnight = 0.0
        self._next_attempt = -math.inf
        self._file = self._begun()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._file.path

    # -- one record -------------------------------------------------------------------------------------------

    def append(self, at: float, made: Callable[[Head], Entry], *, is_tried_again: bool = False) -> None:
        """Write the record that `made` gives. Raises JournalError or OSError if it could not be, UnconfirmedRecord if
        it may not last.

        A record that could not be written is lost, unless the caller tries it again.
        """
        with self._lock:
            if self._is_closed:
                raise JournalError(f"{self.path}: the writer has been closed")
            if self._is_due():
                self._rotate()
            try:
                self._put(at, made)
            except (JournalError, OSError):
                if not is_tried_again:
                    self._seq += 1  # the gap shows that a record is missing
                    self.lost += 1
                raise
            if self._doubt is not None:
                self.lost += 1
                raise UnconfirmedRecord(f"{self.path}: {self._doubt.strerror}") from self._doubt
            if self._writing.chain and self._unchecked >= CHECKPOINT:
                with contextlib.suppress(OSError):  # the record stands, and the next one tries again
                    self._checkpoint(moment(at))

    def close(self) -> None:
        """Say that this was the end, as far as that can be written; a file without a record goes."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._is_started:
                with contextlib.suppress(OSError):
                    self._end(moment(self._clocks.now()))
            self._release(self._file)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file."""
        self._file.abandon()

    def _put(self, at: float, made: Callable[[Head], Entry]) -> None:
        """Write a record; in another file, if this one does not take it. Raises JournalError or OSError."""
        try:
            self._lines(at, made)
        except OSError as error:
            if not self._may_leave(error):
                raise
            self._leave(error)
            self._lines(at, made)

    def _lines(self, at: float, made: Callable[[Head], Entry]) -> None:
        """Write a record, and before it the start of a file that has none. Raises OSError."""
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
        """Write a line. Raises OSError if it is not in the file: then its number and place in the chain are free."""
        self._seq += 1
        line = made(self._numbered()).line_of_json()
        try:
            self._write(line)
        except OSError:
            self._seq -= 1
            raise
        if self._head is not None:
            self._head = chained(self._head, line)
            self._unchecked += 1

    def _write(self, line: bytes) -> None:
        """Write a line, and doubt the file if that line may not last. Raises OSError if it is not in the file."""
        if self._file.is_foreign:
            raise Gone
        self._doubt = self._file.append(line) or self._doubt
        if self._writing.fsync and self._doubt is None:  # the system may have dropped data, and not say so again
            self._confirm(self._file.sync)
        self._confirm(lambda: self._file.check(line))

    def _confirm(self, asks: Callable[[], None]) -> None:
        """Doubt the file if the answer is an error. Raises Gone."""
        try:
            asks()
        except Gone:
            raise
        except OSError as error:
            self._doubt = self._doubt or error

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

    def _is_due(self) -> bool:
        """Whether to go on in another file: at midnight (UTC), when this one is large, in doubt, or renamed.

        The day is the clock's, and not a record's, which may be late: of two threads at midnight, say.
        """
        now = self._clocks.now()
        is_another_day = now >= self._midnight or now < self._midnight - 2 * DAY  # the clock was set back, too
        due = is_another_day or self._file.size >= self._writing.rotate_bytes
        due = due or self._doubt is not None or self._file.is_moved
        return due and self._clocks.monotonic() >= self._next_attempt

    def _rotate(self) -> None:
        """Go on in another file; in the old one, if no other can be begun."""
        left, is_in_doubt = self._file, self._doubt is not None
        try:
            self._replace()
        except OSError:
            self._wait()
            return
        if is_in_doubt:
            self._wait()
        if left.is_moved:
            log.warning("journal: another process renamed a file to %s; it goes on in %s", left.path, self.path)

    def _may_leave(self, error: OSError) -> bool:
        """Whether another file may take what this one did not. On a full disk it does not, and in a file that another
        process took away nothing is ever found."""
        if self._file.is_foreign:
            return True
        if error.errno in FULL or self._clocks.monotonic() < self._next_attempt:
            return False
        self._wait()
        return True

    def _leave(self, why: OSError) -> None:
        """Go on in another file. Raises JournalError."""
        left = self.path
        try:
            self._replace()
        except OSError as error:
            raise JournalError(f"{left}: {why.strerror}, and no other file can be begun: {error.strerror}") from error
        log.warning("journal: %s: %s; it goes on in %s", left, why.strerror, self.path)

    def _wait(self) -> None:
        self._next_attempt = self._clocks.monotonic() + PAUSE

    def _replace(self) -> None:
        old = self._file
        make_directory(self._directory, self._files)
        begun = self._begun()
        self._release(old)
        self._file, self._is_started, self._doubt = begun, False, None

    def _release(self, file: LogFile) -> None:
        if self._is_started:
            file.close()
        else:
            file.discard()

    def _begun(self) -> LogFile:
        self._segment += 1  # also when it fails: its name may be left over
        now = self._clocks.now()
        day = (moment(now) or "0000-00-00")[:10].replace("-", "")
        path = self._directory / (stem_of(day, self.identity.writer, self._segment) + JSONL)
        begun = logfile.create(path, self._files, sync=self._writing.fsync)
        self._midnight = _midnight_after(now)
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
