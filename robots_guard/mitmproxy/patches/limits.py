"""Limits on input that mitmproxy reads without bound.

    heads           of requests and responses over HTTP/1; `body_size_limit` covers bodies only
    bytes ahead     after a request that waits for its response: mitmproxy keeps them as the next requests
    TLS hellos      which mitmproxy parses again from the start with each piece that arrives

HTTP/2 has bounds of its own; bodies are bounded in uploads.py. The four classes are not public
interfaces; this module is the only one that relies on these internals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestProtocolError, ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server, make_error_response
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.utils import human

from robots_guard.mitmproxy.body_memory import MEMORY
from robots_guard.mitmproxy.patches.codes import CLIENT_DISCONNECTED
from robots_guard.mitmproxy.patches.interim import past_interim

MAX_HEAD = 256 * 1024  # bytes; a head that arrives in one piece may be longer
MAX_HELLO = 16 * 1024  # bytes; browsers send 2,000
_AHEAD = "ahead"  # the key in MEMORY of the bytes that follow the current request
_TOO_LONG = f"a head of more than {MAX_HEAD} bytes"

Commands = layer.CommandGenerator[None]
Reads = Callable[[Any, events.ConnectionEvent], Commands]


def patch_limits() -> None:
    """Replace the methods that read without bound, once per process."""
    Http1Server.read_headers = _read_request_head  # type: ignore[assignment, method-assign]  # the patch itself
    Http1Client.read_headers = _read_response_head  # type: ignore[assignment, method-assign]  # likewise
    Http1Server.wait = _wait_with_limit  # type: ignore[assignment, method-assign]  # likewise
    ClientTLSLayer.receive_handshake_data = _receive_hello  # type: ignore[method-assign]  # likewise
    ConnectionHandler.handle_connection = _handle_connection  # type: ignore[method-assign]  # likewise
    ClientTLSLayer.receive_data = _receive_data  # type: ignore[assignment, method-assign]  # likewise


def _limit_head(plain: Reads, give_up: Callable[[Any], Commands]) -> Reads:
    @functools.wraps(plain)
    def read_headers(self: Any, event: events.ConnectionEvent) -> Commands:
        yield from plain(self, event)
        if self.state == self.read_headers and len(self.buf) > MAX_HEAD:
            self.state = self.done
            yield from give_up(self)

    return read_headers


def _refuse(self: Http1Server) -> Commands:
    yield commands.SendData(self.conn, make_error_response(431, _TOO_LONG))
    yield commands.CloseConnection(self.conn)


def _fail(self: Http1Client) -> Commands:
    yield commands.CloseConnection(self.conn)
    if self.stream_id is not None:
        yield ReceiveHttp(ResponseProtocolError(self.stream_id, _TOO_LONG, ResponseProtocolError.code))


_read_response_head = _limit_head(past_interim(Http1Client.read_headers), _fail)

_plain_wait = Http1Server.wait


@functools.wraps(_plain_wait)
def _wait_with_limit(self: Http1Server, event: events.Event) -> Commands:
    limit = human.parse_size(self.context.options.body_size_limit)
    if (limit is None or len(self.buf) <= limit + MAX_HEAD) and _count_ahead(self):
        yield from _plain_wait(self, event)
        return
    self.state = self.done
    yield commands.CloseConnection(self.conn)
    yield ReceiveHttp(RequestProtocolError(self.stream_id, "the client has sent too far ahead", CLIENT_DISCONNECTED))


def _count_ahead(self: Http1Server) -> bool:
    """Count the bytes that follow the current request. Returns False if there is no room."""
    client = self.conn.id
    MEMORY.release(client, _AHEAD)
    return MEMORY.take(client, _AHEAD, len(self.buf))


def _release_ahead(plain: Reads) -> Reads:
    """Release the bytes that followed the last request: they are the next one, whose body is counted separately."""

    @functools.wraps(plain)
    def read_headers(self: Http1Server, event: events.ConnectionEvent) -> Commands:
        MEMORY.release(self.conn.id, _AHEAD)
        yield from plain(self, event)

    return read_headers


def _skip_empty_lines(plain: Reads) -> Reads:
    """Skip empty lines before a request (RFC 9112 section 2.2); after one, mitmproxy would wait for more data."""

    @functools.wraps(plain)
    def read_headers(self: Http1Server, event: events.ConnectionEvent) -> Commands:
        while bytes(self.buf._data[:2]).startswith((b"\n", b"\r\n")):  # noqa: SLF001  h11's buffer has no public way to peek
            self.buf.maybe_extract_lines()  # takes out just that line
        yield from plain(self, event)

    return read_headers


_read_request_head = _limit_head(_release_ahead(_skip_empty_lines(Http1Server.read_headers)), _refuse)

_plain_receive_hello = ClientTLSLayer.receive_handshake_data


@functools.wraps(_plain_receive_hello)
def _receive_hello(self: ClientTLSLayer, data: bytes) -> layer.CommandGenerator[tuple[bool, str | None]]:
    if self.client_hello_parsed or len(self.recv_buffer) + len(data) <= MAX_HELLO:
        return (yield from _plain_receive_hello(self, data))
    yield commands.CloseConnection(self.conn)
    return False, None


_plain_handle_connection = ConnectionHandler.handle_connection


@functools.wraps(_plain_handle_connection)
async def _handle_connection(self: ConnectionHandler, connection: Connection) -> None:
    """Close the connection at the end: mitmproxy 12 leaves one open that it aborts while data arrives."""
    try:
        await _plain_handle_connection(self, connection)
    finally:
        left = self.transports.pop(connection, None)
        if left is not None and left.writer is not None:
            left.writer.close()


_plain_receive_data = ClientTLSLayer.receive_data


@functools.wraps(_plain_receive_data)
def _receive_data(self: ClientTLSLayer, data: bytes) -> Commands:
    """Ignore data after an unreadable hello. mitmproxy would fail on it and leave the connection open."""
    if self.client_hello_parsed:
        yield from _plain_receive_data(self, data)
