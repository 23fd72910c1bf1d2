"""The writer of the audit log: it writes one process's files in the log's directory.

Invariant: a record is in a file, under a name that readers list, before `append` returns. It is
written by one write(2) without buffering, so that a killed process loses nothing it acknowledged. A
record that could not be written leaves a gap in the sequence numbers, and the next one begins on a
line of its own. A number is reused only if its line is known not to be in a file. With a hash
chain, the hash at each line covers the hash before it and the line's digest, across all files of the
writer; checkpoint records state the current hash.
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

from robots_guard.audit.files import FILES, FULL, Files, make_directory
from robots_guard.audit.record import SCHEMA, Checkpoint, Entry, Start, Stop, Writer, moment
from robots_guard.audit.segments import JSONL, stem_of
from robots_guard.audit.signing import Signer, statement_of
from robots_guard.audit.write import log_file
from robots_guard.audit.write.log_file import Gone, LogFile
from robots_guard.errors import AuditLogError, UnconfirmedRecord
from robots_guard.ports import Clocks

log = logging.getLogger("robots_guard")

DAY = 86400.0  # seconds
CHECKPOINT = 1000  # lines of a chain between two checkpoints
#: Seconds between them, if there are lines. A killed process leaves at most the lines of this time
#: uncovered. Each costs a line of the log and, with a key, a signature of 44 us.
CHECKPOINT_SECONDS = 300.0
PAUSE = 1.0  # seconds between two attempts to continue in another file

Head = dict[str, Any]  # the fields common to all records, except `schema` and `at`
#: Makes the line of a record, given its number and the time of the monotonic clock.
Encode = Callable[[int, float], bytes]


class WriterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a writer writes.

    `rotate_bytes` limits the size of a file; a `start` record contains the `settings`. A chain has a
    checkpoint after CHECKPOINT lines, and with the first record that is CHECKPOINT_SECONDS after
    the last one. The `signer` signs them.
    """

    component: str = ""
    job: str = ""
    fsync: bool = False
    chain: bool = False
    signer: Signer | None = None
    rotate_bytes: int = 256 * 1024 * 1024  # compressed and removed as a whole
    settings: dict[str, str] = {}


class LogWriter:
    """The writer of one process. A forked child calls `abandon` and creates its own writer."""

    def __init__(
        self,
        directory: Path,
        writing: WriterOptions,
        clocks: Clocks,
        files: Files = FILES,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.pid = os.getpid()
        self.host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
        name = f"{self.host}-{self.pid}-{tokens(4)}"
        self.identity = Writer(writer=name, component=writing.component, job=writing.job)
        self.lost = 0
        self.on_file_begun: Callable[[], None] = lambda: None  # called when a file has been begun
        self._directory = directory.absolute()  # the process may change its working directory
        self._writing = writing
        self._clocks = clocks
        self._files = files
        self._lock = threading.Lock()
        self._seq = 0
        self._segment = 0
        self._head: bytes | None = None  # hash of the chain's last line
        self._since_checkpoint = 0
        self._last_checkpoint = math.inf  # monotonic time of it, or of the chain's beginning
        self._is_started = self._is_closed = False
        # Why lines of the file may be lost: none is acknowledged any more.
        self._doubt: OSError | None = None
        self._midnight = 0.0
        self._next_attempt = -math.inf
        self._file = self._begin_file()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._file.path

    def head_fields(self, seq: int, mono: float) -> Head:
        """The fields common to all records, except `schema` and `at`."""
        identity = self.identity
        return {
            "mono": mono,
            "seq": seq,
            "writer": identity.writer,
            "component": identity.component,
            "job": identity.job,
        }

    # -- one record --------------------------------------------------------------------------------

    def append(
        self,
        at: float,
        encode: Encode,
        *,
        is_tried_again: bool = False,
        is_confirmed: bool = False,
    ) -> None:
        """Write the line that `encode` returns. Raises AuditLogError or OSError if it could not be
        written, and UnconfirmedRecord if it was written but may be lost.

        A record that could not be written counts as lost, unless `is_tried_again` says that the
        caller will retry. With `is_confirmed`, a checkpoint follows at once if there is a chain.
        """
        with self._lock:
            if self._is_closed:
                raise AuditLogError(f"{self.path}: the writer has been closed")
            if self._is_due():
                self._rotate()
            try:
                self._put(at, encode)
            except (AuditLogError, OSError):
                if not is_tried_again:
                    self._seq += 1  # leaves a gap
                    self.lost += 1
                raise
            if self._doubt is not None:
                self.lost += 1
                raise UnconfirmedRecord(f"{self.path}: {self._doubt.strerror}") from self._doubt
            if self._writing.chain and (is_confirmed or self._is_checkpoint_due()):
                with contextlib.suppress(OSError):
                    # The record is written; the next append retries the checkpoint.
                    self._write_checkpoint(moment(at))

    def cover_last_records(self) -> float | None:
        """Write a checkpoint if one is due by time, for a process that records nothing further.

        Returns in how many seconds one will be due, or None if every line is covered.
        """
        with self._lock:
            if self._is_closed or not self._writing.chain or not self._since_checkpoint:
                return None
            if self._doubt is not None:  # the next record goes to another file
                return CHECKPOINT_SECONDS
            if self._is_checkpoint_due():
                try:
                    self._write_checkpoint(moment(self._clocks.now()))
                except OSError:
                    return CHECKPOINT_SECONDS
                return None
            waited = self._clocks.monotonic() - self._last_checkpoint
            return max(CHECKPOINT_SECONDS - waited, 0.0)

    def close(self) -> None:
        """Write a stop record if that is possible, and close the file; remove it if it has no
        record."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._is_started:
                with contextlib.suppress(OSError):
                    self._write_stop(moment(self._clocks.now()))
            self._release(self._file)

    def abandon(self) -> None:
        """Close the parent's file in a forked child, and leave the lock to the parent."""
        self._file.abandon()

    def _put(self, at: float, encode: Encode) -> None:
        """Write a record, in another file if this one fails. Raises AuditLogError or OSError."""
        try:
            self._write_record(at, encode)
        except OSError as error:
            if not self._may_leave(error):
                raise
            self._leave(error)
            self._write_record(at, encode)

    def _write_record(self, at: float, encode: Encode) -> None:
        """Write a record, after a start record if it is the file's first. Raises OSError."""
        if not self._is_started:
            self._write_entry(lambda head: self._start(moment(at), head))
            self._is_started = True
            self.on_file_begun()
        self._write_line(encode)

    def _write_stop(self, at: str | None) -> None:
        self._write_entry(lambda head: Stop(schema=SCHEMA, at=at, lost=self.lost, **head))
        if self._writing.chain:
            self._write_checkpoint(at)

    def _is_checkpoint_due(self) -> bool:
        """Whether the next line of a chain is to be a checkpoint."""
        if self._since_checkpoint >= CHECKPOINT:
            return True
        return self._clocks.monotonic() - self._last_checkpoint >= CHECKPOINT_SECONDS

    def _write_checkpoint(self, at: str | None) -> None:
        self._write_entry(lambda head: self._checkpoint(at, head))
        self._since_checkpoint = 0
        self._last_checkpoint = self._clocks.monotonic()

    def _checkpoint(self, at: str | None, head: Head) -> Checkpoint:
        """A checkpoint of the lines before the one with the fields `head`."""
        assert self._head is not None
        current, signer = self._head.hex(), self._writing.signer
        if signer is None:
            return Checkpoint(schema=SCHEMA, at=at, head=current, **head)
        statement = statement_of(self.identity.writer, head["seq"] - 1, at, current)
        return Checkpoint(
            schema=SCHEMA,
            at=at,
            head=current,
            key=signer.key,
            signature=signer.sign(statement),
            **head,
        )

    def _write_entry(self, build: Callable[[Head], Entry]) -> None:
        self._write_line(lambda seq, mono: build(self.head_fields(seq, mono)).line_of_json())

    def _write_line(self, encode: Encode) -> None:
        """Write a line. Raises OSError if it is not in the file; the next line then takes its
        sequence number and its place in the chain."""
        self._seq += 1
        line = encode(self._seq, round(self._clocks.monotonic(), 6))
        try:
            self._write(line)
        except OSError:
            self._seq -= 1
            raise
        if self._head is not None:
            self._head = next_hash(self._head, line_digest(line))
            self._since_checkpoint += 1

    def _write(self, line: bytes) -> None:
        """Write a line, and mark the file as doubtful if the line may be lost. Raises OSError if it
        is not in the file."""
        file = self._file
        if file.is_foreign:
            raise Gone
        self._doubt = file.append(line) or self._doubt
        if self._writing.fsync and self._doubt is None:
            # After a failed fsync, the system may report no more errors.
            self._confirm(file.sync)
        self._confirm(file.check, line)

    def _confirm(self, check: Callable[..., None], *arguments: bytes) -> None:
        """Run a check, and mark the file as doubtful if it fails. Raises Gone."""
        try:
            check(*arguments)
        except Gone:
            raise
        except OSError as error:
            self._doubt = self._doubt or error

    # -- one file ----------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        """Whether to continue in another file: after midnight (UTC), or if this one is large,
        doubtful or renamed.

        The clock decides, not the record's time: at midnight, a record of another thread may be
        late.
        """
        now = self._clocks.now()
        # Or the clock was set back.
        is_another_day = now >= self._midnight or now < self._midnight - 2 * DAY
        due = is_another_day or self._file.size >= self._writing.rotate_bytes
        due = due or self._doubt is not None or self._file.is_moved
        return due and self._clocks.monotonic() >= self._next_attempt

    def _rotate(self) -> None:
        """Continue in another file, or in the same one if no other can be begun."""
        left, is_in_doubt = self._file, self._doubt is not None
        try:
            self._replace()
        except OSError:
            self._delay_next_attempt()
            return
        if is_in_doubt:
            self._delay_next_attempt()
        if left.is_moved:
            log.warning(
                "audit log: another process renamed a file to %s; continuing in %s",
                left.path,
                self.path,
            )

    def _may_leave(self, error: OSError) -> bool:
        """Whether another file may accept the record that this one did not. It would not if the
        disk is full; but a file that another process removed must always be left, because readers
        would not find the record there."""
        if self._file.is_foreign:
            return True
        if error.errno in FULL or self._clocks.monotonic() < self._next_attempt:
            return False
        self._delay_next_attempt()
        return True

    def _leave(self, why: OSError) -> None:
        """Continue in another file. Raises AuditLogError."""
        left = self.path
        try:
            self._replace()
        except OSError as error:
            raise AuditLogError(
                f"{left}: {why.strerror}, and no other file can be begun: {error.strerror}"
            ) from error
        log.warning("audit log: %s: %s; continuing in %s", left, why.strerror, self.path)

    def _delay_next_attempt(self) -> None:
        self._next_attempt = self._clocks.monotonic() + PAUSE

    def _replace(self) -> None:
        old = self._file
        make_directory(self._directory, self._files)
        new = self._begin_file()
        self._release(old)
        self._file, self._is_started, self._doubt = new, False, None

    def _release(self, file: LogFile) -> None:
        if self._is_started:
            file.close()
        else:
            file.discard()

    def _begin_file(self) -> LogFile:
        self._segment += 1  # even if creating the file fails, because its name may then be taken
        now = self._clocks.now()
        day = (moment(now) or "0000-00-00")[:10].replace("-", "")
        path = self._directory / (stem_of(day, self.identity.writer, self._segment) + JSONL)
        file = log_file.create(path, self._files, sync=self._writing.fsync)
        self._midnight = _midnight_after(now)
        return file

    def _start(self, at: str | None, head: Head) -> Start:
        previous = self._head
        if self._writing.chain and previous is None:
            self._head = previous = first_hash(self.identity.writer)
            self._last_checkpoint = self._clocks.monotonic()
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
    """The version of this package; cached, because looking it up takes a millisecond."""
    return version("robots_guard")


def _midnight_after(at: float) -> float:
    return at - at % DAY + DAY


def first_hash(writer: str) -> bytes:
    """The hash with which a writer's chain begins."""
    return hashlib.sha256(writer.encode()).digest()


def line_digest(line: bytes) -> bytes:
    """The digest of a line, including its newline."""
    return hashlib.sha256(line).digest()


def next_hash(previous: bytes, digest: bytes) -> bytes:
    """The chain's hash after the line with this digest.

    It covers digests instead of lines, so that a part of a chain can be verified by a reader to whom
    some of its lines are not disclosed.
    """
    return hashlib.sha256(previous + digest).digest()
