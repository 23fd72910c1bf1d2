"""Evidence: each fetch of a robots.txt as WARC records (ISO 28500), for archives. What was not found, too.

The law of this file: what was seen, and nothing secret. A fetcher hands over header fields and a decoded body, so
the octets of the wire are not here: transfer and content codings are left out, Content-Length is the body's.
"""

from __future__ import annotations

import errno
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
from robots_guard.audit.segments import JSONL, WARC
from robots_guard.core.access import Fetched, Get
from robots_guard.core.events import FetchMade
from robots_guard.errors import MissingExtra
from robots_guard.origin import split_url

_LEFT_OUT = frozenset(
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
    """The WARC file beside each file of a writer. Raises MissingExtra where warcio is not installed.

    After a failed write it goes on in another file: what follows a torn record is not read. With `sync`, what `keep`
    has returned is on the disk.
    """

    def __init__(self, directory: Path, files: Files = FILES, *, sync: bool = False) -> None:
        try:
            import warcio  # noqa: F401  needed later
        except ImportError as error:
            raise MissingExtra("audit", "evidence = warc") from error
        self._directory = directory
        self._files = files
        self._sync = sync
        self._beside, self._number, self._name = "", 0, ""
        self._descriptor = -1
        self._lock = threading.Lock()

    def keep(self, event: FetchMade, privacy: Privacy, beside: str) -> dict[str, str]:
        """Write a fetch; the id of its response record and the name of its file. Raises OSError."""
        if not isinstance(event.outcome, Fetched):
            return {}  # no answer: there is nothing to keep but the journal's own record
        octets, identity = records_of(event, privacy)
        with self._lock:
            if beside != self._beside or not self._is_there():
                self._begin(beside)
            self._append(octets)
            return {"evidence": identity, "evidence_file": self._name}

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._files.close(self._descriptor)
        self._descriptor = -1

    def _is_there(self) -> bool:
        """Whether the open file still has its name, under which the records refer to it."""
        if self._descriptor < 0:
            return False
        there = self._files.fstat(self._descriptor)
        try:
            named = self._files.stat(self._directory / self._name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:  # the process gave up its right to search the directory when it had opened the file
            return there.st_nlink > 0
        return (named.st_dev, named.st_ino) == (there.st_dev, there.st_ino)

    def _begin(self, beside: str) -> None:
        """A new file: the first beside one of the writer's has its name."""
        self.close()
        self._number = self._number + 1 if beside == self._beside else 1
        self._beside = beside
        more = f"-{self._number:04}" if self._number > 1 else ""
        self._name = beside.removesuffix(JSONL) + more + WARC
        self._descriptor = self._files.open(self._directory / self._name, _FLAGS, 0o640)
        if self._sync:
            sync_directory(self._directory, self._files)
        self._append(_info(self._name))

    def _append(self, octets: bytes) -> None:
        try:
            if self._files.write(self._descriptor, octets) != len(octets):
                raise OSError(errno.ENOSPC, "cut short")
            if self._sync:
                self._files.fdatasync(self._descriptor)
        except OSError:
            self.close()
            raise


def records_of(event: FetchMade, privacy: Privacy) -> tuple[bytes, str]:
    """The response and the request as WARC records, each a gzip member, and the response's WARC-Record-ID."""
    assert isinstance(event.outcome, Fetched)
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    packed = io.BytesIO()
    writer = WARCWriter(packed, gzip=True, warc_version="1.1")
    url, outcome = privacy.url(event.get.url), event.outcome
    extra = {"WARC-Date": _date(event.at)}
    if outcome.truncated:
        extra["WARC-Truncated"] = "length"
    answer = StatusAndHeaders(_status(outcome.status), _fields(outcome, privacy), protocol="HTTP/1.1")
    response = _record(writer, url, "response", outcome.body, answer, extra)
    asked = StatusAndHeaders(f"GET {split_url(url)[1]} HTTP/1.1", _asked(event.get, url), is_http_request=True)
    request = _record(writer, url, "request", b"", asked, {"WARC-Date": extra["WARC-Date"]})
    writer.write_request_response_pair(request, response)
    return packed.getvalue(), response.rec_headers.get_header("WARC-Record-ID")


def _record(writer: Any, url: str, kind: str, body: bytes, head: Any, extra: dict[str, str]) -> Any:
    return writer.create_warc_record(
        url, kind, payload=io.BytesIO(body), length=len(body), http_headers=head, warc_headers_dict=extra
    )


def _info(name: str) -> bytes:
    from warcio.warcwriter import WARCWriter

    packed = io.BytesIO()
    writer = WARCWriter(packed, gzip=True, warc_version="1.1")
    writer.write_record(writer.create_warcinfo_record(name, {"software": "robots_guard", "robots": "obey"}))
    return packed.getvalue()


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def _fields(outcome: Fetched, privacy: Privacy) -> list[tuple[str, str]]:
    kept = [(name, value) for name, value in outcome.headers.items() if name.lower() not in _LEFT_OUT]
    shown = [(name, privacy.url(value) if name.lower() == "location" else _line(value)) for name, value in kept]
    return [*shown, ("content-length", str(len(outcome.body)))]


def _asked(get: Get, url: str) -> list[tuple[str, str]]:
    origin = split_url(url)[0]
    return [("Host", str(origin).partition("://")[2]), *((name, _line(value)) for name, value in get.headers)]


def _line(value: str) -> str:
    """A header's value, which is one line whatever it held."""
    return re.sub(r"[\r\n\0]+", " ", value)
