"""The verification of one writer: its numbers, its chain, its signatures and its heads.

Invariant: it knows nothing of files. The lines of the writer are added in order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from robots_guard.audit.anchors import ChainHead
from robots_guard.audit.read.reader import kind_of
from robots_guard.audit.record import AnyRecord, Checkpoint, Removal, Start, Stop
from robots_guard.audit.segments import key_of, parts_of
from robots_guard.audit.signing import fingerprint, statement_of, verify_signature
from robots_guard.audit.write.writer import first_hash, line_digest, next_hash
from robots_guard.errors import MissingExtra


class Trust(NamedTuple):
    """What a verification relies on besides the log: public keys in base64, heads that were kept
    elsewhere, and root certificates of time-stamping authorities (PEM)."""

    keys: frozenset[str] = frozenset()
    heads: tuple[ChainHead, ...] = ()
    roots: tuple[bytes, ...] = ()

    @property
    def is_strict(self) -> bool:
        """Whether files that are gone without a record of their removal count as missing."""
        return bool(self.keys or self.heads)


@dataclass(slots=True)
class WriterFinding:
    """The findings on one writer. `problems` are signs of loss or tampering; `notes` may be
    harmless. `signatures` has the number of valid ones by key."""

    writer: str
    records: int = 0
    first: int = 0
    last: int = 0
    since: str = ""
    until: str = ""
    gaps: int = 0
    chain: str = "none"  # none, whole, broken or missing
    head: str = ""
    stopped: bool = False
    signatures: dict[str, int] = field(default_factory=dict)
    invalid_signatures: int = 0
    unchecked_signatures: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ExpectedHead(NamedTuple):
    """A head that a writer's chain must have, and where it is stated."""

    head: str
    source: str
    at: str  # when it was stated; empty if that is not known


@dataclass(slots=True)
class RemovedFiles:
    """The files that housekeeping removed, according to `removal` records."""

    names: set[str] = field(default_factory=set)
    stems: set[str] = field(default_factory=set)
    writers: set[str] = field(default_factory=set)

    def add(self, removal: Removal) -> None:
        for name in removal.files:
            self.names.add(name)
            self.stems.add(key_of(name).partition("-")[2])  # without the day
            self.writers.add(parts_of(key_of(name))[0])

    def may_have_had(self, writer: str, number: int | None = None) -> bool:
        """Whether the file with this number of a writer, or any file of it, was perhaps removed."""
        return writer in self.writers if number is None else f"{writer}-{number:04}" in self.stems


class WriterCheck:
    """Checks the lines of one writer, in order of their numbers."""

    def __init__(self, writer: str, trust: Trust, expected: dict[int, list[ExpectedHead]]) -> None:
        self.found = WriterFinding(writer)
        self._trust = trust
        self._expected = expected  # by the number of the last line that they cover
        self._head: bytes | None = None
        self._confirmed = 0  # the last number that the chain confirms
        self._signed = 0  # the last number that a valid signature confirms
        self._checkpoints = 0
        self._segment = 0  # the number of the first file
        self._removals: list[Removal] = []

    def add(self, line: bytes, entry: AnyRecord) -> None:
        """Check the next line."""
        if not self.found.records:
            self._begin(entry)
        self._check_number(entry.seq)
        self._check_stop(entry)
        if entry.at is not None:
            self._note_time(entry.at)
        match entry:
            case Start(chain="sha256"):
                self._check_start(entry)
            case Checkpoint():
                self._check_checkpoint(entry)
            case Removal():
                self._removals.append(entry)
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
            if entry.seq in self._expected:
                self._compare_heads(self._expected.pop(entry.seq), entry.seq)

    def _check_stop(self, entry: AnyRecord) -> None:
        """Check that nothing but a checkpoint follows a stop: a writer that is closed writes no more."""
        if self.found.stopped and not isinstance(entry, Checkpoint):
            self.report(f"has a {kind_of(entry)} at {entry.seq}, after its stop")

    def _begin(self, entry: AnyRecord) -> None:
        if isinstance(entry, Start):
            self._segment = entry.segment
        else:
            self.found.problems.append(
                f"begins with a {kind_of(entry)} at {entry.seq}, not with a start"
            )

    def _note_time(self, at: str) -> None:
        found = self.found
        found.since = min(found.since or at, at)
        found.until = max(found.until, at)

    def _compare_heads(self, expected: list[ExpectedHead], last: int) -> None:
        assert self._head is not None
        for each in expected:
            if each.head != self._head.hex():
                self._report_broken(
                    f"differs from {each.source}: a line from {self.found.first} to {last} was changed"
                )

    def _check_number(self, seq: int) -> None:
        found = self.found
        if not found.records:
            found.first = seq
        elif seq > found.last + 1:
            found.problems.append(
                f"{_span(found.last + 1, seq - 1)} missing: not written (full disk, I/O error), or removed"
            )
            found.gaps += 1
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

    def _check_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._checkpoints += 1
        if self._head is None:
            self._report_broken("has a checkpoint without a chain: a start record was changed")
        else:
            self._check_head(checkpoint.head, checkpoint.seq)
        if checkpoint.key is not None or checkpoint.signature is not None:
            self._check_signature(checkpoint)
        elif self._signed:
            self.report(f"has a checkpoint without a signature at {checkpoint.seq}")

    def _check_signature(self, checkpoint: Checkpoint) -> None:
        found, key = self.found, checkpoint.key or ""
        last = checkpoint.seq - 1
        try:
            statement = statement_of(checkpoint.writer, last, checkpoint.at, checkpoint.head)
            is_valid = verify_signature(key, checkpoint.signature or "", statement)
        except MissingExtra:
            found.unchecked_signatures += 1
            return
        except UnicodeEncodeError:
            is_valid = False
        if not is_valid:
            found.invalid_signatures += 1
            self.report(f"has an invalid signature at {checkpoint.seq}")
            return
        found.signatures[key] = found.signatures.get(key, 0) + 1
        if not self._trust.keys or key in self._trust.keys:
            self._signed = last
        else:
            self.report(f"is signed by {fingerprint(key)}, which is not a trusted key")

    def removals(self, *, is_open: bool) -> Iterator[Removal]:
        """The removals that may excuse missing files, after the last line.

        With trusted keys these are the ones that a signature confirms. Anyone can add a line behind
        the last signature. `is_open` says that the writer has a file open, and may still sign them.
        """
        trusts_all = is_open or not self._trust.keys or bool(self.found.unchecked_signatures)
        for removal in self._removals:
            if trusts_all or removal.seq <= self._signed:
                yield removal

    def finish(self, removed: RemovedFiles, begin: str, *, is_open: bool) -> None:
        """Finish the check after the last line.

        `is_open` says that the writer still has a file open, and `begin` is the time of the first
        record in the log.
        """
        found = self.found
        if self._head is not None:
            found.head = self._head.hex()
        if found.records and found.first != 1:
            self._finish_beginning(removed)
        self._finish_heads(removed, begin)
        if found.chain == "missing":
            return
        if not found.records:
            found.notes.append("has written no record")
        if not found.stopped and is_open:
            found.notes.append("is being written")
        elif not found.stopped:
            found.notes.append("ends without a stop: killed, or an I/O error")
        self._finish_signatures(is_open=is_open)
        if self._head is not None and self._confirmed < found.last - 1:
            found.notes.append(f"no checkpoint confirms {self._confirmed + 1} to {found.last}")

    def _finish_beginning(self, removed: RemovedFiles) -> None:
        """Report files that are missing at the beginning."""
        found = self.found
        if removed.may_have_had(found.writer, self._segment - 1):
            found.notes.append(f"begins at {found.first}: housekeeping removed earlier files")
            return
        problem = f"begins at {found.first}: earlier files are gone"
        if self._trust.is_strict:
            self.report(f"{problem}, and no record says that housekeeping removed them")
        else:
            found.notes.append(problem)

    def _finish_signatures(self, *, is_open: bool) -> None:
        found = self.found
        if self._trust.keys and found.unchecked_signatures:
            found.notes.append(
                "its signatures were not checked: the extra [audit] is not installed"
            )
        elif self._trust.keys and found.records and not self._signed:
            if is_open and not self._checkpoints:
                found.notes.append("is not signed yet")
            else:
                self.report("has no valid signature by a trusted key")
        elif self._trust.keys and found.stopped and self._signed < found.last - 1:
            # A writer that is closed signs its stop, but a forger cannot.
            self.report(
                f"no signature confirms {self._signed + 1} to {found.last}, although it has a stop"
            )
        elif self._signed and self._signed < found.last - 1:
            found.notes.append(f"no signature confirms {self._signed + 1} to {found.last}")

    def _finish_heads(self, removed: RemovedFiles, begin: str) -> None:
        """Report the expected heads whose line was not found."""
        found = self.found
        for last, expected in sorted(self._expected.items()):
            each = expected[-1]
            if not found.records:
                self._finish_missing(each, last, removed, begin)
            elif last > found.last:
                self.report(f"ends at {found.last}, but {each.source} names its lines up to {last}")
            elif last >= found.first and self._head is None:
                self.report(f"has no chain, but {each.source} names a head of one")
            elif last >= found.first:
                self.report(f"lacks the line {last}, which {each.source} names")

    def _finish_missing(
        self, expected: ExpectedHead, last: int, removed: RemovedFiles, begin: str
    ) -> None:
        """Report a writer that has no record in the log, although a head of it was stated."""
        found = self.found
        found.chain = "missing"
        is_older = bool(expected.at and begin and expected.at < begin)
        if is_older or removed.may_have_had(found.writer):
            note = f"is gone since {expected.source}: housekeeping removed its files"
            if note not in found.notes:
                found.notes.append(note)
        else:
            self.report(f"is missing, but {expected.source} names its lines up to {last}")

    def report(self, problem: str) -> None:
        """Report a problem, once."""
        if problem not in self.found.problems:
            self.found.problems.append(problem)

    def _report_broken(self, problem: str) -> None:
        self.found.chain = "broken"
        self.report(problem)

    def _check_head(self, stated: str, seq: int) -> None:
        if self._head is None:
            return
        if self._head.hex() != stated:
            self._report_broken(
                f"the chain breaks: a line from {self._confirmed + 1} to {seq - 1} was changed"
            )
            self._head = _from_hex(stated)
        self._confirmed = seq - 1


def _span(first: int, last: int) -> str:
    if first == last:
        return f"{first} is"
    return f"{first} to {last} are"


def _from_hex(head: str) -> bytes:
    try:
        return bytes.fromhex(head)
    except ValueError:
        return b""
