"""The journal: one append-only file of JSON lines a writer, in a directory all doors share.

The law of this file: one write(2) a record, before the verdict is released. What a killed process has
acknowledged is therefore in the file; nothing is buffered and no queue stands between. A record that could not
be written leaves a gap in the numbers, and the next one begins on a line of its own.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from pathlib import Path

from robots_guard.audit.record import Record, record_of
from robots_guard.core.verdict import Action, Decision, Reason
from robots_guard.errors import JournalError, SettingsError

SUFFIX = ".jsonl"
# Never through a symlink, never into a file that is there already: a file has one writer.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class FileJournal:
    """A Journal in a directory, which is created if need be.

    DROP and DEFER are always recorded, and so is a PASS that some relaxation or exemption made; any other PASS
    only with `passes`. May be called from any thread; after a fork, the child begins a file of its own. Raises
    SettingsError if no file can be made there.
    """

    def __init__(self, directory: Path, *, passes: bool) -> None:
        self.directory = directory
        self._passes = passes
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._file = _File(directory)
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            raise SettingsError(
                f"journal: no file can be written in {str(directory)!r} ({why}):"
                " name a directory that can be written to"
            ) from error

    @property
    def path(self) -> Path:
        """The file of this writer."""
        return self._file.path

    def write(self, decision: Decision) -> None:
        """Record a decision, if it is one to be recorded. Raises JournalError when it could not be."""
        if not is_recorded(decision, passes=self._passes):
            return
        try:
            if os.getpid() != self._file.pid:
                self._file = _File(self.directory)
            self._file.append(decision)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file, and remove it if nothing was ever written."""
        self._file.close()


class _File:
    """The file of one writer, which is one process. A forked child leaves its parent's alone, lock and all."""

    def __init__(self, directory: Path) -> None:
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
        self.pid = os.getpid()
        self.writer = f"{host}-{self.pid}-{secrets.token_hex(4)}"
        self.path = directory / f"{self.writer}{SUFFIX}"
        self._descriptor = os.open(self.path, _FLAGS, 0o640)
        self._lock = threading.Lock()
        self._seq = 0
        self._torn = False

    def append(self, decision: Decision) -> None:
        """One record, one write. Raises JournalError if it was cut short, OSError if it failed."""
        with self._lock:
            self._seq += 1  # also when it fails: the gap shows that a record is missing
            line = record_of(decision, seq=self._seq, writer=self.writer).line_of_json()
            if self._torn:
                line = b"\n" + line
            self._torn = True
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise JournalError(f"{self.path}: only {written} of {len(line)} octets could be written")
            self._torn = False

    def close(self) -> None:
        """Close; a file without a record goes."""
        with self._lock:
            if self._descriptor < 0 or os.getpid() != self.pid:
                return
            if os.fstat(self._descriptor).st_size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


class CapturingJournal:
    """A Journal in memory, for tests: every record, every PASS included, in `records`."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, decision: Decision) -> None:
        """Keep the record."""
        self.records.append(record_of(decision, seq=len(self.records) + 1, writer="captured"))

    def close(self) -> None:
        """Nothing to release."""


def is_recorded(decision: Decision, *, passes: bool) -> bool:
    """Whether a decision is written down: all that refuse, and all that were let through by somebody's choice."""
    verdict = decision.verdict
    return (
        passes or verdict.action is not Action.PASS or verdict.relaxed is not None or verdict.reason is Reason.BYPASSED
    )
