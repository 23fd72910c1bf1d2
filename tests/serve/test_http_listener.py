"""The small HTTP server for a data plane: what it reads as a request, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from socket import create_server

import pytest

from robots_guard.gateway.listeners import Address, listening
from robots_guard.serve import http_listener
from robots_guard.serve.http_listener import (
    DataPlaneRequest,
    HttpReply,
    PendingReply,
    Reply,
    listen_http,
)

HEAD = b"GET /check/http/a HTTP/1.1\r\nhost: a.example\r\ncontent-length: 0\r\n"
WHOLE = HEAD + b"\r\n"


class Handler:
    """Answers each request by its target, after `gate` has been opened.

    With `at_once`, it answers without waiting while the gate is open.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.requests: list[DataPlaneRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = asyncio.Event()
        self.reply: HttpReply | None = None
        self.failure: Exception | None = None
        self._at_once = at_once

    def __call__(self, request: DataPlaneRequest) -> Reply | PendingReply:
        self.requests.append(request)
        if self._at_once and self.gate.is_set():
            return self._answer(request)
        return partial(self._wait, request)

    async def _wait(self, request: DataPlaneRequest) -> HttpReply:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self._answer(request)

    def _answer(self, request: DataPlaneRequest) -> HttpReply:
        if self.failure is not None:
            raise self.failure
        return self.reply or HttpReply(200, (("x-target", request.target.decode()),))


@pytest.fixture(params=[True, False], ids=["at-once", "later"])
async def handler(request):
    return Handler(at_once=request.param)


@pytest.fixture
async def listener(handler, tmp_path):
    with listening(Address(path=str(tmp_path / "s")), "--envoy") as socket:
        opened = await listen_http(socket, handler)
        yield opened
        opened.close()


@pytest.fixture
async def connection(listener, tmp_path):
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
    yield reader, writer
    writer.close()


async def _sent(connection, *parts: bytes) -> bytes:
    """Everything that is answered until the server closes the connection or waits for more."""
    reader, writer = connection
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write_eof()
    return await reader.read()


async def test_a_request_is_answered_and_the_connection_kept(connection, handler):
    reader, writer = connection
    for _ in range(3):
        writer.write(WHOLE)
        assert await reader.readuntil(b"\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\nx-target: /check/http/a\r\ncontent-length: 0\r\n\r\n"
        )

    assert handler.requests[0].fields == ((b"host", b"a.example"), (b"content-length", b"0"))


async def test_a_request_in_many_pieces_is_one(connection, handler):
    answer = await _sent(connection, *(WHOLE[at : at + 1] for at in range(len(WHOLE))))

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert [request.target for request in handler.requests] == [b"/check/http/a"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((WHOLE + WHOLE,), id="two-at-once"),
        pytest.param((WHOLE + b"GET",), id="one-and-the-beginning-of-another"),
        pytest.param((HEAD[:-3] + b"5\r\n\r\nhello",), id="content"),
        pytest.param((HEAD[:-3] + b"5\r\n\r\n",), id="content-that-is-yet-to-come"),
        pytest.param((HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",), id="chunked"),
        pytest.param((HEAD + b"content-length: 7\r\n\r\n" + WHOLE,), id="two-lengths"),
        pytest.param((HEAD[:-3] + b"+0\r\n\r\n",), id="a-length-with-a-sign"),
        pytest.param((HEAD + b" folded: x\r\n\r\n",), id="a-folded-field"),
        pytest.param((HEAD + b"a b: x\r\n\r\n",), id="a-blank-in-a-name"),
        pytest.param((HEAD + b"a : x\r\n\r\n",), id="a-blank-before-the-colon"),
        pytest.param((HEAD + b"a: x\0y\r\n\r\n",), id="a-nul"),
        pytest.param((HEAD + b"a: x\ry\r\n\r\n",), id="a-bare-cr"),
        pytest.param((b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",), id="a-blank-in-the-target"),
        pytest.param((b"GET /a\r\n\r\n",), id="http-0.9"),
        pytest.param((b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\nGET / HTTP",), id="connect"),
        pytest.param((HEAD + b"upgrade: x\r\nconnection: upgrade\r\n\r\nab",), id="upgrade"),
        pytest.param((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), id="http-2"),
        pytest.param((b"\x16\x03\x01\x00\x05hello",), id="tls"),
    ],
)
async def test_what_is_not_one_request_without_content_is_refused(connection, handler, parts):
    answer = await _sent(connection, *parts)

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n")
    assert answer.count(b"HTTP/1.1") == 1
    assert handler.requests == []


async def test_a_request_before_the_response_to_the_last_one_ends_the_connection(
    connection, handler
):
    handler.gate.clear()
    reader, writer = connection
    writer.write(WHOLE)
    await asyncio.sleep(0.01)
    writer.write(WHOLE)

    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    await asyncio.wait_for(handler.cancelled.wait(), 5)
    assert len(handler.requests) == 1


async def test_a_large_head_is_refused(connection, handler):
    line = b"a: " + b"x" * 8000 + b"\r\n"

    answer = await _sent(connection, HEAD + line * 20)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert handler.requests == []


async def test_an_unfinished_head_ends_the_connection(connection, handler, monkeypatch):
    monkeypatch.setattr(http_listener, "HEAD_TIMEOUT", 0.05)
    reader, writer = connection
    writer.write(HEAD)

    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert handler.requests == []


async def test_the_answer_is_cancelled_if_the_data_plane_leaves(connection, handler):
    handler.gate.clear()
    _, writer = connection
    writer.write(WHOLE)
    await asyncio.sleep(0.01)
    writer.close()

    await asyncio.wait_for(handler.cancelled.wait(), 5)


async def test_an_exception_is_no_permission(connection, handler):
    handler.failure = LookupError()

    answer = await _sent(connection, WHOLE)

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close" in answer


async def test_a_line_break_does_not_leave_in_a_field(connection, handler):
    handler.reply = HttpReply(403, (("x", "a\r\ny: b"),))

    assert (await _sent(connection, WHOLE)).startswith(b"HTTP/1.1 500 ")


async def test_the_response_to_head_has_no_content(connection, handler):
    handler.reply = HttpReply(403, (), b"no")

    answer = await _sent(connection, WHOLE.replace(b"GET", b"HEAD"))

    assert answer.endswith(b"content-length: 2\r\n\r\n")


async def test_closing_waits_for_the_request_that_is_being_answered(connection, listener, handler):
    handler.gate.clear()
    reader, writer = connection
    writer.write(WHOLE)
    await asyncio.sleep(0.01)

    listener.close()
    handler.gate.set()

    assert b"connection: close\r\n" in await reader.read()
    await asyncio.wait_for(listener.wait_closed(), 5)


async def test_a_port_of_loopback(handler):
    opened = create_server(("127.0.0.1", 0))
    listener = await listen_http(opened, handler)
    port = opened.getsockname()[1]

    connection = await asyncio.open_connection("127.0.0.1", port)
    answer = await _sent(connection, WHOLE)

    assert answer.startswith(b"HTTP/1.1 200 OK")
    connection[1].close()
    await connection[1].wait_closed()
    listener.close()


VISIBLE = bytes(range(0x21, 0x7F))


@pytest.mark.parametrize(
    "request_line",
    [
        pytest.param(b"GET /" + VISIBLE + b" HTTP/1.1", id="every-visible-character"),
        pytest.param(b"GET /a HTTP/1.1", id="get"),
        pytest.param(b"M-SEARCH /a HTTP/1.1", id="a-method-with-a-hyphen"),
        pytest.param(b"NONSENSE /a HTTP/1.1", id="a-method-that-is-none"),
        pytest.param(b"get /a HTTP/1.1", id="a-method-in-lower-case"),
        pytest.param(b"PRI /a HTTP/1.1", id="pri"),
        pytest.param(b"CONNECT /a HTTP/1.1", id="connect"),
        pytest.param(b"GET /a\tb HTTP/1.1", id="a-tab-in-the-target"),
        pytest.param(b"GET /caf\xe9 HTTP/1.1", id="not-ascii"),
        pytest.param(b"GET a HTTP/1.1", id="no-slash"),
        pytest.param(b"GET * HTTP/1.1", id="asterisk"),
        pytest.param(b"GET http://x/a HTTP/1.1", id="an-absolute-target"),
        pytest.param(b"GET  /a HTTP/1.1", id="two-blanks"),
        pytest.param(b"GET /a HTTP/1.0", id="http-1.0"),
        pytest.param(b"GET /a HTTP/1.1 ", id="a-blank-at-the-end"),
        pytest.param(b"GET /a http/1.1", id="a-version-in-lower-case"),
        pytest.param(b"\r\nGET /a HTTP/1.1", id="an-empty-line-before"),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(b"Host: a\r\nA:\r\nb: \t c \r\n", id="usual"),
        pytest.param(b"host: a\r\nconnection: close\r\n", id="close"),
        pytest.param(b"host: a\r\nupgrade: x\r\nconnection: upgrade\r\n", id="upgrade"),
        pytest.param(b"host: a\r\ncontent-length: 0\r\ncontent-length: 0\r\n", id="two-lengths"),
        pytest.param(b"", id="none"),
    ],
)
async def test_a_request_that_is_found_by_its_bytes_is_read_as_before(
    listener, handler, tmp_path, monkeypatch, request_line, fields
):
    whole = request_line + b"\r\n" + fields + b"\r\n"
    answers, read = [], []
    for is_found in (False, True, True):  # for the second time in the cache
        if not is_found:
            monkeypatch.setattr(http_listener, "_whole_request", lambda _: None)
        handler.requests.clear()
        streams = await asyncio.open_unix_connection(str(tmp_path / "s"))
        answers.append(await _sent(streams, whole))
        read.append([request[:3] for request in handler.requests])
        streams[1].close()
        monkeypatch.undo()

    assert answers[0] == answers[1] == answers[2]
    assert read[0] == read[1] == read[2]


async def test_fields_of_repeated_requests_are_kept_only_if_they_are_few(connection, handler):
    large = HEAD + b"user-agent: " + b"x" * http_listener._CACHED_HEAD + b"\r\n\r\n"
    reader, writer = connection
    for whole in (WHOLE, WHOLE, large, large):
        writer.write(whole)
        await reader.readuntil(b"\r\n\r\n")

    assert [request.is_cached for request in handler.requests] == [True, True, False, False]
    first, second, *_ = handler.requests
    assert first.fields is second.fields
