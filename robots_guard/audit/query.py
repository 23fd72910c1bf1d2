"""Reading the journal back in Python: all files as one stream, in order of time.

The law of this file: a journal is read as evidence is, with care. A line that is torn, foreign or hostile is
counted and passed over, never obeyed and never fatal; a record's values stay data. Each file is in order by
itself, so that many are merged without holding them in memory. A file that is compressed or compacted while it is
read is gone on with in what has taken its place: no record is missed, and none is read twice. Questions over many
records go to audit/search.py.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from robots_guard.audit.record import AnyRecord, Record, moment
from robots_guard.audit.segments import JSONL, PARQUET, ZSTD, Segment, segments, why_not_plain
from robots_guard.errors import MissingExtra, SettingsError

LONGEST_LINE = 64 * 1024  # octets; our own lines are far shorter
PIECE = 64 * 1024
FORMS = 4  # a file can take while it is read: written, compressed, compacted, gone
ALL = 2**62  # further than any record's number

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

    def add(self, other: Trouble) -> None:
        """What could not be read elsewhere, too."""
        self.torn |= other.torn
        self.lines |= other.lines
        self.files |= other.files

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
    its other half, unless it is the `last` call. A file that has been compressed or compacted meanwhile is read on
    from where it was.
    """

    def __init__(self, directory: Path, trouble: Trouble) -> None:
        self._directory = directory
        self._trouble = trouble
        self._readers: dict[str, Reader] = {}
        self._apart: set[str] = set()  # compacted files that are read by themselves
        self._known: set[str] = set()  # ... and those that came later: their records are read as what they were
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
                self._add(segment, done=True)
                continue
            self._take_in(segment)
            new = filter(wanted.admits, self._readers[segment.stem].more(last=last))
            found = sorted([*found, *new], key=_order)[-count:] if count else list(new)[:0]
        self._begun = True
        return found

    def _take_in(self, segment: Segment) -> None:
        known = self._readers.get(segment.stem)
        if known is not None:
            known.follow(segment)
        elif self._begun and segment.form == PARQUET:
            self._take_apart(segment)
        else:
            self._add(segment)

    def _take_apart(self, compacted: Segment) -> None:
        """Files that were begun and compacted since the last call."""
        if compacted.stem in self._known:
            return
        self._known.add(compacted.stem)
        for stem in _stems_in(compacted.path) - self._readers.keys():
            self._add(Segment(self._directory / f"{stem}{JSONL}", stem, JSONL))

    def _add(self, segment: Segment, *, done: bool = False) -> None:
        if segment.form == PARQUET:
            self._apart.add(segment.stem)
        self._readers[segment.stem] = Reader(segment, self._trouble, apart=self._apart, done=done)


def _order(entry: AnyRecord) -> tuple[str, str, int]:
    return entry.at or "", entry.writer, entry.seq


def _day(entry: AnyRecord) -> str:
    """As the names of files have it."""
    return (entry.at or "")[:10].replace("-", "")


class Reader:
    """One writer's file, read as far as it goes, and again when it has grown.

    Opened for each piece anew, so that a journal may have more files than a process may hold open. Where the file is
    gone, what has taken its place is read on from where this one was; `apart` are the compacted files that other
    readers read. With `done`, what there is counts as read.
    """

    def __init__(
        self,
        segment: Segment,
        trouble: Trouble,
        *,
        apart: Collection[str] = (),
        done: bool = False,
        order: str = BY_TIME,
    ) -> None:
        self.segment = segment
        self._stem = segment.stem
        self._trouble = trouble
        self._apart = apart
        self._order = order
        self._offset = _size(segment.path) if done else 0  # of octets as they were written
        self._reached = ALL if done else 0  # the number of the last record read
        self._ended = done and segment.form != JSONL
        self._rest = b""
        self._skipping = False  # inside a line that is too long

    def follow(self, segment: Segment) -> None:
        """Go on with this form of the file."""
        self.segment = segment

    def more(self, *, last: bool) -> Iterator[AnyRecord]:
        """Records that are whole by now; with `last`, also what stands behind the last line's end."""
        return (entry for _, entry in self.lines(last=last))

    def lines(self, *, last: bool) -> Iterator[tuple[bytes, AnyRecord]]:
        """The same, each with its line."""
        for line in self._lines(last=last):
            entry = read_line(line)
            if entry is not None:
                self._reached = max(self._reached, entry.seq)
                yield line, entry
            elif line.strip():
                self._trouble.count(self.segment.path.name, line)

    def _lines(self, *, last: bool) -> Iterator[bytes]:
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
        for _ in range(FORMS):
            if self._ended:
                return
            try:
                yield from self._octets()
                self._ended = self.segment.form != JSONL
                return
            except FileNotFoundError:  # never in the middle of a piece
                self._ended = not self._has_moved()
            except (OSError, MissingExtra) as error:
                self._ended = self.segment.form != JSONL
                self._trouble.files[self.segment.path.name] = getattr(error, "strerror", None) or str(error)
                return

    def _octets(self) -> Iterator[bytes]:
        path, form = self.segment.path, self.segment.form
        if form == JSONL:
            return self._written()
        _insist_on_plain(path)
        if form == ZSTD:
            return _from(self._offset, unpacked(path))
        if self.segment.stem == self._stem:
            return _compacted(path, self._order)
        return _taken_from(path, self._stem, self._reached)

    def _has_moved(self) -> bool:
        """Whether there is something to go on with. What was removed by retention is simply no longer there."""
        if self.segment.form == PARQUET:
            return False
        try:
            there = segments(self.segment.path.parent)
        except SettingsError as error:
            self._trouble.files[self.segment.path.name] = str(error)
            return False
        for segment in there:
            is_other = segment.form == PARQUET and segment.stem not in self._apart and segment.day == self.segment.day
            if segment.stem == self._stem or (is_other and self._stem in _stems_in(segment.path)):
                self.segment = segment
                self._rest = b"" if is_other else self._rest  # a compacted file has whole lines only
                return True
        return False

    def _written(self) -> Iterator[bytes]:
        while piece := self._piece():
            self._offset += len(piece)
            yield piece

    def _piece(self) -> bytes:
        there = self.segment.path.lstat()
        if stat.S_ISREG(there.st_mode) and there.st_size == self._offset:
            return b""
        return _read(self.segment.path, self._offset)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _insist_on_plain(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _read(path: Path, offset: int) -> bytes:
    """A piece of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.pread(descriptor, PIECE, offset)
    finally:
        os.close(descriptor)


def _from(skip: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Octets without the first."""
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


def _taken_from(path: Path, stem: str, after: int) -> Iterator[bytes]:
    from robots_guard.audit.compact import lines_of_stem

    return lines_of_stem(path, stem, after)


def _stems_in(path: Path) -> set[str]:
    from robots_guard.audit.compact import stems_in

    return set() if why_not_plain(path) else stems_in(path)


def read_line(line: bytes) -> AnyRecord | None:
    """The record of a line, or None for what is none: torn, of another schema, or without a moment."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entry if entry.at and _MOMENT.fullmatch(entry.at) else None
