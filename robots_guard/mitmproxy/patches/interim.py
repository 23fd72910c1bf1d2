"""Interim responses: 1xx responses of a site are forwarded, and the final response that follows is the answer.

`Http1Client.read_headers` (mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2 and 12.2.3) takes
any response head for the final one: after a `103 Early Hints` the client gets an empty response,
and the real one is lost. `Http2Client.handle_h2_event` swallows interim responses.

With this patch, both send an `Interim` event to the stream, which forwards it to the client at once
(RFC 9110 section 15.2), with these exceptions:

    100            is dropped: mitmproxy has answered the client's Expect itself, and sends none to the site
    HTTP/1.0       clients get none, because they do not know interim responses
    fields         of one connection, of framing (RFC 9110 section 8.6), and Alt-Svc, which leads past the proxy, are
                   dropped
    101            is left to mitmproxy if the request asked for it; else it is an error of the site, and the client
                   gets 502: mitmproxy would forward data that is not HTTP, and raise if the client speaks HTTP/2

Addons have no hook for interim responses. `Http1Server.send` would take one for the final response
and, if none follows, close the connection without the 502 that explains it; the replacement writes
the head and keeps the state.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import h2.events
from mitmproxy import http
from mitmproxy.net.http import http1, status_codes
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseHeaders, ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server
from mitmproxy.proxy.layers.http._http2 import Http2Client, parse_h2_response_headers

from robots_guard.mitmproxy.patches import replace

Commands = layer.CommandGenerator[None]

_HEAD = re.compile(rb"HTTP/1\.[0-9] 1(?!01)[0-9]{2}[ \r\n]")
_SWITCH = re.compile(rb"HTTP/1\.[0-9] 101[ \r\n]")
_HEAD_LENGTH = 13  # bytes of a status line that _HEAD looks at
_REMOVED = ("connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "content-length")


class Interim(HttpEvent):
    """An interim response of a site."""

    def __init__(self, stream_id: int, response: http.Response) -> None:
        super().__init__(stream_id)
        self.response = response


def apply() -> None:
    """Replace how responses are read and written. `limits` replaces the HTTP/1 reader, `uploads` the stream."""
    replace(Http2Client, "handle_h2_event", _replace_handle_h2_event)
    replace(Http1Server, "send", _replace_send)


# -- from the site --------------------------------------------------------------------------------------------


def past_interim(plain: Callable[[Http1Client, Any], Commands]) -> Callable[[Http1Client, Any], Commands]:
    """A reader of HTTP/1 response heads that emits an `Interim` event for each interim one."""

    def read_headers(self: Http1Client, event: events.ConnectionEvent) -> Commands:
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
                yield ReceiveHttp(_unreadable(self.stream_id, ValueError("it switches protocols without a request")))
                return
        yield from plain(self, event)

    return read_headers


def _peek(buffer: Any) -> bytes:
    return bytes(buffer._data[:_HEAD_LENGTH])  # noqa: SLF001  h11's buffer has no public way to peek


def _unreadable(stream_id: int, error: ValueError) -> ResponseProtocolError:
    return ResponseProtocolError(stream_id, f"Cannot parse HTTP response: {error}", ResponseProtocolError.code)


def _replace_handle_h2_event(plain: Callable[[Any, Any], layer.CommandGenerator[bool]]) -> Callable[..., Any]:
    def handle_h2_event(self: Http2Client, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, h2.events.InformationalResponseReceived):
            yield ReceiveHttp(Interim(event.stream_id, _response(event)))
            return False
        return (yield from plain(self, event))

    return handle_h2_event


def _response(event: h2.events.InformationalResponseReceived) -> http.Response:
    status, headers = parse_h2_response_headers(event.headers)
    return http.Response(b"HTTP/2.0", status, b"", headers, None, None, 0.0, None)


# -- to the client --------------------------------------------------------------------------------------------


def pass_on(self: HttpStream, event: Interim) -> Commands:
    """Send an interim response to the client of a stream, if it can take one."""
    response = event.response
    if response.status_code == 100 or self.flow.request.http_version == "HTTP/1.0":
        return
    if self.server_state != self.state_wait_for_response_headers:
        return
    for name in (*_REMOVED, "alt-svc"):
        response.headers.pop(name, None)
    if self.context.options.validate_inbound_headers:
        try:
            validate_headers(response)
        except ValueError:
            return
    yield SendHttp(ResponseHeaders(self.stream_id, response), self.context.client)


def _replace_send(plain: Callable[[Http1Server, Any], Commands]) -> Callable[[Http1Server, Any], Commands]:
    def send(self: Http1Server, event: Any) -> Commands:
        if isinstance(event, ResponseHeaders) and _is_interim(event.response.status_code):
            yield commands.SendData(self.conn, http1.assemble_response_head(_as_http1(event.response)))
        else:
            yield from plain(self, event)

    return send


def _is_interim(status: int) -> bool:
    return 100 <= status < 200 and status != 101


def _as_http1(response: http.Response) -> http.Response:
    response.http_version = "HTTP/1.1"
    response.reason = response.reason or status_codes.RESPONSES.get(response.status_code, "")
    return response
