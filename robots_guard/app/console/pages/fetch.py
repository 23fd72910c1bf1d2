"""One fetch of a robots.txt or tdmrep.json: its record, the file, and the archived response.

Invariant: a record's `warc_file` is untrusted text. Only a regular file of the audit log's directory
that has the name of a WARC file is read.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from robots_guard.app.console.document import Listing, listing
from robots_guard.app.console.sources import Sources, find_records
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import Fetch, Record, moment
from robots_guard.audit.segments import WARC, why_not_plain
from robots_guard.errors import SettingsError
from robots_guard.guard.stores import document_in

#: A fetch is recorded shortly before the time that its policy states.
BEFORE, AFTER = timedelta(seconds=5), timedelta(seconds=1)
LARGEST_NUMBER = 2**63 - 1  # of a record in the database
_ROBOTS_TXT = "kind = 'fetch' AND coalesce(file, 'robots.txt') = 'robots.txt'"
_WARC_NAME = re.compile(r"\d{8}-[A-Za-z0-9.-]+-\d{4,}" + re.escape(WARC))


class FetchDetails(NamedTuple):
    """A fetch and its file; `no_document` says why the file is missing. `has_response` says whether the archived
    response can be downloaded."""

    record: Fetch
    listing: Listing | None
    no_document: str
    has_response: bool


def fetch_of(search: Search, writer: str, number: int) -> Fetch | None:
    """Return the fetch that a writer recorded under this number, or None."""
    if number > LARGEST_NUMBER:
        return None
    return _newest(search, "kind = 'fetch' AND writer = ? AND seq = ?", [writer, number])


def fetch_of_document(search: Search, record: Record) -> Fetch | None:
    """Return the fetch that brought, or confirmed, the document of a decision; None if it is not recorded."""
    window = _window(record.fetched_at)
    if record.status is None or window is None:
        return None
    return _newest(
        search,
        f'{_ROBOTS_TXT} AND origin = ? AND failure IS NULL AND "at" >= ? AND "at" <= ?',
        [record.origin, *window],
    )


def fetch_of_failure(search: Search, record: Record) -> Fetch | None:
    """Return the last fetch before a decision that failed, if the decision depends on a failure."""
    window = _window(record.trouble_since, record.at)
    if record.failure is None or window is None:
        return None
    return _newest(
        search,
        f'{_ROBOTS_TXT} AND origin = ? AND "at" >= ? AND "at" <= ?',
        [record.origin, *window],
    )


def details_of_fetch(record: Fetch, sources: Sources) -> FetchDetails:
    """Look up the file of a fetch, and whether its response is archived."""
    lines, no_document = _list_document(record, sources)
    return FetchDetails(record, lines, no_document, _warc_of(record, sources.audit_log) is not None)


def archived_response(record: Fetch, audit_log: Path) -> bytes | None:
    """Return the WARC record of a response, as it is in its file; None if there is none. Raises SettingsError for a
    damaged file."""
    path = _warc_of(record, audit_log)
    if path is None:
        return None
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    try:
        with path.open("rb") as file:
            reader = ArchiveIterator(file)
            for each in reader:
                if each.rec_headers.get_header("WARC-Record-ID") == record.warc_id:
                    begins = reader.get_record_offset()
                    reader.read_to_end()
                    file.seek(begins)
                    return file.read(reader.get_record_length())
    except (OSError, ArchiveLoadFailed) as error:
        raise SettingsError(f"the archive {path.name} cannot be read: {error}") from error
    return None


def _newest(search: Search, condition: str, values: list[Any]) -> Fetch | None:
    found = find_records(search, condition, values, newest=1)
    return next((each for each in reversed(found) if isinstance(each, Fetch)), None)


def _window(at: str | None, until: str | None = None) -> tuple[str, str] | None:
    """Return the times around a recorded one, or from there until another, as in records; None if it is not one."""
    try:
        middle = datetime.fromisoformat(at or "")
        begins = moment((middle - BEFORE).timestamp())
        ends = until or moment((middle + AFTER).timestamp())
    except (ValueError, OverflowError):
        return None
    if begins is None or ends is None:
        return None
    return begins, ends


def _warc_of(record: Fetch, audit_log: Path) -> Path | None:
    """Return the file with the archived response, or None."""
    if not record.warc_id or not _WARC_NAME.fullmatch(record.warc_file or ""):
        return None
    path = audit_log / str(record.warc_file)
    if why_not_plain(path):
        return None
    return path


def _list_document(record: Fetch, sources: Sources) -> tuple[Listing | None, str]:
    """Return the file that a fetch brought, or None and why there is none."""
    if record.sha256 is None:
        return None, "The fetch brought no file."
    try:
        body = document_in(sources.store, record.sha256)
    except LookupError as error:
        return None, str(error)
    if not body:
        return None, "The file is empty."
    return listing(body, None), ""
