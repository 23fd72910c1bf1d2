"""Uploads: what is refused is not kept, what is too large goes nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hosts.mitmproxy.conftest import untouched
from hosts.mitmproxy.wire import Answer, connected, plain, read_answer

MEGABYTE = 1_000_000
CHUNK = b"f4240\r\n" + b"x" * MEGABYTE + b"\r\n"  # one of them


def upload(door, site, target, megabytes, *, whole=True) -> Answer | None:
    with connected(door) as connection:
        head = f"POST {site.url}{target} HTTP/1.1\r\nHost: {site.authority}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(megabytes):
            connection.sendall(CHUNK)
        if not whole:
            return None
        connection.sendall(b"0\r\n\r\n")
        return read_answer(connection)


def peak(door) -> int:
    """The most memory a proxy ever had, in megabytes."""
    status = Path(f"/proc/{door.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1000


@pytest.mark.parametrize("kind", ["proxy", "mitmdump"])
def test_a_refused_upload_is_not_kept(kind, start, http_site):
    """It is larger than what may be kept, so it could not be answered with 403 if it were."""
    with start(kind) as door:
        assert plain(door, http_site.url + "/open").status == 200
        before = peak(door)
        with untouched(door, http_site):
            for _ in range(3):
                upload(door, http_site, "/private/x", 40, whole=False)
            assert upload(door, http_site, "/private/x", 100).status == 403
        assert peak(door) - before < 30


def test_an_allowed_upload_arrives_whole(door, http_site):
    assert upload(door, http_site, "/open", 3).status == 200
    assert http_site.origin.received[-1].body == b"x" * (3 * MEGABYTE)


@pytest.fixture
def strait(start):
    with start("mitmdump", "--set", "body_size_limit=1m") as door:
        yield door


def test_an_upload_over_the_limit(strait, http_site):
    said, body = f"Content-Length: {2 * MEGABYTE}\r\n", b"x" * (2 * MEGABYTE)
    with untouched(strait, http_site):
        assert plain(strait, http_site.url + "/open", method="POST", fields=said, body=body).status == 413
        assert upload(strait, http_site, "/open", 2).status == 413
