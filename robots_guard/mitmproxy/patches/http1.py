"""HTTP/1: how mitmproxy reads requests and responses, and writes responses.

mitmproxy's `body_size_limit` covers bodies only: heads, chunk sizes, trailers and pipelined requests
are bounded here. `write_check` has the method that writes requests.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.net.http import http1, status_codes
from mitmproxy.net.http.http1 import read
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestProtocolError,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server, make_error_response
from mitmproxy.proxy.layers.tls import ServerTLSLayer
from mitmproxy.utils import human
from OpenSSL import SSL

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.patches.events import (
    CLIENT_DISCONNECTED,
    Interim,
    Unanswered,
    is_interim,
)

MAX_HEAD = 256 * 1024  # bytes; a head that arrives in one piece may be longer
TOO_LONG = f"a head of more than {MAX_HEAD} bytes"
LONGEST = 64 * 1024  # bytes of a size line or a trailer section, unless it arrives in one piece
_AHEAD = "ahead"  # the key in MEMORY of the bytes that follow the current request
_ABSOLUTE = re.compile(rb"(\S+ [A-Za-z]+://[^\s/?#]+)(/\S*)( \S+)")
_HEAD = re.compile(rb"HTTP/1\.[0-9] 1(?!01)[0-9]{2}[ \r\n]")
_SWITCH = re.compile(rb"HTTP/1\.[0-9] 101[ \r\n]")
_HEAD_LENGTH = 13  # bytes of a status line that _HEAD looks at

Commands = layer.CommandGenerator[None]
Plain = Callable[..., Commands]


# -- requests ------------------------------------------------------------------------------------


def _read_request_head(
    self: Http1Server, event: events.ConnectionEvent, *, plain: Plain
) -> Commands:
    """Refuse a head that exceeds `MAX_HEAD`, and skip empty lines before it (RFC 9112 section 2.2),
    after which mitmproxy would wait for more data."""
    MEMORY.release(self.conn.id, _AHEAD)
    _skip_empty_lines(self)
    yield from plain(self, event)
    if self.state == self.read_headers and len(self.buf) > MAX_HEAD:
        self.state = self.done
        yield commands.SendData(self.conn, make_error_response(431, TOO_LONG))
        yield commands.CloseConnection(self.conn)


def _read_request_line(line: bytes, *, plain: Callable[[bytes], Any]) -> Any:
    """Read a path in absolute form as mitmproxy reads one in origin form: any bytes, to be judged."""
    found = _ABSOLUTE.fullmatch(line)
    if found is None:
        return plain(line)
    before, path, version = found.groups()
    *parts, _, version = plain(b"%b/%b" % (before, version))
    return *parts, path, version


def _skip_empty_lines(self: Http1Server) -> None:
    while bytes(self.buf._data[:2]).startswith((b"\n", b"\r\n")):  # noqa: SLF001  (h11 has no public peek)
        self.buf.maybe_extract_lines()  # takes out just that line


def _wait_for_response(self: Http1Server, event: events.Event, *, plain: Plain) -> Commands:
    """Disconnect a client that sends too far ahead while its request waits for the response.

    The bytes are counted in `MEMORY` until they are read as the next request, whose body is counted
    separately.
    """
    limit = human.parse_size(self.context.options.body_size_limit)
    if (limit is None or len(self.buf) <= limit + MAX_HEAD) and _count_ahead(self):
        yield from plain(self, event)
        return
    self.state = self.done
    yield commands.CloseConnection(self.conn)
    message = "the client has sent too far ahead"
    yield ReceiveHttp(RequestProtocolError(self.stream_id, message, CLIENT_DISCONNECTED))


def _count_ahead(self: Http1Server) -> bool:
    """Count the bytes that follow the current request. Returns False if there is no room."""
    client = self.conn.id
    MEMORY.release(client, _AHEAD)
    return MEMORY.take(client, _AHEAD, len(self.buf))


# -- responses ----------------------------------------------------------------------------------


def _read_response_head(
    self: Http1Client, event: events.ConnectionEvent, *, plain: Plain
) -> Commands:
    """Pass interim responses to the stream, and fail a response whose head exceeds `MAX_HEAD`. Report
    a kept connection that the site has closed without an answer to the request as `Unanswered`."""
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


def _mark_unanswered(self: Http1Client, command: ReceiveHttp) -> None:
    """Mark the error of a request that got no answer, if an earlier one on the connection did."""
    answered = self.__dict__.get("answered")
    error = command.event
    if answered not in (None, self.stream_id) and isinstance(error, ResponseProtocolError):
        command.event = Unanswered.instead_of(error)


def _read_past_interim(plain: Plain, self: Http1Client, event: events.ConnectionEvent) -> Commands:
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


class ReceivesBytes(ABC):
    """The options of a connection handler that needs the bytes its origins send."""

    @abstractmethod
    def receive(self, received: bytes) -> None:
        """Receive one piece."""

    @abstractmethod
    def closed(self, *, notified: bool | None) -> None:
        """Receive the end; `notified`: whether a `close_notify` announced it, None without TLS."""


def _pass_bytes_on(self: Http1Client, event: events.Event, *, plain: Plain) -> Commands:
    """Pass each piece, and the end of the connection, to the options before mitmproxy reads it, if
    they are `ReceivesBytes`.

    What mitmproxy skips, such as bytes after a response or a second field of the same name, is
    visible nowhere else: below TLS, a handler sees only ciphertext. A TLS layer reports a
    `close_notify` and an end of TCP without one by the same event; its own state distinguishes them.
    """
    options: Any = self.context.options
    if isinstance(options, ReceivesBytes) and isinstance(event, events.DataReceived):
        options.receive(event.data)
    elif isinstance(options, ReceivesBytes) and isinstance(event, events.ConnectionClosed):
        options.closed(notified=_has_close_notify(self))
    return plain(self, event)


def _has_close_notify(client: Http1Client) -> bool | None:
    """Whether the innermost TLS layer has received a `close_notify`; None without TLS."""
    layers = [each for each in client.context.layers if isinstance(each, ServerTLSLayer)]
    if not layers:
        return None
    tls = layers[-1].tls
    return tls is not None and bool(tls.get_shutdown() & SSL.RECEIVED_SHUTDOWN)


def _send_response(self: Http1Server, event: HttpEvent, *, plain: Plain) -> Commands:
    """Drop trailers, as RFC 9110 section 6.5.1 allows; mitmproxy raises for those of an HTTP/2 site.
    Write only the head of an interim response, and continue to wait for the final one."""
    if isinstance(event, ResponseTrailers):
        return
    if isinstance(event, ResponseHeaders) and is_interim(event.response.status_code):
        yield commands.SendData(self.conn, http1.assemble_response_head(_as_http1(event.response)))
    else:
        yield from plain(self, event)


def _as_http1(response: http.Response) -> http.Response:
    response.http_version = "HTTP/1.1"
    response.reason = response.reason or status_codes.RESPONSES.get(response.status_code, "")
    return response


# -- bodies ------------------------------------------------------------------------------------


class _Reader(ChunkedReader):
    """A reader of chunked bodies that drops their trailers, and bounds them and size lines."""

    def __call__(self, buf: Any) -> h11.Data | h11.EndOfMessage | None:
        event: h11.Data | h11.EndOfMessage | None = super().__call__(buf)
        if event is None and len(buf) > LONGEST:
            raise h11.RemoteProtocolError(
                f"a chunk's size line or trailers of more than {LONGEST} bytes"
            )
        if isinstance(event, h11.EndOfMessage) and event.headers:
            return h11.EndOfMessage()
        return event


def _make_body_reader(expected_size: int | None, *, plain: Callable[[int | None], Any]) -> Any:
    """Read chunked bodies, of requests and responses, by a reader that drops their trailers.

    mitmproxy raises NotImplementedError for a trailer field. RFC 9110 section 6.5.1 allows an
    intermediary to discard them. Between an HTTP/2 site and an HTTP/2 client, mitmproxy forwards
    the trailers of a response. Those of a request are never forwarded: the enforcer removes them.
    """
    if expected_size is None:
        return _Reader()
    return plain(expected_size)


PATCHES = (
    Patch(
        owner=Http1Server,
        methods=(
            method("read_headers", "a7d65fbcb32d", "3fe0945216bc", new=_read_request_head),
            method("wait", "533c8ecb0e8c", "c99d0494a840", new=_wait_for_response),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="An endless head, or requests sent ahead of a slow response, fill the memory.",
        report="""\
HTTP/1 clients can fill the memory with a head that does not end, or with pipelined bytes.

`Http1Server.read_headers` collects until an empty line arrives, and `wait` collects everything
that a client sends while its request is answered. `body_size_limit` applies to neither. And after
an empty line before a request line (RFC 9112 section 2.2), `read_headers` reads the request only
when more data arrives.

To see it: send `GET / HTTP/1.1` and then header fields without end. Or request a slow page and
send further bytes meanwhile. Or send an empty line and a request in one piece, and wait.

`read_headers` should respond with 431 above some limit, and skip empty lines in a loop; `wait`
should stop to read, or disconnect the client, above some limit.
""",
    ),
    Patch(
        owner=read,
        methods=(
            method("_read_request_line", "d15441fbdac6", "f212df4b4bad", new=_read_request_line),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="curl sends an IRI to a proxy as it is, and loses the page.",
        report="""\
A path that is not ASCII is refused in absolute form, and accepted in origin form.

`read._read_request_line` checks an absolute target by `url.parse`, which quotes bytes that are not
ASCII in the query, but not in the path.

To see it: `curl -x http://127.0.0.1:8080 http://example.com/\u00fc`. The answer is 400, "Bad HTTP
request line". `https` works, and so does `http` without the proxy.

The check could go, as its comment says, or `url.parse` could quote the path, too.
""",
    ),
    Patch(
        owner=Http1Client,
        methods=(method("read_headers", "1a492ce73b45", "415454c5fa8b", new=_read_response_head),),
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
    ),
    Patch(
        owner=Http1Client,
        methods=(method("_handle_event", "2ac8db3e43ae", new=_pass_bytes_on),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="An ambiguous robots.txt must not be trusted, and only its bytes show that.",
        report="""\
Addons cannot see the bytes of an HTTP/1 response, or how its connection ended.

What mitmproxy skips or repairs in a response is not visible to addons: bytes after its end, a body
that ends early with the connection, a second field of the same name. Whether a TLS connection
ended by `close_notify` is not visible either. A program that archives or verifies responses needs
both.

To see it: let a server send a response with `Content-Length: 5`, and ten bytes. The flow shows
five.

A hook for received data, or attributes of the flow such as `response.trailing_data` and
`server_conn.closed_cleanly`, would do.
""",
    ),
    Patch(
        owner=Http1Server,
        methods=(method("send", "f530fe5b569e", "cc218a1337c0", new=_send_response),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="The trailers of an HTTP/2 site make it raise, and it has no notion of 1xx responses.",
        report="""\
An HTTP/1 client waits forever for a response with trailers from an HTTP/2 server.

`Http1Server.send` raises AssertionError for `ResponseTrailers`. It also takes any head for that of
the final response, so that 1xx responses cannot be forwarded.

To see it: `curl --http1.1` through mitmproxy to an HTTP/2 server that sends trailers.

`send` should drop trailers (RFC 9110 section 6.5.1), or write them after a chunked body, and write
the head of a 1xx response without a change of its state.
""",
    ),
    Patch(
        owner=_http1,
        methods=(method("make_body_reader", "9b076acda459", new=_make_body_reader),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="mitmproxy raises on a trailer field, and the client waits forever.",
        report="""\
A chunked body with a trailer field leaves the client waiting forever.

`Http1Connection.read_body` raises NotImplementedError ("HTTP trailers are not implemented yet")
for a request or a response with trailers. A size line or a trailer section that does not end is
collected until the memory is full; `body_size_limit` does not apply to it.

To see it: let a server respond with `5\\r\\nwhole\\r\\n0\\r\\nX-Sum: 1\\r\\n\\r\\n`.

`read_body` should drop the fields (RFC 9110 section 6.5.1) or emit `RequestTrailers` and
`ResponseTrailers`, and limit what it collects.
""",
    ),
)
