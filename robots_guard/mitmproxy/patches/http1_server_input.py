"""`Http1Server.read_headers` reads the head of a request, and `wait` what a client sends after it.

mitmproxy buffers an endless head without limit. It likewise buffers the pipelined requests that
arrive while a request waits for its response. `body_size_limit` covers bodies only. After an empty
line before a request, it waits for more data.

The replacements refuse a request whose head exceeds `MAX_HEAD`, disconnect a client that has sent
too far ahead, and skip empty lines (RFC 9112 section 2.2). The bytes sent ahead are counted in
`MEMORY` until they are read as the next request, whose body is counted separately.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Server, make_error_response
from mitmproxy.utils import human

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.patches.codes import CLIENT_DISCONNECTED

MAX_HEAD = 256 * 1024  # bytes; a head that arrives in one piece may be longer
TOO_LONG = f"a head of more than {MAX_HEAD} bytes"
_AHEAD = "ahead"  # the key in MEMORY of the bytes that follow the current request

Commands = layer.CommandGenerator[None]
Reads = Callable[[Http1Server, events.ConnectionEvent], Commands]
Waits = Callable[[Http1Server, events.Event], Commands]


def _replace_read_headers(plain: Reads) -> Reads:
    def read_headers(self: Http1Server, event: events.ConnectionEvent) -> Commands:
        MEMORY.release(self.conn.id, _AHEAD)
        _skip_empty_lines(self)
        yield from plain(self, event)
        if self.state == self.read_headers and len(self.buf) > MAX_HEAD:
            self.state = self.done
            yield commands.SendData(self.conn, make_error_response(431, TOO_LONG))
            yield commands.CloseConnection(self.conn)

    return read_headers


def _skip_empty_lines(self: Http1Server) -> None:
    while bytes(self.buf._data[:2]).startswith((b"\n", b"\r\n")):  # noqa: SLF001  (h11 has no public peek)
        self.buf.maybe_extract_lines()  # takes out just that line


def _replace_wait(plain: Waits) -> Waits:
    def wait(self: Http1Server, event: events.Event) -> Commands:
        limit = human.parse_size(self.context.options.body_size_limit)
        if (limit is None or len(self.buf) <= limit + MAX_HEAD) and _count_ahead(self):
            yield from plain(self, event)
            return
        self.state = self.done
        yield commands.CloseConnection(self.conn)
        message = "the client has sent too far ahead"
        yield ReceiveHttp(RequestProtocolError(self.stream_id, message, CLIENT_DISCONNECTED))

    return wait


def _count_ahead(self: Http1Server) -> bool:
    """Count the bytes that follow the current request. Returns False if there is no room."""
    client = self.conn.id
    MEMORY.release(client, _AHEAD)
    return MEMORY.take(client, _AHEAD, len(self.buf))


PATCH = Patch(
    owner=Http1Server,
    methods=(
        method("read_headers", "a7d65fbcb32d", "3fe0945216bc", make=_replace_read_headers),
        method("wait", "533c8ecb0e8c", "c99d0494a840", make=_replace_wait),
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
)
