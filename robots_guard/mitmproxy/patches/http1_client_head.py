"""`Http1Client.read_headers` reads the head of a response over HTTP/1.

It mistakes the head of an interim response for the final one, so that the final response is lost.
It also buffers an endless head without limit; `body_size_limit` covers bodies only. The replacement
passes interim responses to the stream (`interim`), and fails a response whose head exceeds
`MAX_HEAD`. It also reports a kept connection that the site has closed without an answer to the
request (`http_stream_connection`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Client

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.http1_server_input import MAX_HEAD, TOO_LONG
from robots_guard.mitmproxy.patches.http_stream_connection import Unanswered
from robots_guard.mitmproxy.patches.interim import Interim

Commands = layer.CommandGenerator[None]
Reads = Callable[[Http1Client, events.ConnectionEvent], Commands]

_HEAD = re.compile(rb"HTTP/1\.[0-9] 1(?!01)[0-9]{2}[ \r\n]")
_SWITCH = re.compile(rb"HTTP/1\.[0-9] 101[ \r\n]")
_HEAD_LENGTH = 13  # bytes of a status line that _HEAD looks at


def _replace_read_headers(plain: Reads) -> Reads:
    def read_headers(self: Http1Client, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived):
            self.__dict__["answered"] = self.stream_id
        for command in _read_past_interim(plain, self, event):
            if isinstance(event, events.ConnectionClosed) and isinstance(command, ReceiveHttp):
                _mark_unanswered(self, command)
            yield command
        if self.state == self.read_headers and len(self.buf) > MAX_HEAD:
            self.state = self.done
            yield commands.CloseConnection(self.conn)
            if self.stream_id is not None:
                yield ReceiveHttp(
                    ResponseProtocolError(self.stream_id, TOO_LONG, ResponseProtocolError.code)
                )

    return read_headers


def _mark_unanswered(self: Http1Client, command: ReceiveHttp) -> None:
    """Mark the error of a request that got no answer, if an earlier one on the connection did."""
    answered = self.__dict__.get("answered")
    error = command.event
    if answered not in (None, self.stream_id) and isinstance(error, ResponseProtocolError):
        command.event = Unanswered.instead_of(error)


def _read_past_interim(plain: Reads, self: Http1Client, event: events.ConnectionEvent) -> Commands:
    if self.request is not None and isinstance(event, events.DataReceived):
        while _HEAD.match(_peek(self.buf)):
            lines = self.buf.maybe_extract_lines()
            if lines is None:
                return
            assert self.stream_id is not None  # there is a request
            try:
                response = http1.read_response_head([bytes(line) for line in lines])
            except ValueError as error:
                yield commands.CloseConnection(self.conn)
                yield ReceiveHttp(_unreadable(self.stream_id, error))
                return
            yield ReceiveHttp(Interim(self.stream_id, response))
        if _SWITCH.match(_peek(self.buf)) and "upgrade" not in self.request.headers:
            assert self.stream_id is not None
            self.state = self.done
            yield commands.CloseConnection(self.conn)
            yield ReceiveHttp(
                _unreadable(self.stream_id, ValueError("it switches protocols without a request"))
            )
            return
    yield from plain(self, event)


def _peek(buffer: Any) -> bytes:
    return bytes(buffer._data[:_HEAD_LENGTH])  # noqa: SLF001  h11's buffer has no public way to peek


def _unreadable(stream_id: int, error: ValueError) -> ResponseProtocolError:
    return ResponseProtocolError(
        stream_id, f"Cannot parse HTTP response: {error}", ResponseProtocolError.code
    )


PATCH = Patch(
    owner=Http1Client,
    methods=(method("read_headers", "1a492ce73b45", "415454c5fa8b", make=_replace_read_headers),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="After a 1xx response the final one is lost; an endless head fills the memory.",
    report="""\
The final response is lost after an interim one over HTTP/1 (103 Early Hints).

`Http1Client.read_headers` takes the head of any 1xx response for that of the final response. The
client gets a 103 with an empty body, and the 200 that follows is discarded. A `101` without a
request for an upgrade makes mitmproxy forward data that is not HTTP. And `read_headers` collects a
head that does not end until the memory is full; `body_size_limit` does not apply to it.

To see it: let a server send `HTTP/1.1 103 Early Hints`, an empty line and then a 200 with a body.

`read_headers` should forward or skip 1xx responses other than an expected 101, as RFC 9110 section
15.2 says, and give up on a head that exceeds some limit.
""",
)
