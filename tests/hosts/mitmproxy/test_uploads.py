"""Uploads: what is refused is not kept, what is too large goes nowhere."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hosts.mitmproxy.conftest import untouched
from hosts.mitmproxy.wire import Answer, closed, connected, plain, read_answer

from robots_guard.testing import Reply

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


# -- while the site's robots.txt is being asked for -----------------------------------------------------------


def slow(sites, **pages):
    return sites.start("http", robots=Reply(body="User-agent: *\nDisallow: /private/\n", delay=2.0), **pages)


@pytest.mark.parametrize(("target", "status"), [("/open", 413), ("/private/x", 403)])
def test_what_comes_before_the_verdict_is_kept_up_to_the_limit(strait, sites, target, status):
    site, before = slow(sites), peak(strait)

    assert upload(strait, site, target, 60).status == status
    assert site.origin.targets == []
    assert peak(strait) - before < 20


def test_a_streamed_upload_breaks_off_rather_than_arrive_in_part(start, sites):
    site, allowed = slow(sites), ("--set", "stream_large_bodies=10k", "--set", "body_size_limit=1m")
    with start("mitmdump", *allowed, allow_unsafe="stream_large_bodies") as door:
        with connected(door) as connection, contextlib.suppress(ConnectionError):
            head = f"POST {site.url}/open HTTP/1.1\r\nHost: {site.authority}\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + CHUNK * 20 + b"0\r\n\r\n")
            closed(connection)
        assert plain(door, site.url + "/after").status == 200
        assert site.origin.targets == ["/after"]


def test_a_client_that_sends_far_ahead_is_cut_off(strait, sites):
    site, before = slow(sites), peak(strait)
    with connected(strait) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(f"GET {site.url}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode())
        for _ in range(40):
            connection.sendall(b"x" * MEGABYTE)
        assert closed(connection) == b""
    assert site.origin.targets == []
    assert peak(strait) - before < 20
