"""Trailers: fields after a body are read, and dropped wherever HTTP/1 is spoken.

`Http1Connection.read_body` (mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2 and 12.2.3) raises
NotImplementedError at a trailer field, of a request or of an answer, and `Http1Server.send` raises AssertionError at
the trailers of an HTTP/2 site. Both leave the client waiting forever.

Here the reader of chunked bodies drops trailers, and `Http1Server.send` drops those it is to write: RFC 9110 section
6.5.1 lets an intermediary discard them. Between an HTTP/2 site and an HTTP/2 client the trailers of an answer are
passed on, as mitmproxy does. Those of a request never are: the enforcer removes them.

The reader also bounds what it keeps of a chunk's size line and of trailers, which mitmproxy collects for as long as
no line end comes; `body_size_limit` does not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._events import ResponseTrailers
from mitmproxy.proxy.layers.http._http1 import Http1Server

from robots_guard.mitmproxy.patches import replace

LONGEST = 64 * 1024  # bytes of a size line or a trailer section, or what of them comes in one piece

Commands = layer.CommandGenerator[None]


def apply() -> None:
    """Replace how HTTP/1 is read and written where trailers may be."""
    replace(_http1, "make_body_reader", _reading_past)
    replace(Http1Server, "send", _writing_without)


class _Reader(ChunkedReader):
    """A reader of chunked bodies that reads their trailers and drops them."""

    def __call__(self, buf: Any) -> h11.Data | h11.EndOfMessage | None:
        event: h11.Data | h11.EndOfMessage | None = super().__call__(buf)
        if event is None and len(buf) > LONGEST:
            raise h11.RemoteProtocolError(f"a chunk's size line or trailers of more than {LONGEST} bytes")
        if isinstance(event, h11.EndOfMessage) and event.headers:
            return h11.EndOfMessage()
        return event


def _reading_past(plain: Callable[[int | None], Any]) -> Callable[[int | None], Any]:
    def make_body_reader(expected_size: int | None) -> Any:
        return _Reader() if expected_size is None else plain(expected_size)

    return make_body_reader


def _writing_without(plain: Callable[[Http1Server, Any], Commands]) -> Callable[[Http1Server, Any], Commands]:
    def send(self: Http1Server, event: Any) -> Commands:
        if not isinstance(event, ResponseTrailers):
            yield from plain(self, event)

    return send
