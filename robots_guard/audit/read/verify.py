"""Verification of an audit log: it finds gaps, edits and torn lines, by writer.

Invariant: it reports what it found and what may have caused it, and concludes no more. The hash
chain shows that lines were changed in the middle. A user with write access can replace the whole
log with a new chain; only a copy of the chain's head kept elsewhere reveals that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from robots_guard.audit.read.parquet import count_tampered_rows
from robots_guard.audit.read.reader import BY_NUMBER, Reader, Unreadable, kind_of
from robots_guard.audit.record import AnyRecord, Checkpoint, Start, Stop
from robots_guard.audit.segments import JSONL, PARQUET, Segment, is_gone, parts_of, segments
from robots_guard.audit.write.maintenance import try_lock
from robots_guard.audit.write.writer import first_hash, line_digest, next_hash

MAX_ATTEMPTS = 5  # while files disappear
_Line = tuple[bytes, AnyRecord, Segment]


@dataclass(slots=True)
class WriterFinding:
    """The findings on one writer. `problems` are signs of loss or tampering; `notes` may be
    harmless."""

    writer: str
    records: int = 0
    first: int = 0
    last: int = 0
    chain: str = "none"  # none, whole or broken
    head: str = ""
    stopped: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Check:
    """Checks the lines of one writer, in order of their numbers."""

    def __init__(self, writer: str) -> None:
        self.found = WriterFinding(writer)
        self._head: bytes | None = None
        self._confirmed = 0  # the last number that the chain confirms

    def add(self, line: bytes, entry: AnyRecord) -> None:
        """Check the next line."""
        if not self.found.records and not isinstance(entry, Start):
            self.found.problems.append(
                f"begins with a {kind_of(entry)} at {entry.seq}, not with a start"
            )
        self._check_number(entry.seq)
        match entry:
            case Start(chain="sha256"):
                self._check_start(entry)
            case Checkpoint() if self._head is None:
                self._report_broken("has a checkpoint without a chain: a start record was changed")
            case Checkpoint():
                self._check_head(entry.head, entry.seq)
            case Stop():
                self.found.stopped = True
                if entry.lost:
                    self.found.notes.append(
                        f"reports that {entry.lost} records could not be written"
                    )
            case _:
                pass
        if self._head is not None:
            self._head = next_hash(self._head, line_digest(line))
            self.found.head = self._head.hex()

    def _check_number(self, seq: int) -> None:
        found = self.found
        if not found.records:
            found.first = seq
            if seq != 1:
                found.notes.append(f"begins at {seq}: earlier files are gone")
        elif seq > found.last + 1:
            found.problems.append(
                f"{_span(found.last + 1, seq - 1)} missing: not written (full disk, I/O error), or removed"
            )
        elif seq <= found.last:
            found.problems.append(f"{seq} follows {found.last}")
        found.records += 1
        found.last = max(seq, found.last)

    def _check_start(self, start: Start) -> None:
        stated = start.previous or ""
        if self._head is None:
            self.found.chain = "whole"
            self._head = first_hash(self.found.writer)
            if self.found.first != 1:
                # The earlier lines are missing, so the stated hash cannot be checked.
                self._head = _from_hex(stated)
        self._check_head(stated, start.seq)

    def report_stray_line(self, path: Path) -> None:
        """Report that a line of this writer is in another writer's file."""
        problem = f"has lines in {path.name}, which is not its own"
        if problem not in self.found.problems:
            self.found.problems.append(problem)

    def finish(self, *, is_open: bool) -> None:
        """Finish the check after the last line. `is_open` says that the writer still has a file
        open."""
        found = self.found
        if not found.records:
            found.notes.append("has written no record")
        if not found.stopped and is_open:
            found.notes.append("is being written")
        elif not found.stopped:
            found.notes.append("ends without a stop: killed, or an I/O error")
        if self._head is not None and self._confirmed < found.last - 1:
            found.notes.append(f"no checkpoint confirms {self._confirmed + 1} to {found.last}")

    def _report_broken(self, problem: str) -> None:
        self.found.chain = "broken"
        if problem not in self.found.problems:
            self.found.problems.append(problem)

    def _check_head(self, stated: str, seq: int) -> None:
        if self._head is None:
            return
        if self._head.hex() != stated:
            self._report_broken(
                f"the chain breaks: a line from {self._confirmed + 1} to {seq - 1} was changed"
            )
            self._head = _from_hex(stated)
        self._confirmed = seq - 1


def verify(directory: Path, trouble: Unreadable) -> list[WriterFinding]:
    """The findings by writer. What cannot be read is counted in `trouble`. Raises SettingsError.

    If present are problems and files have disappeared meanwhile, verification is repeated, so that
    no writer is blamed for files that were compressed, compacted or removed during verification.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        present, found = segments(directory), Unreadable()
        findings = _findings(present, found)
        is_wrong = found.lines or found.files or any(each.problems for each in findings)
        if attempt == MAX_ATTEMPTS or not (is_wrong and any(map(is_gone, present))):
            break
    trouble.add(found)
    return findings


def _findings(present: list[Segment], trouble: Unreadable) -> list[WriterFinding]:
    checks: dict[str, _Check] = {}
    for line, entry, segment in heapq.merge(
        *_streams(present, trouble), key=lambda each: (each[1].writer, each[1].seq)
    ):
        check = checks.setdefault(entry.writer, _Check(entry.writer))
        check.add(line, entry)
        if segment.day and segment.form != PARQUET and _writer(segment) != entry.writer:
            check.report_stray_line(segment.path)
    for writer in _writers(present):
        # Includes a writer killed before its first record.
        checks.setdefault(writer, _Check(writer))
    _finish(checks, present)
    _find_tampered_rows(present, trouble)
    return [check.found for check in checks.values()]


def _streams(present: list[Segment], trouble: Unreadable) -> Iterator[Iterator[_Line]]:
    apart = {segment.stem for segment in present if segment.form == PARQUET}
    for segment in present:
        yield _read(segment, Reader(segment, trouble, apart=apart, order=BY_NUMBER))


def _read(segment: Segment, reader: Reader) -> Iterator[_Line]:
    for line, entry in reader.lines(last=True):
        yield line + b"\n", entry, segment


def _finish(checks: dict[str, _Check], present: list[Segment]) -> None:
    open_now = {
        _writer(segment) for segment in present if segment.form == JSONL and _is_open(segment)
    }
    for writer, check in checks.items():
        check.finish(is_open=writer in open_now)


def _find_tampered_rows(present: list[Segment], trouble: Unreadable) -> None:
    """Find compacted files whose columns, which queries read, differ from their lines."""
    for segment in present:
        if segment.form != PARQUET or segment.path.name in trouble.files:
            continue
        try:
            count = count_tampered_rows(segment.path)
        except FileNotFoundError:
            continue
        if count:
            trouble.files[segment.path.name] = (
                f"{count} of its rows differ from their lines: it was changed"
            )


def _writers(present: list[Segment]) -> Iterator[str]:
    """The writers that files are named after."""
    for segment in present:
        if segment.day and segment.form != PARQUET and not is_gone(segment):
            yield _writer(segment)


def _writer(segment: Segment) -> str:
    return parts_of(segment.stem)[0]


def _is_open(segment: Segment) -> bool:
    with try_lock(segment.path) as descriptor:
        return descriptor is None and not is_gone(segment)


def _span(first: int, last: int) -> str:
    if first == last:
        return f"{first} is"
    return f"{first} to {last} are"


def _from_hex(head: str) -> bytes:
    try:
        return bytes.fromhex(head)
    except ValueError:
        return b""
