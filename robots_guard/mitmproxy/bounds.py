"""Bounds: what mitmproxy would take from a client or a site for as long as it comes.

    a head               of a request or an answer over HTTP/1; `body_size_limit` is of bodies only
    what comes behind    a request that waits for its answer: the next requests, for all mitmproxy knows
    a TLS hello          which it reads anew, from its beginning, with each piece that comes

HTTP/2 has bounds of its own; bodies are in uploads.py. The four classes are no public interface; all that is known of
them is known here.
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

LONGEST = 256 * 1024  # octets, or what of them comes in one piece
LONGEST_HELLO = 16 * 1024  # octets; what browsers send takes 2,000
_BEHIND = "behind"  # the key in MEMORY of bytes that follow the present request
_SENTENCE = f"a head of more than {LONGEST} octets"

Commands = layer.CommandGenerator[None]
Reads = Callable[[Any, events.ConnectionEvent], Commands]


def set_bounds() -> None:
    """From now on, once for a process."""
    Http1Server.read_headers = _bounded_request  # type: ignore[assignment, method-assign]  # the point of this file
    Http1Client.read_headers = _bounded_answer  # type: ignore[assignment, method-assign]  # likewise
    Http1Server.wait = _bounded_wait  # type: ignore[assignment, method-assign]  # likewise
    ClientTLSLayer.receive_handshake_data = _bounded_hello  # type: ignore[method-assign]  # likewise
    ConnectionHandler.handle_connection = _closing  # type: ignore[method-assign]  # likewise
    ClientTLSLayer.receive_data = _without_hello  # type: ignore[assignment, method-assign]  # likewise


def _bounded(plain: Reads, give_up: Callable[[Any], Commands]) -> Reads:
    @functools.wraps(plain)
    def read_headers(self: Any, event: events.ConnectionEvent) -> Commands:
        yield from plain(self, event)
        if self.state == self.read_headers and len(self.buf) > LONGEST:
            self.state = self.done
            yield from give_up(self)

    return read_headers


def _refuse(self: Http1Server) -> Commands:
    yield commands.SendData(self.conn, make_error_response(431, _SENTENCE))
    yield commands.CloseConnection(self.conn)


def _fail(self: Http1Client) -> Commands:
    yield commands.CloseConnection(self.conn)
    if self.stream_id is not None:
        yield ReceiveHttp(ResponseProtocolError(self.stream_id, _SENTENCE, ResponseProtocolError.code))


_bounded_answer = _bounded(past_interim(Http1Client.read_headers), _fail)

_wait = Http1Server.wait


@functools.wraps(_wait)
def _bounded_wait(self: Http1Server, event: events.Event) -> Commands:
    limit = human.parse_size(self.context.options.body_size_limit)
    if (limit is None or len(self.buf) <= limit + LONGEST) and _count_ahead(self):
        yield from _wait(self, event)
        return
    self.state = self.done
    yield commands.CloseConnection(self.conn)
    yield ReceiveHttp(RequestProtocolError(self.stream_id, "the client has sent too far ahead", CLIENT_DISCONNECTED))


def _count_ahead(self: Http1Server) -> bool:
    """Count the bytes that follow the present request. Returns False if there is no room."""
    client = self.conn.id
    MEMORY.release(client, _BEHIND)
    return MEMORY.take(client, _BEHIND, len(self.buf))


def _give_back(plain: Reads) -> Reads:
    """Release the bytes that followed the last request: they are the next one, whose body is counted by itself."""

    @functools.wraps(plain)
    def read_headers(self: Http1Server, event: events.ConnectionEvent) -> Commands:
        MEMORY.release(self.conn.id, _BEHIND)
        yield from plain(self, event)

    return read_headers


def _past_empty_lines(plain: Reads) -> Reads:
    """Skip empty lines before a request (RFC 9112 section 2.2); mitmproxy would wait for more to come after one."""

    @functools.wraps(plain)
    def read_headers(self: Http1Server, event: events.ConnectionEvent) -> Commands:
        while bytes(self.buf._data[:2]).startswith((b"\n", b"\r\n")):  # noqa: SLF001  h11's buffer cannot be peeked at
            self.buf.maybe_extract_lines()  # takes out just that line
        yield from plain(self, event)

    return read_headers


_bounded_request = _bounded(_give_back(_past_empty_lines(Http1Server.read_headers)), _refuse)

_hello = ClientTLSLayer.receive_handshake_data


@functools.wraps(_hello)
def _bounded_hello(self: ClientTLSLayer, data: bytes) -> layer.CommandGenerator[tuple[bool, str | None]]:
    if self.client_hello_parsed or len(self.recv_buffer) + len(data) <= LONGEST_HELLO:
        return (yield from _hello(self, data))
    yield commands.CloseConnection(self.conn)
    return False, None


_handle = ConnectionHandler.handle_connection


@functools.wraps(_handle)
async def _closing(self: ConnectionHandler, connection: Connection) -> None:
    """mitmproxy 12 forgets to close a connection that it cuts off while more comes in."""
    try:
        await _handle(self, connection)
    finally:
        left = self.transports.pop(connection, None)
        if left is not None and left.writer is not None:
            left.writer.close()


_data = ClientTLSLayer.receive_data


@functools.wraps(_data)
def _without_hello(self: ClientTLSLayer, data: bytes) -> Commands:
    """What comes behind a hello that could not be read; mitmproxy trips over it, and leaves the connection open."""
    if self.client_hello_parsed:
        yield from _data(self, data)
