"""One decision, with all that belongs to it: the file it rests on, its replay, and what came before and after.

The law of this file: what is shown was recorded or is kept. What is not known any more is said to be so.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, NamedTuple

from robots_guard.audit.record import AnyRecord, Record, Repeats, Start
from robots_guard.audit.replay import Bundle, Replayed, replay
from robots_guard.audit.schema import COLUMNS
from robots_guard.audit.search import Search, record_of_row
from robots_guard.console.listing import Listing, listing
from robots_guard.console.sources import Sources
from robots_guard.core.codec import EMPTY
from robots_guard.core.verdict import Reason
from robots_guard.errors import SettingsError, StoreError

LATER = 20  # answers to the same request that are shown
MOST = 1000  # moments at which there is something of one case
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


class Case(NamedTuple):
    """A record and what belongs to it. `replayed` is the sentence on why not, where it could not be."""

    record: Record
    start: Start | None
    earlier: Record | None  # that first put the same request off
    later: list[Record]  # on the same request, after this one put it off
    repeats: int  # further ones like it, counted only


class Shown(NamedTuple):
    """A case with its document and what comes of judging it again."""

    case: Case
    listing: Listing | None
    no_document: str
    replayed: Replayed | None
    no_replay: str

    @property
    def basis(self) -> str:
        """By what it was judged, and again."""
        record = self.case.record
        if record.sha256 is not None:
            return "by the same answer of the site" if record.sha256 == EMPTY else "by the same document"
        return "by the failure that was recorded" if record.failure else "without a robots.txt"


def case_of(search: Search, identity: str) -> Case | None:
    """The case of this id, or None."""
    found = _found(search, "(id = ? OR defers = ?)", [identity, identity])
    record = next((each for each in found if isinstance(each, Record) and each.id == identity), None)
    if record is None:
        return None
    earlier = _found(search, "id = ? AND kind = 'decision'", [record.defers]) if record.defers else []
    later = [each for each in found if isinstance(each, Record) and each.defers == identity]
    starts = _found(search, "kind = 'start' AND writer = ?", [record.writer])
    return Case(
        record=record,
        start=next((each for each in starts if isinstance(each, Start)), None),
        earlier=next((each for each in earlier if isinstance(each, Record)), None),
        later=later[:LATER],
        repeats=sum(each.count for each in found if isinstance(each, Repeats) and each.id == identity),
    )


def _found(search: Search, condition: str, values: list[Any]) -> list[AnyRecord]:
    """The first of what there is: their moments, for which little is read, and then they themselves."""
    sql = f'SELECT DISTINCT "at" FROM records WHERE {condition} ORDER BY 1 LIMIT {MOST}'
    moments = [at for (at,) in search.rows(sql, values)]
    if not moments:
        return []
    among = f'"at" IN ({", ".join("?" for _ in moments)}) AND {condition} ORDER BY "at", writer, seq'
    rows = search.rows(f"SELECT {_NAMES} FROM records WHERE {among}", [*moments, *values])
    read = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return [entry for entry in read if entry is not None]


def shown(case: Case, sources: Sources) -> Shown:
    """The case, looked up and judged again."""
    record = case.record
    body, no_document = document(sources, record)
    try:
        settings = case.start.settings if case.start else {}
        bundle = Bundle(version=version("robots_guard"), record=record, settings=settings, document=body)
        replayed, no_replay = replay(bundle), ""
    except SettingsError as error:
        replayed, no_replay = None, str(error)
    lines = listing(body, record.line) if body else None
    return Shown(case, lines, no_document, replayed, no_replay)


def document(sources: Sources, record: Record) -> tuple[bytes | None, str]:
    """The document that a record rests on, or None and why."""
    sha256 = record.sha256
    if sha256 is None and record.reason == Reason.UNREACHABLE:
        return None, "There was no robots.txt to judge by: it could not be had."
    if sha256 is None:
        return None, "No robots.txt had a part in this decision."
    if sha256 == EMPTY:
        return None, "The answer had no body that is read as rules."
    if sources.store is None:
        return None, "Documents are kept by no store: name the doors' own with --store."
    try:
        body = sources.store.document(sha256)
    except (StoreError, ValueError) as error:
        return None, f"The store {error}."
    return body, "" if body is not None else "The store does not keep this document any more."
