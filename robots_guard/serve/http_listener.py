"""A small HTTP/1.1 server for the data plane on the same machine, over httptools (llhttp).

It is a protocol of its own because a framework costs more than the decision (decision 30). It
serves what Envoy sends: requests without a body, one at a time on a connection.

Invariant: two requests are never read as one, nor one as two. A request with content, a second
request before the response to the first, and a head that llhttp does not accept are answered by 400
or by nothing, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

import httptools

from robots_guard.operation.listeners import start_server

log = logging.getLogger("robots_guard")

MAX_HEAD = 128 * 1024  # bytes of a request; Envoy accepts 60 KiB of its client
HEAD_TIMEOUT = 10.0  # seconds from the first byte of a request to its last one

Fields = tuple[tuple[bytes, bytes], ...]
_BREAKS = re.compile(r"[\r\n\0]")


class DataPlaneRequest(NamedTuple):
    """A request without content. The names of `fields` are in lower case."""

    method: bytes
    target: bytes
    fields: Fields


class HttpReply(NamedTuple):
    """A response: its status, its fields except Content-Length, and its content."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encode(self, *, method: bytes, closes: bool) -> bytes:
        """Return the bytes of the response to a request with this method. Raises ValueError for a
        field with a line break."""
        lines = [_status_line(self.status)]
        for name, value in self.headers:
            if _BREAKS.search(value):
                raise ValueError(f"a line break in the field {name}")
            lines.append(f"{name}: {value}\r\n".encode("latin-1", "replace"))
        if closes:
            lines.append(b"connection: close\r\n")
        if self.status != HTTPStatus.NO_CONTENT:  # RFC 9110 section 8.6
            lines.append(b"content-length: %d\r\n" % len(self.body))
        lines.append(b"\r\n")
        if method != b"HEAD":
            lines.append(self.body)
        return b"".join(lines)


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


_STATUS_LINES = {int(each): f"HTTP/1.1 {each:d} {each.phrase}\r\n".encode() for each in HTTPStatus}
_BAD_REQUEST = HttpReply(HTTPStatus.BAD_REQUEST)
_FAILED = HttpReply(HTTPStatus.INTERNAL_SERVER_ERROR)

#: A response, or the bytes of one, which leave as they are.
Reply = HttpReply | bytes
_REPLIES: Final = (HttpReply, bytes)
PendingReply = Callable[[], Coroutine[Any, Any, Reply]]  # waits, and returns the reply
#: Returns the reply to a request; or, if the request has to wait, a function that a task calls.
Handler = Callable[[DataPlaneRequest], Reply | PendingReply]


class HttpProtocol(asyncio.Protocol):
    """One connection of the data plane.

    If the data plane closes it while a request is being answered, the answer is cancelled.
    """

    _transport: asyncio.Transport
    closed: asyncio.Future[None]

    def __init__(self, handler: Handler, connections: set[HttpProtocol]) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._answer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_ending = False
        self.closed = self._loop.create_future()
        self._begin_request()

    def _begin_request(self) -> None:
        self._size = 0
        self._begun = 0
        self._is_whole = False
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []

    # -- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel the answer: the data plane no longer waits for it."""
        self._connections.discard(self)
        self.closed.set_result(None)
        self._cancel_deadline()
        if self._answer is not None:
            self._answer.cancel()

    def end(self) -> None:
        """Close the connection as soon as no request is being answered on it."""
        self._is_ending = True
        if self._answer is None:
            self._transport.close()

    # -- a request ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; answer the request when it is whole."""
        if self._answer is not None:
            self._abort("a request before the response to the last one")
            return
        self._size += len(data)
        if self._size > MAX_HEAD:
            self._refuse("a request that is too large")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._refuse(str(error))
            return
        if self._begun > 1:
            self._refuse("two requests at once")
        elif self._is_whole and self._parser.get_http_version() != "1.1":
            self._refuse("another version of HTTP than 1.1")
        elif self._is_whole:
            self._cancel_deadline()
            self._begin_answer()
        elif self._deadline is None:
            self._deadline = self._loop.call_later(HEAD_TIMEOUT, self._abort, "an unfinished head")

    def on_message_begin(self) -> None:
        """llhttp has found the first byte of a request."""
        self._begun += 1

    def on_url(self, part: bytes) -> None:
        """llhttp has found a part of the request target."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp has found a field."""
        name = name.lower()
        self._fields.append((name, value))
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            raise ValueError("a request with content")  # llhttp stops, and `feed_data` raises

    def on_body(self, _: bytes) -> None:
        """llhttp has found content."""
        raise ValueError("a request with content")

    def on_message_complete(self) -> None:
        """llhttp has found the end of a request."""
        self._is_whole = True

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, why: str) -> None:
        """Answer 400 to what cannot be read for certain, and close the connection."""
        log.warning("robots_guard: the data plane sent %s", why)
        self._transport.write(_BAD_REQUEST.encode(method=b"GET", closes=True))
        self._transport.close()

    def _abort(self, why: str) -> None:
        """Close the connection without an answer."""
        log.warning("robots_guard: the data plane sent %s", why)
        self._transport.abort()

    # -- its response -------------------------------------------------------------------------------------

    def _begin_answer(self) -> None:
        """Answer a whole request: at once, or by a task if the answer has to wait."""
        request = DataPlaneRequest(self._parser.get_method(), self._target, tuple(self._fields))
        closes = not self._parser.should_keep_alive()
        self._begin_request()
        try:
            reply = self._handler(request)
        except Exception:  # noqa: BLE001  `_fail` logs it
            self._fail(request)
            return
        if isinstance(reply, _REPLIES):
            self._reply(request, reply, closes)
        else:
            self._answer = self._loop.create_task(self._reply_later(request, reply, closes))

    async def _reply_later(
        self, request: DataPlaneRequest, wait: PendingReply, closes: bool
    ) -> None:
        try:
            reply = await wait()
        except Exception:  # noqa: BLE001  `_fail` logs it
            self._fail(request)
            return
        self._answer = None
        self._reply(request, reply, closes)

    def _reply(self, request: DataPlaneRequest, reply: Reply, closes: bool) -> None:
        closes = closes or self._is_ending
        try:
            encoded = _encoded(reply, request.method, closes)
        except Exception:  # noqa: BLE001  `_fail` logs it
            self._fail(request)
            return
        self._transport.write(encoded)
        if closes:
            self._transport.close()

    def _fail(self, request: DataPlaneRequest) -> None:
        """Log the exception that is being handled, and answer 500. The data plane then
        refuses the request."""
        log.exception("robots_guard failed; the request is refused")
        self._answer = None
        self._transport.write(_FAILED.encode(method=request.method, closes=True))
        self._transport.close()


def _encoded(reply: Reply, method: bytes, closes: bool) -> bytes:
    if isinstance(reply, bytes):
        return reply
    return reply.encode(method=method, closes=closes)


class HttpListener:
    """A server for the data plane on one socket."""

    def __init__(self, server: asyncio.Server, connections: set[HttpProtocol]) -> None:
        self._server = server
        self._connections = connections

    def close(self) -> None:
        """Accept no more connections, and close each one when its request is answered."""
        self._server.close()
        for connection in list(self._connections):
            connection.end()

    async def wait_closed(self) -> None:
        """Wait until the last connection is closed."""
        await asyncio.gather(*(each.closed for each in list(self._connections)))


async def listen_http(listener: socket.socket, handler: Handler) -> HttpListener:
    """Serve HTTP on a listening socket."""
    connections: set[HttpProtocol] = set()
    server = await start_server(lambda: HttpProtocol(handler, connections), listener)
    return HttpListener(server, connections)
