"""Uploads: bodies of refused requests are not kept, and too large ones are not sent."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from integrations.mitmproxy.conftest import untouched
from integrations.mitmproxy.process import refused_start
from integrations.mitmproxy.wire import (
    Answer,
    H2Client,
    closed,
    connected,
    exchange,
    plain,
    read_answer,
    request_fields,
    tunnel,
)
from support.waiting import eventually

from robots_guard.testing import Reply

MEGABYTE = 1_000_000
CHUNK = b"f4240\r\n" + b"x" * MEGABYTE + b"\r\n"  # one of them


def upload(integration, site, target, megabytes, *, whole=True) -> Answer | None:
    with connected(integration) as connection:
        head = f"POST {site.url}{target} HTTP/1.1\r\nHost: {site.authority}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(megabytes):
            connection.sendall(CHUNK)
        if not whole:
            return None
        connection.sendall(b"0\r\n\r\n")
        return read_answer(connection)


def peak(integration) -> int:
    """The most memory a proxy ever had, in megabytes."""
    status = Path(f"/proc/{integration.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1000


@pytest.mark.parametrize("kind", ["proxy", "mitmdump"])
def test_a_refused_upload_is_not_kept(kind, start, http_site):
    """It is larger than what may be kept, so it could not be answered with 403 if it were."""
    with start(kind) as integration:
        assert plain(integration, http_site.url + "/open").status == 200
        before = peak(integration)
        with untouched(integration, http_site):
            for _ in range(3):
                upload(integration, http_site, "/private/x", 40, whole=False)
            assert upload(integration, http_site, "/private/x", 100).status == 403
        assert peak(integration) - before < 30


def test_an_allowed_upload_arrives_whole(integration, http_site):
    assert upload(integration, http_site, "/open", 3).status == 200
    assert http_site.origin.received[-1].body == b"x" * (3 * MEGABYTE)


@pytest.fixture
def strait(start):
    with start("mitmdump", "--set", "body_size_limit=1m") as integration:
        yield integration


def test_an_upload_over_the_limit(strait, http_site):
    said, body = f"Content-Length: {2 * MEGABYTE}\r\n", b"x" * (2 * MEGABYTE)
    with untouched(strait, http_site):
        assert (
            plain(strait, http_site.url + "/open", method="POST", fields=said, body=body).status
            == 413
        )
        assert upload(strait, http_site, "/open", 2).status == 413


# -- while the site's robots.txt is being fetched -----------------------------------------------------------


def slow(sites, **pages):
    return sites.start(
        "http", robots=Reply(body="User-agent: *\nDisallow: /private/\n", delay=2.0), **pages
    )


@pytest.mark.parametrize(("target", "status"), [("/open", 413), ("/private/x", 403)])
def test_bodies_before_the_verdict_are_bounded(strait, sites, target, status):
    site, before = slow(sites), peak(strait)

    assert upload(strait, site, target, 60).status == status
    assert site.origin.targets == []
    assert peak(strait) - before < 20


def test_a_streamed_upload_over_the_limit_is_aborted(start, sites):
    site, allowed = slow(sites), ("--set", "stream_large_bodies=10k", "--set", "body_size_limit=1m")
    with start("mitmdump", *allowed, allow_unsafe="stream_large_bodies") as integration:
        with connected(integration) as connection, contextlib.suppress(ConnectionError):
            head = f"POST {site.url}/open HTTP/1.1\r\nHost: {site.authority}\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + CHUNK * 20 + b"0\r\n\r\n")
            closed(connection)
        assert plain(integration, site.url + "/after").status == 200
        assert site.origin.targets == ["/after"]


def test_a_large_response_is_streamed_if_that_is_allowed(start, sites):
    """By the length that its head declares, so that the client has the beginning of one that is cut off."""
    cut = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\nbeginning")
    site = sites.start("http", pages={"/large": cut})
    allowed = ("--set", "stream_large_bodies=10k")
    with (
        start("mitmdump", *allowed, allow_unsafe="stream_large_bodies") as integration,
        connected(integration) as connection,
    ):
        head = f"GET {site.url}/large HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        connection.sendall(head.encode())
        assert closed(connection).endswith(b"\r\n\r\nbeginning")


def test_a_client_that_sends_far_ahead_is_cut_off(strait, sites):
    site, before = slow(sites), peak(strait)
    with connected(strait) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(
            f"GET {site.url}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        for _ in range(40):
            connection.sendall(b"x" * MEGABYTE)
        assert closed(connection) == b""
    assert site.origin.targets == []
    assert peak(strait) - before < 20


# -- all of them together -------------------------------------------------------------------------------------


@pytest.fixture(params=["proxy", "mitmdump"])
def small(request, start):
    """A proxy that has room for three uploads of a megabyte."""
    with start(request.param, body_memory="3500k") as integration:
        yield integration


def began(stack, integration, site, target="/open", megabytes=1):
    """An unfinished upload that has sent this many bytes."""
    connection = stack.enter_context(connected(integration))
    head = f"POST {site.url}{target} HTTP/1.1\r\nHost: {site.authority}\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(head.encode() + CHUNK * megabytes)
    return connection


def test_uploads_beyond_the_memory_are_deferred(small, http_site):
    assert upload(small, http_site, "/open", 1).status == 200
    with contextlib.ExitStack() as stack:
        uploads = [began(stack, small, http_site) for _ in range(5)]
        answers = [exchange(each, b"0\r\n\r\n") for each in uploads]
        statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) <= 3
    refused = next(answer for answer in answers if answer.status == 503)
    assert (int(refused.headers["retry-after"]) > 0, b"body_memory" in refused.body) == (True, True)
    posted = [request.body for request in http_site.origin.received if request.method == "POST"]
    assert posted == [b"x" * MEGABYTE] * (1 + statuses.count(200))


def test_an_upload_that_can_never_fit_is_refused(small, http_site):
    for _ in range(2):
        assert upload(small, http_site, "/open", 5).status == 413
    assert b"body_memory" in upload(small, http_site, "/open", 5).body
    assert http_site.origin.targets == []


@pytest.mark.parametrize("end", ["closed", "answered", "refused", "reset by the site"])
def test_memory_is_released_however_an_upload_ends(small, sites, end):
    site = sites.start("http", pages={"/reset": Reply(reset=True)})
    for _ in range(4):
        if end == "closed":
            upload(small, site, "/open", 3, whole=False)
            eventually(lambda: upload(small, site, "/open", 3).status == 200)
        elif end == "answered":
            assert upload(small, site, "/open", 3).status == 200
        elif end == "refused":
            assert upload(small, site, "/private/x", 3).status == 403
        else:
            assert upload(small, site, "/reset", 3).status == 502


def test_unfinished_uploads_stay_within_the_memory(start, http_site):
    with start("proxy", body_memory="40m") as integration, contextlib.ExitStack() as stack:
        assert plain(integration, http_site.url + "/open").status == 200
        before = peak(integration)
        uploads = [began(stack, integration, http_site, megabytes=30) for _ in range(8)]
        statuses = [exchange(each, b"0\r\n\r\n").status for each in uploads]
        assert set(statuses) == {200, 503}
        assert peak(integration) - before < 160  # sending a body takes two copies


def test_a_refused_upload_over_http2_keeps_the_connection(small, https_site):
    fields = request_fields(https_site.authority, "/open", method="POST")
    with tunnel(small, https_site.authority, alpn=["h2"]) as connection:
        client = H2Client(connection)
        answers = [
            client.exchange(fields, [b"x" * size])
            for size in (5 * MEGABYTE, 10, 5 * MEGABYTE, MEGABYTE)
        ]
    assert [answer.status for answer in answers] == [413, 200, 413, 200]


def test_an_upload_that_grows_while_robots_txt_is_fetched(small, sites):
    site = slow(sites)
    assert upload(small, site, "/open", 10).status == 413
    assert upload(small, site, "/private/x", 10).status == 403
    assert upload(small, site, "/open", 3).status == 200
    assert [
        request.method for request in site.origin.received if request.target != "/robots.txt"
    ] == ["POST"]


def test_bytes_after_a_request_are_counted(small, sites):
    """A client that sends its next upload before it has the answer to the last."""
    site = sites.start("http", pages={"/slow": Reply(body="x", delay=1.0)})
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connected(small))
        head = f"GET {site.url}/slow HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode() + b"x" * 6 * MEGABYTE)
            assert closed(connection) == b""
    assert plain(small, site.url + "/after").status == 200


@pytest.mark.parametrize("text", ["0", "much", "-1", "1t"])
def test_an_invalid_body_memory(text, tmp_path):
    status, printed = refused_start("proxy", tmp_path, body_memory=text)
    assert (status, "--body-memory" in printed, "256m" in printed) == (2, True, True)
