"""Verifying a journal: gaps, edits, torn lines, by writer.

The law of this file: it says what it found and what that can mean, no more. A chain shows that lines were changed
in the middle; whoever can write the files can also write all of them anew, so its head must be known elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from robots_guard.audit.compact import lies_in
from robots_guard.audit.keeping import unheld
from robots_guard.audit.query import BY_NUMBER, Reader, Trouble, kind_of
from robots_guard.audit.record import AnyRecord, Checkpoint, Start, Stop
from robots_guard.audit.segments import JSONL, PARQUET, Segment, is_gone, parts_of, segments
from robots_guard.audit.writer import beginning, chained

LOOKS = 5  # at most, while files go
_Line = tuple[bytes, AnyRecord, Segment]


@dataclass(slots=True)
class Finding:
    """What was found of one writer. `problems` are what should not be; `notes` what may well be."""

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
    """One writer's lines, in order of their numbers."""

    def __init__(self, writer: str) -> None:
        self.found = Finding(writer)
        self._head: bytes | None = None
        self._agreed = 0

    def take(self, line: bytes, entry: AnyRecord) -> None:
        """The next line."""
        if not self.found.records and not isinstance(entry, Start):
            self.found.problems.append(f"begins with a {kind_of(entry)} at {entry.seq}, not with a start")
        self._number(entry.seq)
        match entry:
            case Start(chain="sha256"):
                self._begins(entry)
            case Checkpoint() if self._head is None:
                self._broken("a checkpoint stands where no chain begins: a start record was changed")
            case Checkpoint():
                self._stands(entry.head, entry.seq)
            case Stop():
                self.found.stopped = True
                if entry.lost:
                    self.found.notes.append(f"says that {entry.lost} records could not be written")
            case _:
                pass
        if self._head is not None:
            self._head = chained(self._head, line)
            self.found.head = self._head.hex()

    def _number(self, seq: int) -> None:
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
            found.problems.append(f"{seq} stands behind {found.last}")
        found.records += 1
        found.last = max(seq, found.last)

    def _begins(self, start: Start) -> None:
        stated = start.previous or ""
        if self._head is None:
            self.found.chain = "whole"
            self._head = beginning(self.found.writer)
            if self.found.first != 1:  # what came before is not here to be checked
                self._head = _octets(stated)
        self._stands(stated, start.seq)

    def strayed(self, path: Path) -> None:
        """A line of this writer stands in another's file."""
        problem = f"has lines in {path.name}, which is not its own"
        if problem not in self.found.problems:
            self.found.problems.append(problem)

    def ends(self, *, held: bool) -> None:
        """There are no more lines; `held`: as yet."""
        found = self.found
        if not found.records:
            found.notes.append("has written no record")
        if not found.stopped:
            found.notes.append("is being written" if held else "ends without a stop: killed, or an I/O error")
        if self._head is not None and self._agreed < found.last - 1:
            found.notes.append(f"no checkpoint vouches for {self._agreed + 1} to {found.last}")

    def _broken(self, problem: str) -> None:
        self.found.chain = "broken"
        if problem not in self.found.problems:
            self.found.problems.append(problem)

    def _stands(self, stated: str, seq: int) -> None:
        if self._head is None:
            return
        if self._head.hex() != stated:
            self._broken(f"the chain breaks: a line from {self._agreed + 1} to {seq - 1} was changed")
            self._head = _octets(stated)
        self._agreed = seq - 1


def verify(directory: Path, trouble: Trouble) -> list[Finding]:
    """Findings by writer. What cannot be read is counted in `trouble`. Raises SettingsError.

    Where something is wrong and files have gone meanwhile, it looks again: a writer is not blamed for what was
    compressed, compacted or removed while it was looked at.
    """
    for looks in range(1, LOOKS + 1):
        there, found = segments(directory), Trouble()
        findings = _findings(there, found)
        is_wrong = found.lines or found.files or any(each.problems for each in findings)
        if looks == LOOKS or not (is_wrong and any(map(is_gone, there))):
            break
    trouble.add(found)
    return findings


def _findings(there: list[Segment], trouble: Trouble) -> list[Finding]:
    checks: dict[str, _Check] = {}
    for line, entry, segment in heapq.merge(*_streams(there, trouble), key=lambda each: (each[1].writer, each[1].seq)):
        check = checks.setdefault(entry.writer, _Check(entry.writer))
        check.take(line, entry)
        if segment.day and segment.form != PARQUET and _writer(segment) != entry.writer:
            check.strayed(segment.path)
    for writer in _writers(there):
        checks.setdefault(writer, _Check(writer))  # also one that was killed before its first record
    _note_ends(checks, there)
    _look_for_lies(there, trouble)
    return [check.found for check in checks.values()]


def _streams(there: list[Segment], trouble: Trouble) -> Iterator[Iterator[_Line]]:
    apart = {segment.stem for segment in there if segment.form == PARQUET}
    for segment in there:
        yield _read(segment, Reader(segment, trouble, apart=apart, order=BY_NUMBER))


def _read(segment: Segment, reader: Reader) -> Iterator[_Line]:
    for line, entry in reader.lines(last=True):
        yield line + b"\n", entry, segment


def _note_ends(checks: dict[str, _Check], there: list[Segment]) -> None:
    open_now = {_writer(segment) for segment in there if segment.form == JSONL and _is_held(segment)}
    for writer, check in checks.items():
        check.ends(held=writer in open_now)


def _look_for_lies(there: list[Segment], trouble: Trouble) -> None:
    """Questions are answered from the columns of a compacted file; they must say what its lines say."""
    for segment in there:
        if segment.form != PARQUET or segment.path.name in trouble.files:
            continue
        try:
            count = lies_in(segment.path)
        except FileNotFoundError:
            continue
        if count:
            trouble.files[segment.path.name] = f"{count} of its rows do not say what their lines say: it was changed"


def _writers(there: list[Segment]) -> Iterator[str]:
    """The writers that files are named after."""
    for segment in there:
        if segment.day and segment.form != PARQUET and not is_gone(segment):
            yield _writer(segment)


def _writer(segment: Segment) -> str:
    return parts_of(segment.stem)[0]


def _is_held(segment: Segment) -> bool:
    with unheld(segment.path) as descriptor:
        return descriptor is None and not is_gone(segment)


def _span(first: int, last: int) -> str:
    return f"{first} is" if first == last else f"{first} to {last} are"


def _octets(head: str) -> bytes:
    try:
        return bytes.fromhex(head)
    except ValueError:
        return b""
