"""Reading the journal back in Python: all files as one stream, in order of time.

The law of this file: a journal is read as evidence is, with care. A line that is torn, foreign or hostile is
counted and passed over, never obeyed and never fatal; a record's values stay data. Each file is in order by
itself, so that many are merged without holding them in memory. Questions over many records go to audit/search.py.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from robots_guard.audit.record import AnyRecord, Record, moment
from robots_guard.audit.segments import JSONL, PARQUET, ZSTD, Segment, segments, why_not_plain
from robots_guard.errors import MissingExtra

LONGEST_LINE = 64 * 1024  # octets; our own lines are far shorter
PIECE = 64 * 1024

DECISION = "decision"
KINDS = ("decision", "repeats", "fetch", "start", "stop", "checkpoint", "store-reset", "fail-open", "overrides")
BY_TIME = '"at", writer, seq'
BY_NUMBER = "writer, seq"

_decoder = msgspec.json.Decoder(AnyRecord)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@dataclass(slots=True)
class Trouble:
    """What could not be read, by file: lines cut off, lines that are no records, and files that cannot be read."""

    torn: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.torn or self.lines or self.files)

    def __str__(self) -> str:
        told = [f"{_lines(count, 'torn')} in {name} (a write was cut off)" for name, count in self.torn.items()]
        told += [f"{_lines(count, 'unreadable')} in {name}" for name, count in self.lines.items()]
        return "; ".join(told + [f"{name} cannot be read ({why})" for name, why in self.files.items()])

    def count(self, name: str, line: bytes) -> None:
        """A line of this file is no record. One that begins as ours do was cut off by a kill or a full disk."""
        counts = self.torn if line.startswith(b'{"kind":"'[: len(line)]) else self.lines
        counts[name] = counts.get(name, 0) + 1


def _lines(count: int, which: str) -> str:
    return f"{count} {which} line{'s'[: count != 1]}"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted: those that have every value that is given.

    `since` (inclusive) and `until` (exclusive) are moments as records have them: ISO 8601, UTC, milliseconds.
    `override` is the id of one, or `any`.
    """

    kind: str | None = DECISION
    id: str | None = None
    since: str | None = None
    until: str | None = None
    origin: str | None = None
    reason: str | None = None
    action: str | None = None
    door: str | None = None
    job: str | None = None
    writer: str | None = None
    rule: str | None = None
    agent: str | None = None
    override: str | None = None

    @property
    def equals(self) -> dict[str, str]:
        """The values that a record must have, by field."""
        names = ("kind", "id", "origin", "reason", "action", "door", "job", "writer", "rule")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def admits(self, entry: AnyRecord) -> bool:
        """Whether a record is wanted."""
        at = entry.at or ""
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        if any(getattr(entry, name, None) != value for name, value in self.equals.items() if name != "kind"):
            return False
        if self.kind is not None and kind_of(entry) != self.kind:
            return False
        if self.agent is not None and self.agent.lower() != getattr(entry, "agent", "").lower():
            return False
        used = getattr(entry, "override", None)
        return self.override is None or (used is not None and self.override in ("any", used))


def kind_of(entry: AnyRecord) -> str:
    """What kind of record this is."""
    return str(entry.__struct_config__.tag)


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,9})\s*(s|min|m|h|d|w)")


def moment_meant(text: str, now: float) -> str:
    """A moment as records have it, from ISO 8601 (UTC unless it says otherwise) or a span before now such as 2h.

    Raises ValueError for what is neither.
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        then = now - int(span[1]) * _UNITS[span[2]]
    else:
        read = datetime.fromisoformat(text.strip())
        then = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    meant = moment(then)
    if meant is None:
        raise ValueError("no moment of the calendar")
    return meant


def records(directory: Path, wanted: Filter | None = None, trouble: Trouble | None = None) -> Iterator[Record]:
    """The decisions of a journal in order of time; what cannot be read is counted in `trouble`.

    Raises SettingsError if there is no such directory.
    """
    return (entry for entry in entries(directory, wanted, trouble) if isinstance(entry, Record))


def entries(directory: Path, wanted: Filter | None = None, trouble: Trouble | None = None) -> Iterator[AnyRecord]:
    """The records of a journal, of the kind that is wanted, in order of time. Raises SettingsError as `records`."""
    follower = Follower(directory, Trouble() if trouble is None else trouble)
    return follower.new(wanted or Filter(), last=True)


class Follower:
    """All files of a journal, those too that appear later.

    Each call of `new` gives what has been written since the last, in order of time. A half-written line waits for
    its other half, unless it is the `last` call. A file that has been compressed meanwhile is read on from where
    it was; what is compacted has been read long before.
    """

    def __init__(self, directory: Path, trouble: Trouble) -> None:
        self._directory = directory
        self._trouble = trouble
        self._readers: dict[str, _Reader] = {}
        self._begun = False

    def new(self, wanted: Filter, *, last: bool = False) -> Iterator[AnyRecord]:
        """Records written since the last call. Raises SettingsError if there is no such directory."""
        for segment in segments(self._directory):
            self._take_in(segment)
        self._begun = True
        streams = [reader.more(last=last) for reader in self._readers.values()]
        return filter(wanted.admits, heapq.merge(*streams, key=_order))

    def latest(self, wanted: Filter, count: int, *, last: bool = False) -> list[AnyRecord]:
        """The latest records of what there is. A file of a day before theirs is not opened."""
        found: list[AnyRecord] = []
        for segment in sorted(segments(self._directory), key=lambda segment: segment.day or "9", reverse=True):
            if len(found) >= count and segment.day and (not count or segment.day < _day(found[0])):
                self._readers[segment.stem] = _Reader(segment, self._trouble, done=True)
                continue
            self._take_in(segment)
            new = filter(wanted.admits, self._readers[segment.stem].more(last=last))
            found = sorted([*found, *new], key=_order)[-count:] if count else list(new)[:0]
        self._begun = True
        return found

    def _take_in(self, segment: Segment) -> None:
        known = self._readers.get(segment.stem)
        if known is None and not (self._begun and segment.form == PARQUET):
            self._readers[segment.stem] = _Reader(segment, self._trouble)
        elif known is not None and known.segment.form != segment.form:
            known.segment = segment


def _order(entry: AnyRecord) -> tuple[str, str, int]:
    return entry.at or "", entry.writer, entry.seq


def _day(entry: AnyRecord) -> str:
    """As the names of files have it."""
    return (entry.at or "")[:10].replace("-", "")


class _Reader:
    """One writer's file, read as far as it goes, and again when it has grown.

    Opened for each piece anew, so that a journal may have more files than a process may hold open.
    """

    def __init__(self, segment: Segment, trouble: Trouble, *, done: bool = False, order: str = BY_TIME) -> None:
        self.segment = segment
        self._trouble = trouble
        self._order = order
        self._offset = _size(segment.path) if done else 0  # of octets as they were written
        self._ended = done and segment.form != JSONL
        self._rest = b""
        self._skipping = False  # inside a line that is too long

    def more(self, *, last: bool) -> Iterator[AnyRecord]:
        """Records that are whole by now; with `last`, also what stands behind the last line's end."""
        for line in self.lines(last=last):
            entry = read_line(line)
            if entry is not None:
                yield entry
            elif line.strip():
                self._trouble.count(self.segment.path.name, line)

    def lines(self, *, last: bool) -> Iterator[bytes]:
        """Lines that are whole by now; with `last`, also what stands behind the last line's end."""
        for piece in self._pieces():
            *whole, self._rest = (self._rest + piece).split(b"\n")
            if self._skipping and whole:
                self._skipping = False
                del whole[0]
            yield from whole
            if self._skipping or len(self._rest) > LONGEST_LINE:
                if not self._skipping:
                    yield self._rest
                self._rest, self._skipping = b"", True
        if self._rest and (last or self.segment.form != JSONL):
            yield self._rest
            self._rest = b""

    def _pieces(self) -> Iterator[bytes]:
        if self._ended:
            return
        try:
            if self.segment.form == JSONL:
                yield from self._written()
            else:
                self._ended = True
                yield from _unpacked(self.segment, self._order, self._offset)
        except (OSError, MissingExtra) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._trouble.files[self.segment.path.name] = why

    def _written(self) -> Iterator[bytes]:
        while piece := self._piece():
            self._offset += len(piece)
            yield piece

    def _piece(self) -> bytes:
        there = self.segment.path.lstat()
        if stat.S_ISREG(there.st_mode) and there.st_size == self._offset:
            return b""
        return _read(self.segment.path, self._offset)


def lines_by_number(segment: Segment, trouble: Trouble) -> Iterator[bytes]:
    """All lines of a file, without their ends, by writer and number."""
    return _Reader(segment, trouble, order=BY_NUMBER).lines(last=True)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _read(path: Path, offset: int) -> bytes:
    """A piece of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.pread(descriptor, PIECE, offset)
    finally:
        os.close(descriptor)


def _unpacked(segment: Segment, order: str, skip: int) -> Iterator[bytes]:
    """The octets of a closed file as they were written, without the first. Raises OSError and MissingExtra."""
    if why := why_not_plain(segment.path):
        raise OSError(errno.EINVAL, why)
    pieces = unpacked(segment.path) if segment.form == ZSTD else _compacted(segment.path, order)
    for piece in pieces:
        yield piece[skip:]
        skip = max(0, skip - len(piece))


def unpacked(path: Path) -> Iterator[bytes]:
    """What a compressed file holds, in pieces. Raises OSError, also for damage, and MissingExtra."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra("audit", "a compressed journal") from error
    try:
        whole, done = zstandard.get_frame_parameters(_read(path, 0)).content_size, 0
        with path.open("rb") as packed:
            for piece in zstandard.ZstdDecompressor().read_to_iter(packed, read_size=PIECE):
                done += len(piece)
                yield piece
        if whole != zstandard.CONTENTSIZE_UNKNOWN and done < whole:
            raise OSError(errno.EIO, f"damaged: only {done} of its {whole} octets are there")
    except zstandard.ZstdError as error:
        raise OSError(errno.EIO, f"damaged: {error}") from error


def _compacted(path: Path, order: str) -> Iterator[bytes]:
    from robots_guard.audit.compact import lines_of

    return lines_of(path, order)


def read_line(line: bytes) -> AnyRecord | None:
    """The record of a line, or None for what is none: torn, of another schema, or without a moment."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entry if entry.at and _MOMENT.fullmatch(entry.at) else None
