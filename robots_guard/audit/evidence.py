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
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

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
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Evidence:
    """The WARC file beside each file of a writer. Raises MissingExtra where warcio is not installed."""

    def __init__(self, directory: Path) -> None:
        try:
            import warcio  # noqa: F401  needed later
        except ImportError as error:
            raise MissingExtra("audit", "evidence = warc") from error
        self._directory = directory
        self._name = ""
        self._file: io.FileIO | None = None
        self._lock = threading.Lock()

    def keep(self, event: FetchMade, privacy: Privacy, beside: str) -> dict[str, str]:
        """Write a fetch; the id of its response record and the name of its file. Raises OSError."""
        if not isinstance(event.outcome, Fetched):
            return {}  # no answer: there is nothing to keep but the journal's own record
        octets, identity = records_of(event, privacy)
        with self._lock:
            file = self._opened(beside.removesuffix(JSONL) + WARC)
            if file.write(octets) != len(octets):
                self.close()
                raise OSError(errno.ENOSPC, "cut short")
            return {"evidence": identity, "evidence_file": self._name}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file, self._name = None, ""

    def _opened(self, name: str) -> io.FileIO:
        if self._file is None or name != self._name or os.fstat(self._file.fileno()).st_nlink == 0:
            self.close()
            path = self._directory / name
            self._file = io.FileIO(path, "ab", opener=lambda file, _: os.open(file, _FLAGS, 0o640))
            self._name = name
            self._file.write(_info(name))
        return self._file


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
