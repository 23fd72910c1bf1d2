"""One decision with its document, its replay, and the other decisions on the same request.

Invariant: only what was recorded or stored is shown; if something is no longer known, the page says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from robots_guard.audit.read.replay import Judgement, Replayed, replay
from robots_guard.audit.read.search import Search, record_of_row
from robots_guard.audit.record import AnyRecord, Record, Repeats, Start
from robots_guard.audit.schema import COLUMNS
from robots_guard.console.listing import Listing, listing
from robots_guard.console.sources import Sources
from robots_guard.core.codec import EMPTY
from robots_guard.core.reasons import Reason
from robots_guard.errors import SettingsError, StoreError

LATER = 20  # later decisions on the same request that are shown
MOST = 1000  # distinct times of the records that are read for one case
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


class Case(NamedTuple):
    """A record and those that belong to it."""

    record: Record
    start: Start | None  # of the record's writer
    earlier: Record | None  # the decision that first deferred the same request
    later: list[Record]  # decisions on the same request, after this one deferred it
    repeats: int  # similar decisions that were only counted


class CaseDetails(NamedTuple):
    """A case with its document and its replay; `no_document` and `no_replay` say why one is missing."""

    case: Case
    listing: Listing | None
    no_document: str
    replayed: Replayed | None
    no_replay: str

    @property
    def basis(self) -> str:
        """The basis of the verdict and of its replay, as text."""
        record = self.case.record
        if record.sha256 == EMPTY:
            return "under the same response of the site"
        if record.sha256 is not None:
            return "under the same document"
        if record.failure:
            return "under the recorded failure"
        return "without a robots.txt"


def case_of(search: Search, identity: str) -> Case | None:
    """Return the case of the record with this id, or None."""
    found = find_records(search, "(id = ? OR defers = ?)", [identity, identity])
    record = next(
        (each for each in found if isinstance(each, Record) and each.id == identity), None
    )
    if record is None:
        return None
    earlier = (
        find_records(search, "id = ? AND kind = 'decision'", [record.defers])
        if record.defers
        else []
    )
    later = [each for each in found if isinstance(each, Record) and each.defers == identity]
    starts = find_records(search, "kind = 'start' AND writer = ?", [record.writer])
    return Case(
        record=record,
        start=next((each for each in starts if isinstance(each, Start)), None),
        earlier=next((each for each in earlier if isinstance(each, Record)), None),
        later=later[:LATER],
        repeats=sum(
            each.count for each in found if isinstance(each, Repeats) and each.id == identity
        ),
    )


def find_records(search: Search, condition: str, values: list[Any]) -> list[AnyRecord]:
    """Return the first matching records. Their times are found first, which reads little; then the records."""
    sql = f'SELECT DISTINCT "at" FROM records WHERE {condition} ORDER BY 1 LIMIT {MOST}'
    moments = [at for (at,) in search.rows(sql, values)]
    if not moments:
        return []
    among = (
        f'"at" IN ({", ".join("?" for _ in moments)}) AND {condition} ORDER BY "at", writer, seq'
    )
    rows = search.rows(f"SELECT {_NAMES} FROM records WHERE {among}", [*moments, *values])
    read = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return [entry for entry in read if entry is not None]


def details_of(case: Case, sources: Sources) -> CaseDetails:
    """Look up the document of a case, and replay its decision."""
    record = case.record
    body, no_document = find_document(sources, record)
    try:
        settings = case.start.settings if case.start else {}
        judgement = Judgement(record=record, settings=settings, document=body)
        replayed, no_replay = replay(judgement), ""
    except SettingsError as error:
        replayed, no_replay = None, str(error)
    lines = listing(body, record.line) if body else None
    return CaseDetails(case, lines, no_document, replayed, no_replay)


def find_document(sources: Sources, record: Record) -> tuple[bytes | None, str]:
    """Return the document that a record is based on, or None and why there is none."""
    sha256 = record.sha256
    if sha256 is None and record.reason == Reason.UNREACHABLE:
        return None, "There was no robots.txt to judge by: it could not be fetched."
    if sha256 is None:
        return None, "This decision did not depend on a robots.txt."
    if sha256 == EMPTY:
        return None, "The response had no body with rules."
    if sources.store is None:
        return None, "No store keeps documents: name the store of the integrations with --store."
    try:
        body = sources.store.document(sha256)
    except (StoreError, ValueError) as error:
        return None, f"The store {error}."
    return body, "" if body is not None else "The store no longer has this document."
