"""The page of a decision on a response: its evidence, its circumstances and its replay."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.app.console.pages.records import find_records
from robots_guard.audit.read.replay import Judgement, Replayed, replay
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import Record, SignalsRecord, Start
from robots_guard.errors import SettingsError


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
