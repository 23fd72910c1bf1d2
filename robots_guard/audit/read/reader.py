"""Reading the audit log in Python: all files as one stream of records, in order of time.

Invariant: a line that is torn, foreign or hostile is counted and skipped; it is never interpreted
and never fatal. Each file is ordered, so that many files are merged without loading them into
memory. If a file is compressed while it is read, reading continues in its replacement:
no record is missed, and none is read twice. For queries over many records, see
audit/read/search.py.

A robots.txt file of the operator is in several records, each of kind `pinned`. Invariant: its text
is returned only if it has the SHA-256 that its records state.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from robots_guard.audit.read.resource import Resource, is_of_host, prefix_of, resource_of
from robots_guard.audit.record import SCHEMA, AnyRecord, PinnedRecord, Record, SignalsRecord, moment
from robots_guard.audit.segments import JSONL, Segment, segments
from robots_guard.decisions.component import Component
from robots_guard.decisions.verdict import Action
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.text import counted


def pinned_texts(entries: Iterable[AnyRecord]) -> dict[str, bytes]:
    """Return the files of which all parts are among some records, by their SHA-256."""
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for entry in entries:
        if isinstance(entry, PinnedRecord):
            parts.setdefault((entry.sha256, entry.parts), {})[entry.part] = entry.text
    found = {}
    for (sha256, count), texts in parts.items():
        body = _body(texts, count)
        if body is not None and hashlib.sha256(body).hexdigest() == sha256:
            found[sha256] = body
    return found


def _body(texts: dict[int, str], count: int) -> bytes | None:
    """The bytes of a file of so many parts; None if one is missing or is not as it is written."""
    if len(texts) != count:
        return None
    try:
        return "".join(texts[number] for number in range(1, count + 1)).encode("latin-1")
    except (KeyError, UnicodeEncodeError):
        return None


LONGEST_LINE = 64 * 1024  # bytes; the writer's own lines are far shorter
PIECE = 64 * 1024  # bytes
FORMS = 3  # the forms of a file while it is read: open, compressed, gone

DECISION = "decision"
COMPONENTS = tuple(each.value for each in Component)
KINDS = (
    "decision",
    "signals",
    "passes",
    "fetch",
    "start",
    "stop",
    "checkpoint",
    "store-reset",
    "fail-open",
    "overrides",
    "pinned",
    "hold",
    "removal",
)

_decoder = msgspec.json.Decoder(AnyRecord)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Newer(NamedTuple):
    """The number of records of a later version in a file, and the highest of their schemas."""

    records: int
    schema: int


class _Versioned(msgspec.Struct):
    """What a record of any version has."""

    schema: int
    kind: str


_versioned = msgspec.json.Decoder(_Versioned)


def _newer_schema(line: bytes) -> int | None:
    """The schema of a record of a later version, or None."""
    try:
        schema = _versioned.decode(line).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if schema > SCHEMA:
        return schema
    return None


def _is_torn(line: bytes) -> bool:
    """Whether a kill or a full disk may have cut a line off: it begins as records do, and has no
    end. Other programs read a line that has one."""
    if not line.startswith(b'{"kind":"'[: len(line)]):
        return False
    try:
        json.loads(line)
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


@dataclass(slots=True)
class Unreadable:
    """What could not be read, by file: torn lines, lines that are not records, unreadable files,
    and the records of a later version, with the highest of their schemas."""

    torn: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    newer: dict[str, Newer] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.torn or self.lines or self.files or self.newer)

    @property
    def has_lines(self) -> bool:
        """Whether there are lines that could not be read, torn ones aside."""
        return bool(self.lines or self.newer)

    def __str__(self) -> str:
        parts = [
            f"{counted(count, 'torn line')} in {name} (a write was cut off)"
            for name, count in self.torn.items()
        ]
        parts += [
            f"{counted(count, 'unreadable line')} in {name}" for name, count in self.lines.items()
        ]
        parts += [
            f"{counted(found.records, 'record')} in {name} written by a newer robots_guard (schema {found.schema}):"
            " update robots_guard to read them"
            for name, found in self.newer.items()
        ]
        parts += [f"{name} cannot be read ({why})" for name, why in self.files.items()]
        return "; ".join(parts)

    def add(self, other: Unreadable) -> None:
        """Add what another reader could not read."""
        self.torn |= other.torn
        self.lines |= other.lines
        self.files |= other.files
        self.newer |= other.newer

    def count(self, name: str, line: bytes) -> None:
        """Count a line of this file that is not a record."""
        schema = _newer_schema(line)
        if schema is not None:
            known = self.newer.get(name, Newer(0, 0))
            self.newer[name] = Newer(known.records + 1, max(schema, known.schema))
            return
        counts = self.torn if _is_torn(line) else self.lines
        counts[name] = counts.get(name, 0) + 1


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the records that have all given values.

    `since` (inclusive) and `until` (exclusive) are moments as in records: ISO 8601, UTC,
    milliseconds. `override` is an override's id, or `any`. `url` is a URL in any spelling,
    `url_prefix` how URLs begin, and `host` a host, with or without its port (see resource.py);
    `key` is that with which the audit log hashes the values of queries, in hexadecimal. The kind
    `decision` also selects the decisions on responses that were refused, or only passed because of
    a setting, although their kind is `signals`.
    """

    kind: str | None = DECISION
    id: str | None = None
    since: str | None = None
    until: str | None = None
    origin: str | None = None
    reason: str | None = None
    action: str | None = None
    component: str | None = None
    job: str | None = None
    writer: str | None = None
    rule: str | None = None
    agent: str | None = None
    override: str | None = None
    url: str | None = None
    url_prefix: str | None = None
    host: str | None = None
    key: str = ""

    @property
    def resource(self) -> Resource | None:
        """What `url` names. Raises SettingsError."""
        if self.url is None:
            return None
        return resource_of(self.url, bytes.fromhex(self.key))

    @property
    def equals(self) -> dict[str, str]:
        """The values that a record must have, by field name."""
        names = ("id", "origin", "reason", "action", "component", "job", "writer", "rule")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def admits_kind(self, entry: AnyRecord) -> bool:
        """Whether the filter selects a record by its kind."""
        kind = kind_of(entry)
        if self.kind == DECISION and isinstance(entry, SignalsRecord):
            return entry.action != Action.PASS or bool(entry.would or entry.relaxed)
        return self.kind is None or kind == self.kind

    def admits(self, entry: AnyRecord) -> bool:
        """Whether the filter selects a record."""
        at = entry.at or ""
        if (self.since is not None and at < self.since) or (
            self.until is not None and at >= self.until
        ):
            return False
        if any(getattr(entry, name, None) != value for name, value in self.equals.items()):
            return False
        if not self.admits_kind(entry):
            return False
        if self.agent is not None and self.agent.lower() != getattr(entry, "agent", "").lower():
            return False
        if not self._admits_place(entry):
            return False
        override = getattr(entry, "override", None)
        return self.override is None or (
            override is not None and self.override in ("any", override)
        )

    def _admits_place(self, entry: AnyRecord) -> bool:
        url, resource = getattr(entry, "url", ""), self.resource
        if resource is not None and not resource.is_named_by(url):
            return False
        if self.url_prefix is not None and not prefix_of(self.url_prefix).is_of(url):
            return False
        return self.host is None or is_of_host(getattr(entry, "origin", ""), self.host)


def kind_of(entry: AnyRecord) -> str:
    """The kind of a record, one of KINDS."""
    return str(entry.__struct_config__.tag)


class Period(NamedTuple):
    """A period between two moments as in records; `ends` is None if it has no end, or if a moment
    was meant."""

    begins: str
    ends: str | None = None


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,9})\s*(s|min|m|h|d|w)(?:\s+ago)?")
#: Periods by their names: the hours of local time at which they begin and end, counted from the
#: last midnight.
_NAMED = {
    "last night": (-6, 8),
    "yesterday": (-24, 0),
    "today": (0, None),
    "this morning": (0, 12),
}
_KNOWN = (
    "use a span such as 90s, 30m, 2h or 7d, a time such as 2026-11-20T08:00 (UTC), or one of "
    + ", ".join(_NAMED)
)


def moment_meant(text: str, now: float) -> str:
    """A moment as in records, from ISO 8601 (UTC unless it has an offset), from a span before now
    such as 2h, or the beginning of a named period such as "last night".

    Raises SettingsError for any other text.
    """
    return period_meant(text, now).begins


def period_meant(text: str, now: float) -> Period:
    """The period that a text means; with an end only if it is a named one (in the system's time
    zone).

    "last night" is from 18:00 on the day before to 08:00, "yesterday" the whole day, "today" from
    midnight on, "this morning" until 12:00. Raises SettingsError for any other text.
    """
    begins = ends = None
    with suppress(ValueError, OverflowError, OSError):
        named = " ".join(text.lower().replace("-", " ").split())
        if named in _NAMED:
            first, last = _NAMED[named]
            begins = moment(_local_hour(now, first))
            ends = None if last is None else moment(_local_hour(now, last))
        else:
            begins = moment(_seconds_meant(text.strip(), now))
    if begins is None:
        raise SettingsError(f"{text[:40]!r} is not a time: {_KNOWN}")
    return Period(begins, ends)


def _local_hour(now: float, hours: int) -> float:
    """The time so many hours after the last midnight, as clocks of the system's time zone show
    it."""
    midnight = datetime.combine(datetime.fromtimestamp(now).date(), time())  # noqa: DTZ006  (local)
    return (midnight + timedelta(hours=hours)).timestamp()


def _seconds_meant(text: str, now: float) -> float:
    span = _SPAN.fullmatch(text)
    if span:
        return now - int(span[1]) * _UNITS[span[2]]
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return at.timestamp()


def records(
    directory: Path, wanted: Filter | None = None, trouble: Unreadable | None = None
) -> Iterator[Record]:
    """The decisions in an audit log, in order of time. What cannot be read is counted in `trouble`.

    Raises SettingsError if there is no such directory.
    """
    return (entry for entry in entries(directory, wanted, trouble) if isinstance(entry, Record))


def entries(
    directory: Path, wanted: Filter | None = None, trouble: Unreadable | None = None
) -> Iterator[AnyRecord]:
    """The records in an audit log that the filter selects, in order of time. Raises SettingsError
    as `records` does."""
    follower = Follower(directory, Unreadable() if trouble is None else trouble)
    return follower.new(wanted or Filter(), last=True)


class Follower:
    """Follows all files of an audit log, including those that appear later.

    Each call of `new` returns what has been written since the previous call, in order of time. An
    incomplete line is returned by a later call, or by the `last` one. If a file has been compressed
    meanwhile, reading continues at the same place.
    """

    def __init__(self, directory: Path, trouble: Unreadable) -> None:
        self._directory = directory
        self._trouble = trouble
        self._readers: dict[str, Reader] = {}

    def new(self, wanted: Filter, *, last: bool = False) -> Iterator[AnyRecord]:
        """Records written since the last call. Raises SettingsError if there is no such directory."""
        for segment in segments(self._directory):
            self._take_in(segment)
        streams = [reader.more(last=last) for reader in self._readers.values()]
        return filter(wanted.admits, heapq.merge(*streams, key=_order))

    def latest(self, wanted: Filter, count: int, *, last: bool = False) -> list[AnyRecord]:
        """The latest `count` of the existing records. Files of earlier days than theirs are not
        opened."""
        found: list[AnyRecord] = []
        for segment in sorted(
            segments(self._directory), key=lambda segment: segment.day or "9", reverse=True
        ):
            if len(found) >= count and segment.day and (not count or segment.day < _day(found[0])):
                self._add(segment, done=True)
                continue
            self._take_in(segment)
            new = filter(wanted.admits, self._readers[segment.stem].more(last=last))
            found = sorted([*found, *new], key=_order)
            found = found[-count:] if count else []
        return found

    def _take_in(self, segment: Segment) -> None:
        known = self._readers.get(segment.stem)
        if known is not None:
            known.follow(segment)
        else:
            self._add(segment)

    def _add(self, segment: Segment, *, done: bool = False) -> None:
        self._readers[segment.stem] = Reader(segment, self._trouble, done=done)


def _order(entry: AnyRecord) -> tuple[str, str, int]:
    return entry.at or "", entry.writer, entry.seq


def _day(entry: AnyRecord) -> str:
    """The day of a record in the notation of file names."""
    return (entry.at or "")[:10].replace("-", "")


class Reader:
    """Reads one writer's file to its end, and again when it has grown.

    The file is opened anew for each piece, because an audit log may have more files than a process
    can open at once. If the file is gone, reading continues at the same place in its replacement.
    With `done`, the present content counts as read.
    """

    def __init__(self, segment: Segment, trouble: Unreadable, *, done: bool = False) -> None:
        self.segment = segment
        self._trouble = trouble
        self._offset = _size(segment.path) if done else 0  # in uncompressed bytes
        self._has_ended = done and segment.form != JSONL
        self._rest = b""
        self._is_skipping = False  # inside a line that is too long

    def follow(self, segment: Segment) -> None:
        """Continue with this form of the file."""
        self.segment = segment

    def more(self, *, last: bool) -> Iterator[AnyRecord]:
        """The further complete records; with `last`, also one whose line has no newline."""
        return (entry for _, entry in self.lines(last=last))

    def lines(self, *, last: bool) -> Iterator[tuple[bytes, AnyRecord]]:
        """The same records, each with its line."""
        for line in self._lines(last=last):
            entry = read_line(line)
            if entry is not None:
                yield line, entry
            elif line.strip():
                self._trouble.count(self.segment.path.name, line)

    def _lines(self, *, last: bool) -> Iterator[bytes]:
        for piece in self._pieces():
            *whole, self._rest = (self._rest + piece).split(b"\n")
            if self._is_skipping and whole:
                self._is_skipping = False
                del whole[0]
            yield from whole
            if self._is_skipping or len(self._rest) > LONGEST_LINE:
                if not self._is_skipping:
                    yield self._rest
                self._rest, self._is_skipping = b"", True
        if self._rest and (last or self.segment.form != JSONL):
            yield self._rest
            self._rest = b""

    def _pieces(self) -> Iterator[bytes]:
        for _ in range(FORMS):
            if self._has_ended:
                return
            try:
                if self.segment.form == JSONL:
                    yield from self._read_on()
                else:
                    yield from _skip_bytes(self._offset, pieces_of(self.segment))
                self._has_ended = self.segment.form != JSONL
                return
            except FileNotFoundError:  # raised only between pieces
                self._has_ended = not self._find_replacement()
            except (OSError, MissingExtra) as error:
                self._has_ended = self.segment.form != JSONL
                self._trouble.files[self.segment.path.name] = getattr(
                    error, "strerror", None
                ) or str(error)
                return

    def _find_replacement(self) -> bool:
        """Continue with the file that replaced this one. False if there is none, as after removal
        by retention."""
        try:
            present = segments(self.segment.path.parent)
        except SettingsError as error:
            self._trouble.files[self.segment.path.name] = str(error)
            return False
        for segment in present:
            if segment.stem == self.segment.stem:
                self.segment = segment
                return True
        return False

    def _read_on(self) -> Iterator[bytes]:
        while piece := self._next_piece():
            self._offset += len(piece)
            yield piece

    def _next_piece(self) -> bytes:
        state = self.segment.path.lstat()
        if stat.S_ISREG(state.st_mode) and state.st_size == self._offset:
            return b""
        return _read(self.segment.path, self._offset)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _check_regular(path: Path) -> None:
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


def pieces_of(segment: Segment) -> Iterator[bytes]:
    """The lines of a file, in pieces. Raises OSError, also for damage, and MissingExtra."""
    if segment.form == JSONL:
        offset = 0
        while piece := _read(segment.path, offset):
            yield piece
            offset += len(piece)
        return
    _check_regular(segment.path)
    yield from unpacked(segment.path)


def _skip_bytes(skip: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces without the first `skip` bytes."""
    for piece in pieces:
        yield piece[skip:]
        skip = max(0, skip - len(piece))


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a compressed file, in pieces. Raises OSError, also for damage, and
    MissingExtra."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra("audit", "a compressed audit log") from error
    try:
        whole, done = zstandard.get_frame_parameters(_read(path, 0)).content_size, 0
        # Other programs read all frames of a file; what is no frame is damage.
        unpacker = zstandard.ZstdDecompressor()
        with (
            path.open("rb") as file,
            unpacker.stream_reader(file, read_across_frames=True) as plain,
        ):
            while piece := plain.read(PIECE):
                done += len(piece)
                yield piece
        if whole != zstandard.CONTENTSIZE_UNKNOWN and done < whole:
            raise OSError(errno.EIO, f"damaged: only {done} of its {whole} bytes are there")
    except zstandard.ZstdError as error:
        raise OSError(errno.EIO, f"damaged: {error}") from error


def copy_records(segment: Segment, directory: Path, trouble: Unreadable) -> Path:
    """Copy the records of a file, as they were written, into a new file, which DuckDB can read
    whatever else the original contains. Raises OSError."""
    copy = directory / f"{segment.stem}{JSONL}"
    with copy.open("wb") as file:
        file.writelines(line + b"\n" for line, _ in Reader(segment, trouble).lines(last=True))
    return copy


def read_line(line: bytes) -> AnyRecord | None:
    """The record of a line; None if the line is not a record: torn, of another schema, or without a
    time."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        entry: AnyRecord = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not entry.at or not _MOMENT.fullmatch(entry.at):
        return None
    return entry
