"""A small HTTP/1.1 server for the data plane on the same machine, over httptools (llhttp).

It is a protocol of its own because a framework costs more than the decision (decision 30). It
serves what Envoy sends: requests without a body, one at a time on a connection.

Invariant: two requests are never read as one, nor one as two. A request with content, a second
request before the response to the first, and a head that llhttp does not accept are answered by 400
or by nothing, and the connection is closed.

A crawler sends the same fields with each request to a site. So fields that arrive together with
their request line are read once, by llhttp, and then found by their bytes (`_fields_of`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Coroutine
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

import httptools

from robots_guard.gateway.listeners import ConnectionServer, ServedConnection

log = logging.getLogger("robots_guard")

MAX_HEAD = 128 * 1024  # bytes of a request; Envoy accepts 60 KiB of its client
HEAD_TIMEOUT = 10.0  # seconds from the first byte of a request to its last one

Fields = tuple[tuple[bytes, bytes], ...]
_BREAKS = re.compile(r"[\r\n\0]")
_REQUEST_LINE = re.compile(rb"([A-Z-]{1,32}) (/[!-~]*) HTTP/1\.1")
_END = b"\r\n\r\n"
_CACHED_HEADS = 4096
_CACHED_HEAD = 1024  # bytes without the request line; a usual head has 200 to 400


class DataPlaneRequest(NamedTuple):
    """A request without content. The names of `fields` are in lower case.

    `is_cached` says that the listener keeps the fields, so that what is read from them may be kept
    as well. It bounds their size.
    """

    method: bytes
    target: bytes
    fields: Fields
    is_cached: bool = False


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


def _whole_request(data: bytes) -> DataPlaneRequest | None:
    """Return the request if the bytes are exactly one, which need no closer look; else None."""
    line, _, rest = data.partition(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None or len(rest) > _CACHED_HEAD:
        return None
    method, target = found.groups()
    fields = _fields_of(method, rest)
    if fields is None:
        return None
    return DataPlaneRequest(method, target, fields, is_cached=True)


@lru_cache(maxsize=_CACHED_HEADS)
def _fields_of(method: bytes, rest: bytes) -> Fields | None:
    """The fields of a request, of which `rest` is what follows its request line. None if that is
    not all of a request without content, or if the connection ends with it."""
    if not rest.endswith(_END):
        return None
    reader = _HeadReader()
    parser = httptools.HttpRequestParser(reader)
    try:
        parser.feed_data(b"%b / HTTP/1.1\r\n%b" % (method, rest))
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    if reader.begun != 1 or not reader.is_whole or not parser.should_keep_alive():
        return None
    return tuple(reader.fields)


class _HeadReader:
    """What llhttp has found of a request without content."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was found."""
        self.begun = 0
        self.is_whole = False
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_message_begin(self) -> None:
        """llhttp has found the first byte of a request."""
        self.begun += 1

    def on_url(self, part: bytes) -> None:
        """llhttp has found a part of the request target."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp has found a field."""
        name = name.lower()
        self.fields.append((name, value))
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            raise ValueError("a request with content")  # llhttp stops, and `feed_data` raises

    def on_body(self, _: bytes) -> None:
        """llhttp has found content."""
        raise ValueError("a request with content")

    def on_message_complete(self) -> None:
        """llhttp has found the end of a request."""
        self.is_whole = True


class HttpProtocol(asyncio.Protocol):
    """One connection of the data plane.

    If the data plane closes it while a request is being answered, the answer is cancelled.
    """

    _transport: asyncio.Transport

    def __init__(self, handler: Handler, connections: set[ServedConnection]) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._reader = _HeadReader()
        self._parser = httptools.HttpRequestParser(self._reader)
        self._size = 0  # bytes of a request that is not whole
        self._answer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_ending = False
        self.ended = asyncio.Event()

    # -- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel the answer: the data plane no longer waits for it."""
        self._connections.discard(self)
        self.ended.set()
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
        request = None if self._size else _whole_request(data)
        if request is not None:
            self._begin_answer(request, closes=False)
        else:
            self._read_part(data)

    def _read_part(self, data: bytes) -> None:
        """Read bytes that may be any part of a request, or anything else."""
        self._size += len(data)
        if self._size > MAX_HEAD:
            self._refuse("a request that is too large")
            return
        reader, parser = self._reader, self._parser
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._refuse(str(error))
            return
        if reader.begun > 1:
            self._refuse("two requests at once")
        elif reader.is_whole and parser.get_http_version() != "1.1":
            self._refuse("another version of HTTP than 1.1")
        elif reader.is_whole:
            self._cancel_deadline()
            request = DataPlaneRequest(parser.get_method(), reader.target, tuple(reader.fields))
            self._size = 0
            reader.begin()
            self._begin_answer(request, closes=not parser.should_keep_alive())
        elif self._deadline is None:
            self._deadline = self._loop.call_later(HEAD_TIMEOUT, self._abort, "an unfinished head")

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

    def _begin_answer(self, request: DataPlaneRequest, *, closes: bool) -> None:
        """Answer a whole request: at once, or by a task if the answer has to wait."""
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


async def listen_http(listener: socket.socket, handler: Handler) -> ConnectionServer:
    """Serve HTTP on a listening socket."""
    server = ConnectionServer()
    await server.start(lambda: HttpProtocol(handler, server.connections), listener)
    return server
