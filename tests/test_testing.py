"""The origins of robots_guard.testing record every request, so a test may conclude that no other
reached them."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from support.waiting import eventually

from robots_guard.testing import Loopback

NOT_WHOLE = {
    "a body that is cut off": b"POST /private/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
    "a length that is none": b"POST /private/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\na",
    "a negative length": b"POST /private/x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\na",
    "a chunk that is none": b"POST /private/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "chunks that are cut off": b"POST /private/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    "a head that is cut off": b"GET /private/x HTTP/1.1\r\nHost: a\r\n",
    "a head that is too long": b"GET /private/x HTTP/1.1\r\nHost: a\r\nX: "
    + b"y" * 140_000
    + b"\r\n\r\n",
    "a head of too many lines": b"GET /private/x HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    "a first line that is too long": b"GET /private/x?" + b"y" * 140_000 + b" HTTP/1.1\r\n\r\n",
    "tabs for spaces": b"GET\t/private/x\tHTTP/1.1\r\nHost: a\r\n",
    "no version": b"GET /private/x\r\n",
}
WHOLE = {
    "a plain request": b"GET /private/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare line feeds": b"GET /private/x HTTP/1.1\nHost: a\n\n",
    "an empty line before": b"\r\nGET /private/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a body": b"POST /private/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "chunks": b"POST /private/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n",
}


@pytest.fixture
def site():
    with Loopback() as net:
        yield net.origin(robots="User-agent: *\nDisallow: /private/")


def send_and_wait(site, data):
    """Send bytes, and wait until the origin has closed the connection."""
    with socket.create_connection((site.address, site.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass


@pytest.mark.parametrize("data", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_incomplete_or_malformed_request_is_recorded_as_not_whole(site, data):
    send_and_wait(site, data)

    assert site.pages_matching("/private/x")
    assert [request.whole for request in site.received] == [False]


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_complete_request_is_recorded_once(site, data):
    send_and_wait(site, data)

    assert site.targets == ["/private/x"]
    (request,) = site.received
    assert request.whole
    assert request.headers["host"] == "a"
    assert request.body == (b"abc" if request.method == "POST" else b"")


def test_a_request_is_recorded_before_the_rest_of_it_arrives(site):
    with socket.create_connection((site.address, site.port), timeout=10) as connection:
        connection.sendall(b"POST /private/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
        eventually(lambda: site.received and site.received[0].headers)
        (begun,) = site.received
        assert (begun.target, begun.headers["host"], begun.whole) == ("/private/x", "a", False)
        connection.sendall(b"bc")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")

    (request,) = site.received
    assert (request.body, request.whole) == (b"abc", True)


def test_bytes_without_a_line_end_are_no_request(site):
    send_and_wait(site, b"\r\n\r\nGET /private/x")

    assert site.received == []


def test_a_tls_handshake_is_no_request(site):
    send_and_wait(site, b"\x16\x03\x01\x00\x20hello\nGET /private/x HTTP/1.1\r\n\r\n")

    assert site.received == []


# `_run` and `_close` put the end of the network between two steps of an accepted connection.
def test_a_connection_that_is_accepted_at_the_end_is_closed(caplog):
    async def accept_and_close(network, site):
        client = socket.create_connection((site.address, site.port))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is accepted, and its task has not started
        await network._close()
        return client

    with Loopback() as network:
        client = network._run(accept_and_close(network, network.origin()))
    client.settimeout(5)
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    assert caplog.records == []
