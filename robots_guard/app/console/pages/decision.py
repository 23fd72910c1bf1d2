"""One decision, on a request or on a response, with its document, its replay, its evidence, and the other decisions on
the same request.

Invariant: only what was recorded or stored is shown; if something is no longer known, the page says so.
"""

from __future__ import annotations

from functools import partial
from typing import BinaryIO, NamedTuple

from robots_guard.app.console.document import Listing, listing
from robots_guard.app.console.pages.fetch import fetch_of_document, fetch_of_failure
from robots_guard.app.console.sources import Sources, find_records
from robots_guard.audit.bundle.writer import search_for, write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.replay import TURN_NOT_COMPARED, Judgement, Replayed, replay
from robots_guard.audit.read.search import Search, pinned_document
from robots_guard.audit.record import AnyRecord, Fetch, Record, SignalsRecord, Start
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.policy import PINNED
from robots_guard.decisions.reasons import Comparison, meaning_of
from robots_guard.decisions.verdict import REASONS
from robots_guard.errors import SettingsError
from robots_guard.guard.stores import document_in
from robots_guard.guard.stores import find_document as find_stored

MOST = 20  # decisions on one request that are shown


class Case(NamedTuple):
    """A record and those that belong to it."""

    record: Record
    start: Start | None  # of the record's writer
    story: list[Record]  # the decisions on the same request, in order, if it was deferred
    fetched: Fetch | None  # of the document
    failed: Fetch | None  # that gave no document
    pinned: bytes | None = None  # the document that an override pinned, as the audit log has it

    @property
    def has_lost_beginning(self) -> bool:
        """Whether the decision that first deferred the request is no longer in the audit log."""
        first = self.record.defers
        return first is not None and all(each.id != first for each in self.story)

    @property
    def is_open(self) -> bool:
        """Whether the request is still deferred where the audit log ends."""
        return bool(self.story) and self.story[-1].action == "defer"


class CaseDetails(NamedTuple):
    """A case with its document and its replay; `no_document` and `no_replay` say why one is missing."""

    case: Case
    listing: Listing | None
    no_document: str
    replayed: Replayed | None
    no_replay: str

    @property
    def agreement(self) -> str:
        """What the replay confirms, as text, if it has no differences."""
        record = self.case.record
        settings = "the settings of its writer"
        if meaning_of(record.reason).replay is not Comparison.DELAY:
            return f"The same verdict {self.basis} and {settings}."
        asked = ""
        if record.delay is not None:
            asked = f", and that it must keep {record.delay:g} s between two requests"
        return (
            f"Judged again {self.basis} and {settings}: it is confirmed that the request is allowed{asked}."
            " Whether it was this request's turn cannot be judged again: that depended on the other"
            " requests at the time."
        )

    @property
    def caveats(self) -> list[str]:
        """What the replay does not cover, except what `agreement` says."""
        if self.replayed is None:
            return []
        if meaning_of(self.case.record.reason).replay is Comparison.DELAY:
            return [each for each in self.replayed.caveats if each != TURN_NOT_COMPARED]
        return self.replayed.caveats

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
    related = found
    if record.defers:
        related = find_records(search, "(id = ? OR defers = ?)", [record.defers, record.defers])
    starts = find_records(search, "kind = 'start' AND writer = ?", [record.writer])
    return Case(
        record=record,
        start=next((each for each in starts if isinstance(each, Start)), None),
        story=_story(record, related),
        fetched=fetch_of_document(search, record),
        failed=fetch_of_failure(search, record),
        pinned=pinned_document(search, record.sha256 or "") if record.via == PINNED else None,
    )


def _story(record: Record, related: list[AnyRecord]) -> list[Record]:
    """Return the decisions on the request of a record; none if there is no other one."""
    decisions = [each for each in related if isinstance(each, Record)]
    if len(decisions) < 2 and not record.defers:
        return []
    first, *others = decisions[:MOST]
    if len(decisions) <= MOST:
        return [first, *others]
    return [first, *decisions[1 - MOST :]]


def details_of(case: Case, sources: Sources) -> CaseDetails:
    """Look up the document of a case, and replay its decision."""
    record = case.record
    body, no_document = find_document(sources, case)
    try:
        settings = case.start.settings if case.start else {}
        judgement = Judgement(record=record, settings=settings, document=body)
        replayed, no_replay = replay(judgement), ""
    except SettingsError as error:
        replayed, no_replay = None, str(error)
    lines = listing(body, record.line) if body else None
    return CaseDetails(case, lines, no_document, replayed, no_replay)


def find_document(sources: Sources, case: Case) -> tuple[bytes | None, str]:
    """Return the document that a record is based on, or None and why there is none."""
    record = case.record
    sha256 = record.sha256
    if case.pinned is not None:
        return case.pinned, ""
    if sha256 is None and record.reason in REASONS.values():
        return None, "There was no robots.txt to judge by: it could not be fetched."
    if sha256 is None:
        return None, "This decision did not depend on a robots.txt."
    if sha256 == EMPTY:
        return None, "The response had no body with rules."
    try:
        return document_in(sources.store, sha256), ""
    except LookupError as error:
        return None, str(error)


# -- decisions on responses ------------------------------------------------------------------------


class ResponseCase(NamedTuple):
    """The record of a response, the start of its writer, and the decision on its request if that is
    recorded."""

    record: SignalsRecord
    start: Start | None
    request: Record | None


class ResponseDetails(NamedTuple):
    """A case with its replay. `no_replay` says why there is none."""

    case: ResponseCase
    replayed: Replayed | None
    no_replay: str


def response_case_of(search: Search, identity: str) -> ResponseCase | None:
    """Return the case of the response with this id, or None."""
    found = find_records(search, "id = ? AND kind = 'signals'", [identity])
    record = next((each for each in found if isinstance(each, SignalsRecord)), None)
    if record is None:
        return None
    starts = find_records(search, "kind = 'start' AND writer = ?", [record.writer])
    requests = []
    if record.request:
        requests = find_records(search, "id = ? AND kind = 'decision'", [record.request])
    return ResponseCase(
        record=record,
        start=next((each for each in starts if isinstance(each, Start)), None),
        request=next((each for each in requests if isinstance(each, Record)), None),
    )


def response_details_of(case: ResponseCase, now: float) -> ResponseDetails:
    """Replay the decision of a case. `now` is in seconds since 1970."""
    settings = case.start.settings if case.start else {}
    judgement = Judgement(record=case.record, settings=settings)
    try:
        return ResponseDetails(case, replay(judgement, now), "")
    except SettingsError as error:
        return ResponseDetails(case, None, str(error))


# -- evidence --------------------------------------------------------------------------------------


def write_evidence(target: BinaryIO, identity: str, sources: Sources) -> None:
    """Write a bundle of the decision with this id. Raises SettingsError if there is none."""
    ids, wanted = [identity], Filter()
    with search_for(sources.audit_log, wanted, ids) as search:
        write_bundle(
            target,
            search,
            wanted,
            documents=partial(find_stored, sources.store),
            now=sources.clocks.now(),
            ids=ids,
        )
