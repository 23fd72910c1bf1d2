"""Evidence: each fetch of a robots.txt or tdmrep.json, including error responses, and the records
of responses that state something about the use of their content, as WARC records (ISO 28500).

Invariant: a record has what was received, without secrets. Fetchers return header fields and a
decoded body, not the bytes on the wire: transfer and content codings are therefore left out, and
Content-Length is the decoded body's.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import threading
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from robots_guard.audit.files import FILES, Files, sync_directory
from robots_guard.audit.privacy import Privacy
from robots_guard.audit.record import SignalsRecord
from robots_guard.audit.segments import JSONL, WARC
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.errors import MissingExtra
from robots_guard.origin import split_url

_OMITTED_FIELDS = frozenset(
    (
        "set-cookie",
        "set-cookie2",
        "www-authenticate",
        "authentication-info",
        "proxy-authenticate",
        "proxy-authentication-info",
        "connection",
        "transfer-encoding",
        "content-encoding",
        "content-length",
    )
)
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW


class Evidence:
    """The WARC file that accompanies each file of a writer. Raises MissingExtra if warcio is not
    installed.

    After a failed write it continues in another file, because readers stop at a torn record. With
    `sync`, a record is on the disk when `keep` returns.
    """

    def __init__(self, directory: Path, files: Files = FILES, *, sync: bool = False) -> None:
        try:
            import warcio  # noqa: F401  used later; a missing extra is reported at the start
        except ImportError as error:
            raise MissingExtra("audit", "audit = evidence") from error
        self._directory = directory
        self._files = files
        self._sync = sync
        self._log_name, self._number, self._name = "", 0, ""
        self._descriptor = -1
        self._lock = threading.Lock()

    def keep(self, event: FetchMade, privacy: Privacy, beside: str) -> dict[str, str]:
        """Write a fetch to the file that accompanies the log file `beside`.

        Returns the id of the response record, the name of the file, and the digest of what was
        written. Raises OSError.
        """
        if not isinstance(event.outcome, Fetched):
            return {}  # there was no response: the audit log's own record is all there is
        data, identity = records_of(event, privacy)
        with self._lock:
            self._append_beside(beside, data)
            digest = hashlib.sha256(data).hexdigest()
            return {"warc_id": identity, "warc_file": self._name, "warc_sha256": digest}

    def keep_signals(self, record: SignalsRecord, at: float, beside: str) -> None:
        """Write the audit log's record of a response as a metadata record. Raises OSError."""
        data = metadata_of(record, at)
        with self._lock:
            self._append_beside(beside, data)

    def _append_beside(self, log_name: str, data: bytes) -> None:
        if log_name != self._log_name or not self._has_name():
            self._begin(log_name)
        self._append(data)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._files.close(self._descriptor)
        self._descriptor = -1

    def _has_name(self) -> bool:
        """Whether the open file still has its name, under which the records refer to it."""
        if self._descriptor < 0:
            return False
        opened = self._files.fstat(self._descriptor)
        try:
            named = self._files.stat(self._directory / self._name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            # After opening the file, the process dropped its right to search the directory.
            return opened.st_nlink > 0
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _begin(self, log_name: str) -> None:
        """Begin a new file, named after the log file; further ones of the same log file are
        numbered."""
        self.close()
        if log_name != self._log_name:
            self._number = 0
        self._number += 1
        self._log_name = log_name
        suffix = f"-{self._number:04}" if self._number > 1 else ""
        self._name = log_name.removesuffix(JSONL) + suffix + WARC
        self._descriptor = self._files.open(self._directory / self._name, _FLAGS, 0o640)
        if self._sync:
            sync_directory(self._directory, self._files)
        self._append(_info(self._name))

    def _append(self, data: bytes) -> None:
        try:
            if self._files.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "cut short")
            if self._sync:
                self._files.fdatasync(self._descriptor)
        except OSError:
            self.close()
            raise


def records_of(event: FetchMade, privacy: Privacy) -> tuple[bytes, str]:
    """The response and request as WARC records, each a gzip member; and the WARC-Record-ID of the
    response."""
    assert isinstance(event.outcome, Fetched)
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    packed = io.BytesIO()
    writer = WARCWriter(packed, gzip=True, warc_version="1.1")
    url, outcome = privacy.url(event.get.url), event.outcome
    extra = {"WARC-Date": _date(event.at)}
    if outcome.truncated:
        extra["WARC-Truncated"] = "length"
    answer = StatusAndHeaders(
        _status(outcome.status), _response_fields(outcome, privacy), protocol="HTTP/1.1"
    )
    response = _record(writer, url, "response", outcome.body, answer, extra)
    request_line = f"GET {split_url(url)[1]} HTTP/1.1"
    question = StatusAndHeaders(request_line, _request_fields(event.get, url), is_http_request=True)
    request = _record(writer, url, "request", b"", question, {"WARC-Date": extra["WARC-Date"]})
    writer.write_request_response_pair(request, response)
    return packed.getvalue(), response.rec_headers.get_header("WARC-Record-ID")


def metadata_of(record: SignalsRecord, at: float) -> bytes:
    """A metadata record (ISO 28500 section 6.5) about the URL of a response, as a gzip member."""
    from warcio.warcwriter import WARCWriter

    packed, content = io.BytesIO(), record.line_of_json()
    writer = WARCWriter(packed, gzip=True, warc_version="1.1")
    writer.write_record(
        writer.create_warc_record(
            record.url,
            "metadata",
            payload=io.BytesIO(content),
            length=len(content),
            warc_content_type="application/json",
            warc_headers_dict={"WARC-Date": _date(at)},
        )
    )
    return packed.getvalue()


def _record(writer: Any, url: str, kind: str, body: bytes, head: Any, extra: dict[str, str]) -> Any:
    return writer.create_warc_record(
        url,
        kind,
        payload=io.BytesIO(body),
        length=len(body),
        http_headers=head,
        warc_headers_dict=extra,
    )


def _info(name: str) -> bytes:
    from warcio.warcwriter import WARCWriter

    packed = io.BytesIO()
    writer = WARCWriter(packed, gzip=True, warc_version="1.1")
    writer.write_record(
        writer.create_warcinfo_record(name, {"software": "robots_guard", "robots": "obey"})
    )
    return packed.getvalue()


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def _response_fields(outcome: Fetched, privacy: Privacy) -> list[tuple[str, str]]:
    fields = []
    for name, value in outcome.headers.items():
        if name.lower() == "location":
            fields.append((name, privacy.url(value)))
        elif name.lower() not in _OMITTED_FIELDS:
            fields.append((name, _single_line(value)))
    return [*fields, ("content-length", str(len(outcome.body)))]


def _request_fields(get: Get, url: str) -> list[tuple[str, str]]:
    origin = split_url(url)[0]
    fields = [(name, _single_line(value)) for name, value in get.headers]
    return [("Host", str(origin).partition("://")[2]), *fields]


def _single_line(value: str) -> str:
    """A header field's value with line breaks and NULs replaced, so that it cannot add a line."""
    return re.sub(r"[\r\n\0]+", " ", value)
