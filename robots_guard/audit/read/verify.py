"""Verification of an audit log and its evidence: it finds what is missing or was changed, by writer.

Invariant: it reports what it found and what may have caused it, and concludes no more. The hash
chain shows that lines were changed in the middle. A user with write access can replace the whole
log with a new chain; only signatures by a key that this user does not have, or heads of the chains
that were kept elsewhere, reveal that. Memory is bounded by the number of writers.

Each `fetch` record of the log must have its WARC record. Memory is bounded by the fetches of one
file of evidence: a writer's records come in order, so the files that they name do too. Nothing in a
file of evidence is interpreted, except to compare it.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib.util
import os
import stat
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.anchors import (
    Anchor,
    ChainHead,
    InvalidAnchor,
    read_anchors,
    verify_anchor,
)
from robots_guard.audit.read.reader import Reader, Unreadable, pieces_of
from robots_guard.audit.read.writer_check import (
    ExpectedHead,
    RemovedFiles,
    Trust,
    WriterCheck,
    WriterFinding,
)
from robots_guard.audit.record import AnyRecord, Fetch, Passes, PinnedRecord, Record, Start
from robots_guard.audit.segments import JSONL, WARC, Segment, day_of, is_gone, parts_of, segments
from robots_guard.audit.write.maintenance import try_lock
from robots_guard.decisions.codec import EMPTY
from robots_guard.errors import MissingExtra

OPEN = 2  # files whose fetches are collected at a time: at a change of files, two threads may alternate
PIECE = 64 * 1024  # bytes
LISTED = 20  # records that are named; further ones are only counted


class WarcFinding(msgspec.Struct, frozen=True):
    """The number of fetches whose WARC record is there as it was written, missing, changed, removed
    by housekeeping, or not checked because warcio is not installed."""

    present: int = 0
    missing: int = 0
    changed: int = 0
    removed: int = 0
    unchecked: int = 0


class _Response(NamedTuple):
    """What a response record must have, as far as the log's record says it."""

    url: str
    at: str | None
    status: str
    size: int | None
    sha256: str | None


class WarcCheck:
    """Checks the WARC records of the fetches that it is given."""

    def __init__(self, directory: Path) -> None:
        self.problems: list[str] = []
        self._directory = directory
        self._is_checked = importlib.util.find_spec("warcio") is not None
        self._expected: dict[str, dict[str, _Response]] = {}
        self._absent: dict[str, int] = {}  # fetches by the name of a file that does not exist
        self._present = self._missing = self._changed = self._unchecked = 0

    def add(self, fetch: Fetch) -> None:
        """Check this fetch, now or later."""
        if fetch.warc_id is None or fetch.warc_file is None:
            return
        name = fetch.warc_file
        if not (name.endswith(WARC) and day_of(name)):
            self._report_changed(f"fetch {fetch.seq} of {fetch.writer}", "names no WARC file")
            return
        if name not in self._expected and len(self._expected) == OPEN:
            self._check(next(iter(self._expected)))
        responses = self._expected.setdefault(name, {})
        responses[fetch.warc_id] = _Response(
            fetch.url, fetch.at, str(fetch.status), fetch.size, fetch.sha256
        )

    def finish(self, removed: Set[str]) -> WarcFinding:
        """The result. `removed` are the names of files that housekeeping has removed."""
        for name in list(self._expected):
            self._check(name)
        lost = {name: count for name, count in self._absent.items() if name not in removed}
        self.problems += [
            f"{name} is missing, with the WARC records of {count} fetches"
            for name, count in lost.items()
        ]
        return WarcFinding(
            self._present,
            self._missing + sum(lost.values()),
            self._changed,
            sum(self._absent.values()) - sum(lost.values()),
            self._unchecked,
        )

    def _check(self, name: str) -> None:
        expected = self._expected.pop(name)
        path = self._directory / name
        if not os.path.lexists(path):
            self._absent[name] = self._absent.get(name, 0) + len(expected)
        elif not self._is_checked:
            self._unchecked += len(expected)
        else:
            self._compare(path, expected)

    def _compare(self, path: Path, expected: dict[str, _Response]) -> None:
        """Compare the responses in a file with those that are expected."""
        damage = ""
        try:
            for identity, found in _responses_in(path, expected.keys()):
                wanted = expected.pop(identity)
                if found == wanted._replace(sha256=wanted.sha256 or found.sha256):
                    self._present += 1
                else:
                    self._report_changed(f"{identity} in {path.name}", "was changed")
                if not expected:
                    return
        except Exception as error:  # noqa: BLE001  warcio has many errors for a damaged file
            damage = f" ({type(error).__name__}: {str(error)[:80]})"
        self._missing += len(expected)
        if expected:
            first = next(iter(expected))
            self.problems.append(
                f"{path.name} lacks the WARC records of {len(expected)} fetches, such as {first}{damage}"
            )

    def _report_changed(self, what: str, why: str) -> None:
        self._changed += 1
        if self._changed <= LISTED:
            self.problems.append(f"{what} {why}")


def _responses_in(path: Path, wanted: Set[str]) -> Iterator[tuple[str, _Response]]:
    """The responses in a WARC file whose ids are wanted, each with its id. Raises warcio's errors and
    OSError."""
    from warcio.archiveiterator import ArchiveIterator

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        for record in ArchiveIterator(file):
            identity = record.rec_headers.get_header("WARC-Record-ID")
            if record.rec_type == "response" and identity in wanted:
                yield identity, _response(record)


def _response(record: Any) -> _Response:
    digest, size = hashlib.sha256(), 0
    while piece := record.raw_stream.read(PIECE):
        digest.update(piece)
        size += len(piece)
    head = record.rec_headers
    return _Response(
        head.get_header("WARC-Target-URI"),
        head.get_header("WARC-Date"),
        record.http_headers.get_statuscode(),
        size,
        digest.hexdigest(),
    )


MAX_ATTEMPTS = 5  # while files disappear
Documents = Callable[[str], bytes | None]
_Line = tuple[bytes, AnyRecord, Segment]


@dataclass(slots=True)
class AnchorFinding:
    """The findings on an anchor in the directory: the time that its authority states, if it has a
    timestamp, and whether that was verified with a root certificate."""

    at: str
    tsa: str
    stamped_at: str = ""
    is_verified: bool = False
    problem: str = ""
    note: str = ""


@dataclass(slots=True)
class LogFinding:
    """The findings on a whole audit log."""

    files: int = 0
    writers: list[WriterFinding] = field(default_factory=list)
    anchors: list[AnchorFinding] = field(default_factory=list)
    warc: WarcFinding = field(default_factory=WarcFinding)
    lacking: dict[str, str] = field(default_factory=dict)  # origins of documents, by SHA-256
    problems: list[str] = field(default_factory=list)  # those of no single writer

    @property
    def is_whole(self) -> bool:
        """Whether no part of the log is known to be missing or changed."""
        wrong = [*self.problems, *(each.problem for each in self.anchors if each.problem)]
        return not wrong and not any(each.problems for each in self.writers)


def verify(directory: Path, trouble: Unreadable) -> list[WriterFinding]:
    """The findings by writer. What cannot be read is counted in `trouble`. Raises SettingsError."""
    return verify_log(directory, trouble).writers


def verify_log(
    directory: Path,
    trouble: Unreadable,
    trust: Trust | None = None,
    documents: Documents | None = None,
) -> LogFinding:
    """The findings on an audit log. What cannot be read is counted in `trouble`. `documents` gives the
    content of a document by its SHA-256; without it, documents are not looked for. Raises
    SettingsError.

    If present are problems and files have disappeared meanwhile, verification is repeated, so that
    no writer is blamed for files that were compressed or removed during verification.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        present, found = segments(directory), Unreadable()
        finding = _verify(directory, present, found, trust or Trust())
        is_wrong = found.has_lines or found.files or not finding.is_whole
        if attempt == MAX_ATTEMPTS or not (is_wrong and any(map(is_gone, present))):
            break
    trouble.add(found)
    if documents is not None:
        finding.lacking = {
            sha256: origin for sha256, origin in finding.lacking.items() if not documents(sha256)
        }
    else:
        finding.lacking = {}
    return finding


def _verify(
    directory: Path, present: list[Segment], trouble: Unreadable, trust: Trust
) -> LogFinding:
    unusable: dict[str, str] = {}
    anchors = read_anchors(directory, unusable)
    first_day = min((segment.day for segment in present if segment.day), default="")
    expected = _expected_heads(trust.heads, [each for each in anchors if each.day >= first_day])
    checks = {writer: WriterCheck(writer, trust, heads) for writer, heads in expected.items()}
    warc, named, kept = WarcCheck(directory), dict[str, str](), set[str]()
    places = _Places()
    for line, entry, segment in heapq.merge(
        *_streams(present, trouble), key=lambda each: (each[1].writer, each[1].seq)
    ):
        check = checks.get(entry.writer)
        if check is None:
            check = checks[entry.writer] = WriterCheck(entry.writer, trust, {})
        check.add(line, entry)
        misplaced = places.objection(entry, segment)
        if misplaced:
            check.report(misplaced)
        if isinstance(entry, Fetch):
            warc.add(entry)
        if isinstance(entry, PinnedRecord) or (isinstance(entry, Fetch) and entry.warc_id):
            kept.add(entry.sha256 or "")
        elif isinstance(entry, Record | Passes) and entry.sha256 not in (None, EMPTY):
            named.setdefault(entry.sha256 or "", entry.origin)
    for writer in _writers(present):
        # Includes a writer killed before its first record.
        checks.setdefault(writer, WriterCheck(writer, trust, {}))
    removed = _finish(checks, present)
    evidence = warc.finish(removed.names)
    problems = [f"{name} cannot be used: {why}" for name, why in unusable.items()]
    problems += _differing_forms(present)
    return LogFinding(
        files=len(present),
        writers=[check.found for _, check in sorted(checks.items())],
        anchors=[_check_anchor(anchor, trust, first_day) for anchor in anchors],
        warc=evidence,
        lacking={sha256: origin for sha256, origin in named.items() if sha256 not in kept},
        problems=problems + warc.problems,
    )


class _Places:
    """Which file the next line of each writer belongs to: each file begins with a start record,
    which has its number."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}  # the stems of files, by writer

    def objection(self, entry: AnyRecord, segment: Segment) -> str | None:
        """Why a line does not belong into the file in which it is, or None. Readers look for the
        records of a period in the files of its days."""
        name = segment.path.name
        if segment.day and _writer(segment) != entry.writer:
            return f"has lines in {name}, which is not its own"
        if not isinstance(entry, Start):
            if self._current.get(entry.writer, segment.stem) == segment.stem:
                return None
            return f"has lines in {name}, which belong into another of its files"
        self._current[entry.writer] = segment.stem
        begins = f"has a start record of {entry.at}, with the number {entry.segment}, in {name}"
        is_named = not segment.day or (
            parts_of(segment.stem)[1] == entry.segment and _is_near(segment.day, entry.at or "")
        )
        return None if is_named else f"{begins}: the file was renamed"


def _is_near(day: str, at: str) -> bool:
    """Whether a moment is on a day, or on one beside it: a record may be late."""
    try:
        return abs((date.fromisoformat(day) - date.fromisoformat(at[:10])).days) <= 1
    except ValueError:
        return False


def _differing_forms(present: list[Segment]) -> Iterator[str]:
    """The files that a compressed one has replaced, and that differ from it: other programs may
    read them."""
    for segment in present:
        replaced = segment._replace(path=segment.path.with_name(segment.stem + JSONL), form=JSONL)
        if segment.form == JSONL or is_gone(replaced):
            continue
        try:
            digests = {_digest(pieces_of(each)) for each in (replaced, segment)}
        except FileNotFoundError:  # housekeeping has just removed it
            continue
        except OSError as error:
            yield f"{replaced.path.name} cannot be compared with its compressed form: {error.strerror}"
            continue
        if len(digests) > 1:
            yield f"{replaced.path.name} is not what was compressed into {segment.path.name}"


def _digest(pieces: Iterator[bytes]) -> bytes:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()


def _expected_heads(
    given: tuple[ChainHead, ...], anchors: list[Anchor]
) -> dict[str, dict[int, list[ExpectedHead]]]:
    """The heads that chains must have, by writer and number."""
    expected: dict[str, dict[int, list[ExpectedHead]]] = {}
    stated = [(head, "the given statement", "") for head in given]
    for anchor in anchors:
        stated += [(head, f"the anchor of {anchor.at}", anchor.at) for head in anchor.heads]
    for head, source, at in stated:
        numbers = expected.setdefault(head.writer, {})
        numbers.setdefault(head.last, []).append(ExpectedHead(head.head, source, at))
    return expected


def _check_anchor(anchor: Anchor, trust: Trust, first_day: str) -> AnchorFinding:
    found = AnchorFinding(anchor.at, anchor.tsa or "")
    if anchor.day < first_day:
        found.note = "older than the log, and so not compared with it"
    if anchor.token is None:
        return found
    try:
        found.stamped_at, found.is_verified = verify_anchor(anchor, trust.roots)
    except InvalidAnchor as error:
        found.problem = f"the anchor of {anchor.at} proves nothing: {error}"
    except MissingExtra as error:
        found.note = str(error)
    return found


def _streams(present: list[Segment], trouble: Unreadable) -> Iterator[Iterator[_Line]]:
    for segment in present:
        yield _read(segment, Reader(segment, trouble))


def _read(segment: Segment, reader: Reader) -> Iterator[_Line]:
    for line, entry in reader.lines(last=True):
        yield line + b"\n", entry, segment


def _finish(checks: dict[str, WriterCheck], present: list[Segment]) -> RemovedFiles:
    """Finish all checks, and return the files that housekeeping removed."""
    begin = min((check.found.since for check in checks.values() if check.found.since), default="")
    open_now = {
        _writer(segment) for segment in present if segment.form == JSONL and _is_open(segment)
    }
    removed = RemovedFiles()
    for writer, check in checks.items():
        for removal in check.removals(is_open=writer in open_now):
            removed.add(removal)
    for writer, check in checks.items():
        check.finish(removed, begin, is_open=writer in open_now)
    return removed


def _writers(present: list[Segment]) -> Iterator[str]:
    """The writers that files are named after."""
    for segment in present:
        if segment.day and not is_gone(segment):
            yield _writer(segment)


def _writer(segment: Segment) -> str:
    return parts_of(segment.stem)[0]


def _is_open(segment: Segment) -> bool:
    with try_lock(segment.path) as descriptor:
        return descriptor is None and not is_gone(segment)
