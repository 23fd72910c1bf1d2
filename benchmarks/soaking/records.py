"""Reads the audit log of a soak test, to compare it with what clients and origins received."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from robots_guard.audit.read.reader import Filter, Unreadable, entries
from robots_guard.audit.read.verify import verify
from robots_guard.audit.record import Record
from soaking.faults import Spans

_STARTS = 30.0  # seconds from a writer's start to its first record, if the disk is full then
_NUMBER = re.compile(r"/(\d+)$")


@dataclass(slots=True)
class Found:
    """The content of the log.

    A gap is explained if the disk was full between the records around it.
    """

    records: int = 0
    ids: set[str] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)  # pages, by number
    explained: int = 0  # number of records missing in explained gaps
    unexplained: list[str] = field(default_factory=list)
    killed: int = 0  # number of writers without an end record
    trouble: str = ""


def read(directory: Path, full: Spans) -> Found:
    found, trouble = Found(), Unreadable()
    numbers: dict[str, list[tuple[int, float]]] = {}
    for entry in entries(directory, Filter(kind=None), trouble):
        found.records += 1
        numbers.setdefault(entry.writer, []).append((entry.seq, entry.mono or 0.0))
        if isinstance(entry, Record):
            found.ids.add(entry.id)
            page = _NUMBER.search(entry.url)
            if entry.action == "pass" and page:
                found.passed.add(int(page[1]))
    for writer, seen in numbers.items():
        _look_for_gaps(found, writer, sorted(seen), full)
    _ask_verify(found, directory)
    found.trouble = str(trouble)
    return found


def _look_for_gaps(found: Found, writer: str, seen: list[tuple[int, float]], full: Spans) -> None:
    for (before, earlier), (after, later) in pairwise([(0, seen[0][1] - _STARTS), *seen]):
        missing = after - before - 1
        if missing > 0 and full.meet(earlier, later):
            found.explained += missing
        elif missing:
            found.unexplained.append(f"{writer}: {before + 1} to {after - 1} missing")


def _ask_verify(found: Found, directory: Path) -> None:
    """Add all problems found by `robots-guard audit verify`, except gaps, which are checked above."""
    for finding in verify(directory, Unreadable()):
        found.killed += not finding.stopped
        found.unexplained += [
            f"{finding.writer}: {problem}"
            for problem in finding.problems
            if " missing: " not in problem
        ]
