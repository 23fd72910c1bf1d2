"""Verification of the evidence: each `fetch` record of the log must have its WARC record.

Memory is bounded by the fetches of one file of evidence: a writer's records come in order, so the
files that they name do too. Nothing in a file of evidence is interpreted, except to compare it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.record import Fetch
from robots_guard.audit.segments import WARC, day_of

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
