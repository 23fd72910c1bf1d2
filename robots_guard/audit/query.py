"""Reading the journal back: all writers' files as one stream.

The law of this file: a journal is read as evidence is, with care. A line that is torn, foreign or hostile is
counted and passed over, never obeyed and never fatal; a record's values stay data. Each file is in order by
itself, so that many are merged without holding them in memory.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from robots_guard.audit.journal import SUFFIX
from robots_guard.audit.record import SCHEMA, Record
from robots_guard.errors import SettingsError

LONGEST_LINE = 64 * 1024  # octets; our own lines are far shorter
PIECE = 64 * 1024

_decoder = msgspec.json.Decoder(Record)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@dataclass(slots=True)
class Trouble:
    """What could not be read, by file: lines that are no records, and files that cannot be opened."""

    lines: dict[Path, int] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.lines or self.files)

    def __str__(self) -> str:
        told = [f"{count} unreadable line{'s'[: count != 1]} in {path.name}" for path, count in self.lines.items()]
        return "; ".join(told + [f"{path.name} cannot be opened ({why})" for path, why in self.files.items()])


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted: those that have every value that is given.

    `since` (inclusive) and `until` (exclusive) are moments as records have them: ISO 8601, UTC, milliseconds.
    """

    id: str | None = None
    since: str | None = None
    until: str | None = None
    origin: str | None = None
    reason: str | None = None
    action: str | None = None
    door: str | None = None
    agent: str | None = None

    def admits(self, record: Record) -> bool:
        """Whether a record is wanted."""
        at = record.at or ""
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        wanted = (self.id, self.origin, self.reason, self.action, self.door)
        found = (record.id, record.origin, record.reason, record.action, record.door)
        if any(want is not None and want != has for want, has in zip(wanted, found, strict=True)):
            return False
        return self.agent is None or self.agent.lower() == record.agent.lower()


def records(directory: Path, wanted: Filter | None = None, trouble: Trouble | None = None) -> Iterator[Record]:
    """The records of a journal in order of time; what cannot be read is counted in `trouble`.

    Raises SettingsError if there is no such directory.
    """
    follower = Follower(directory, Trouble() if trouble is None else trouble)
    return follower.new(wanted or Filter(), last=True)


class Follower:
    """All files of a journal, those too that appear later.

    Each call of `new` gives what has been written since the last, in order of time. A half-written line waits for
    its other half, unless it is the `last` call.
    """

    def __init__(self, directory: Path, trouble: Trouble) -> None:
        self._directory = directory
        self._trouble = trouble
        self._readers: dict[Path, _Reader] = {}

    def new(self, wanted: Filter, *, last: bool = False) -> Iterator[Record]:
        """Records written since the last call. Raises SettingsError if there is no such directory."""
        for path in files(self._directory):
            if path not in self._readers:
                self._readers[path] = _Reader(path, self._trouble)
        streams = [reader.more(last=last) for reader in self._readers.values()]
        return filter(wanted.admits, heapq.merge(*streams, key=_order))


def _order(record: Record) -> tuple[str, str, int]:
    return record.at or "", record.writer, record.seq


def files(directory: Path) -> list[Path]:
    """The journal's files. Raises SettingsError if there is no such directory."""
    try:
        return sorted(Path(entry.path) for entry in os.scandir(directory) if entry.name.endswith(SUFFIX))
    except FileNotFoundError as error:
        raise SettingsError(
            f"nothing has been recorded yet in {str(directory)!r}: name the directory that the doors write to"
        ) from error
    except OSError as error:
        raise SettingsError(
            f"journal: {str(directory)!r} cannot be read ({error.strerror}): name the directory that the doors write to"
        ) from error


class _Reader:
    """One writer's file, read as far as it goes, and again when it has grown.

    Opened for each piece anew, so that a journal may have more files than a process may hold open.
    """

    def __init__(self, path: Path, trouble: Trouble) -> None:
        self._path = path
        self._trouble = trouble
        self._offset = 0
        self._rest = b""
        self._skipping = False  # inside a line that is too long

    def more(self, *, last: bool) -> Iterator[Record]:
        """Records that are whole by now; with `last`, also what stands behind the last line's end."""
        for line in self._lines(last=last):
            record = read_line(line)
            if record is not None:
                yield record
            elif line.strip():
                self._trouble.lines[self._path] = self._trouble.lines.get(self._path, 0) + 1

    def _lines(self, *, last: bool) -> Iterator[bytes]:
        while piece := self._piece():
            *whole, self._rest = (self._rest + piece).split(b"\n")
            if self._skipping and whole:
                self._skipping = False
                del whole[0]
            yield from whole
            if self._skipping or len(self._rest) > LONGEST_LINE:
                if not self._skipping:
                    yield self._rest
                self._rest, self._skipping = b"", True
        if last and self._rest:
            yield self._rest

    def _piece(self) -> bytes:
        try:
            there = self._path.lstat()
            if stat.S_ISREG(there.st_mode) and there.st_size == self._offset:
                return b""
            piece = _read(self._path, self._offset)
        except OSError as error:
            self._trouble.files[self._path] = error.strerror or str(error)
            return b""
        self._offset += len(piece)
        return piece


def _read(path: Path, offset: int) -> bytes:
    """A piece of a regular file. A journal has no symlinks and no pipes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.pread(descriptor, PIECE, offset)
    finally:
        os.close(descriptor)


def read_line(line: bytes) -> Record | None:
    """The record of a line, or None for what is none: torn, of another schema, or without a moment."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        record = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.schema == SCHEMA and record.at and _MOMENT.fullmatch(record.at) else None
