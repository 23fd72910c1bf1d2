"""The basis of a decision: the records from which its document, settings and exceptions follow; and
whether a bundle has what its selection says, and nothing else.

Invariant: the same records are found in the audit log, when a bundle is made, and in a bundle, when
it is read, because both look here.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from robots_guard.audit.bundle.contents import Parts
from robots_guard.audit.read.reader import DECISION, Filter
from robots_guard.audit.record import (
    AnyRecord,
    Fetch,
    OverridesRecord,
    PinnedRecord,
    Record,
    SignalsRecord,
    Start,
)
from robots_guard.decisions.access import MAX_BODY
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.policy import PINNED

SLACK = 10.0  # seconds from the record of a fetch, which may wait for the disk, to its policy
MOST_HOPS = 12  # of one fetch
NOT_MODIFIED = 304

Judged = Record | SignalsRecord
T = TypeVar("T", Start, OverridesRecord)


class Basis(NamedTuple):
    """The records on which a decision is based. `fetch` settled what applied, and `delivered`
    brought the document: another one, if the site answered 304. `hops` are all fetches of that
    moment. `pinned` has the document instead, if an override pinned it."""

    start: Start | None
    overrides: OverridesRecord | None
    hops: list[Fetch]
    fetch: Fetch | None
    delivered: Fetch | None
    pinned: tuple[PinnedRecord, ...] = ()

    @property
    def records(self) -> list[AnyRecord]:
        """All of these records."""
        named = (self.start, self.overrides, self.fetch, self.delivered)
        return [*self.hops, *self.pinned, *(each for each in named if each is not None)]


class BasisIndex:
    """Finds the bases of decisions among records."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.decisions: dict[str, Judged] = {}
        self._starts: dict[str, list[Start]] = {}
        self._overrides: dict[str, list[OverridesRecord]] = {}
        self._fetches: dict[str, list[Fetch]] = {}
        self._pinned: dict[tuple[str, str], list[PinnedRecord]] = {}  # by writer and SHA-256
        for entry in records:
            match entry:
                case Record() | SignalsRecord():
                    self.decisions[entry.id] = entry
                case Start():
                    self._starts.setdefault(entry.writer, []).append(entry)
                case OverridesRecord():
                    self._overrides.setdefault(entry.writer, []).append(entry)
                case PinnedRecord():
                    self._pinned.setdefault((entry.writer, entry.sha256), []).append(entry)
                case Fetch():
                    self._fetches.setdefault(entry.origin, []).append(entry)
                case _:
                    pass
        for starts in self._starts.values():
            starts.sort(key=lambda entry: entry.seq)
        for loaded in self._overrides.values():
            loaded.sort(key=lambda entry: entry.seq)
        for fetches in self._fetches.values():
            fetches.sort(key=lambda entry: (entry.at or "", entry.writer, entry.seq))

    def start_before(self, writer: str, seq: int) -> int | None:
        """The number of the start record before a number, or None."""
        start = _last_before(self._starts.get(writer, []), seq)
        return start.seq if start else None

    def basis_of(self, record: Judged) -> Basis:
        """The basis of a decision, as far as its records are here."""
        start = _last_before(self._starts.get(record.writer, []), record.seq)
        overrides = None
        if record.override is not None:
            overrides = _last_before(self._overrides.get(record.writer, []), record.seq)
        if isinstance(record, SignalsRecord):
            return Basis(start, overrides, [], None, None)
        if record.via == PINNED:
            return Basis(start, overrides, [], None, None, self._pinned_of(record))
        fetches = [
            each for each in self._fetches.get(record.origin, []) if each.file == "robots.txt"
        ]
        hops, fetch, delivered = _fetches_of(record, fetches)
        return Basis(start, overrides, hops, fetch, delivered)

    def _pinned_of(self, record: Record) -> tuple[PinnedRecord, ...]:
        """The records of the pinned file by which was decided."""
        same = self._pinned.get((record.writer, record.sha256 or ""), [])
        mine = [each for each in same if each.override == record.override and each.seq < record.seq]
        return tuple(sorted(mine, key=lambda each: each.seq))


def _last_before(entries: list[T], seq: int) -> T | None:
    at = bisect_right(entries, seq, key=lambda entry: entry.seq)
    return entries[at - 1] if at else None


def _fetches_of(
    record: Record, fetches: list[Fetch]
) -> tuple[list[Fetch], Fetch | None, Fetch | None]:
    if record.fetched_at is None:
        return _failures_of(record, fetches)
    fetched = seconds_of(record.fetched_at)
    hops = [each for each in fetches if 0 <= fetched - seconds_of(each.at) + 0.001 <= SLACK]
    hops = hops[-MOST_HOPS:]
    settled = next((each for each in reversed(hops) if settles(each, record)), None)
    delivered = settled
    if settled is not None and settled.status == NOT_MODIFIED:
        before = [each for each in fetches if (each.at or "") <= (settled.at or "")]
        delivered = next((each for each in reversed(before) if each.sha256 == record.sha256), None)
    return hops, settled, delivered


def _failures_of(
    record: Record, fetches: list[Fetch]
) -> tuple[list[Fetch], Fetch | None, Fetch | None]:
    """The fetches that failed: the first, and the last one before the decision."""
    if record.failure is None:
        return [], None, None
    since, until = seconds_of(record.trouble_since) - SLACK, seconds_of(record.at)
    failed = [each for each in fetches if since <= seconds_of(each.at) <= until]
    return failed[:1], failed[-1] if failed else None, None


def settles(fetch: Fetch, record: Record) -> bool:
    """Whether a fetch gave the document that a decision names."""
    if fetch.status == NOT_MODIFIED:
        return True
    if fetch.status != record.status:
        return False
    if fetch.sha256 == record.sha256 or fetch.truncated:
        return True
    # Of a response that is longer than a robots.txt may be, only the beginning is used; one that
    # is no success has no rules.
    return record.sha256 == EMPTY or (fetch.size or 0) > MAX_BODY


def agrees(document: bytes, body: bytes, *, truncated: bool) -> bool:
    """Whether a document is the one in a response: its body, or whole lines of its beginning."""
    if document == body:
        return True
    return (truncated or len(body) > MAX_BODY) and body.startswith(document)


def is_digest_of(sha256: str, content: bytes) -> bool:
    """Whether this is the SHA-256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest() == sha256


def seconds_of(at: str | None) -> float:
    """A moment in seconds since 1970; 0 if it is none."""
    try:
        return datetime.fromisoformat(at or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


def selection_problems(parts: Parts, index: BasisIndex) -> Iterator[str]:
    """The decisions that were not selected, and those that were and are missing."""
    selection = parts.selection
    for identity in selection.ids:
        if identity not in index.decisions:
            yield f"the selected decision {identity!r} is missing"
    wanted = selection.wanted
    related = _related(parts)
    for record in index.decisions.values():
        is_selected = record.id in selection.ids or (
            bool(selection.where) and _may_be_selected(wanted, record)
        )
        if not is_selected and record.id not in related:
            yield f"{record.id} was not selected"


def is_selected_by(wanted: Filter, entry: AnyRecord) -> bool:
    """Whether a filter selects a record. Filters for decisions also select what is known of the
    responses."""
    if wanted.kind == DECISION:
        is_kind = isinstance(entry, Record | SignalsRecord)
        return is_kind and msgspec.structs.replace(wanted, kind=None).admits(entry)
    return wanted.admits(entry)


def _may_be_selected(wanted: Filter, record: Record | SignalsRecord) -> bool:
    """Whether a filter selects a record. Values in queries are redacted or hashed, in the selection
    and in the record, so that only the rest of a URL can be compared."""
    if is_selected_by(wanted, record):
        return True
    url = getattr(wanted, "url", None)
    if url is None:
        return False
    changes: dict[str, Any] = {"url": url.partition("?")[0]}
    return is_selected_by(
        msgspec.structs.replace(wanted, **changes),
        msgspec.structs.replace(record, url=record.url.partition("?")[0]),
    )


def related_ids(entry: AnyRecord) -> set[str]:
    """The ids of the decisions to which a record refers."""
    match entry:
        case Record(defers=str(identity)):
            return {identity}
        case SignalsRecord(request=str(identity)):
            return {identity}
        case _:
            return set()


def _related(parts: Parts) -> set[str]:
    return {identity for line in parts.lines for identity in related_ids(line.entry)}
