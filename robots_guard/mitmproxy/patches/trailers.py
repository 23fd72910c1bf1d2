"""Trailers: reads the fields after a body, and drops them on HTTP/1 connections.

`Http1Connection.read_body` (mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2 and 12.2.3)
raises NotImplementedError for a trailer field of a request or response, and `Http1Server.send`
raises AssertionError for the trailers of an HTTP/2 site. Both leave the client waiting forever.

With this patch, the reader of chunked bodies drops trailers, and so does `Http1Server.send`: RFC
9110 section 6.5.1 allows an intermediary to discard them. Between an HTTP/2 site and an HTTP/2
client, mitmproxy forwards the trailers of a response. Those of a request are never forwarded: the
enforcer removes them.

The reader also bounds the size line of a chunk and the trailers, which mitmproxy collects until a
line ends; `body_size_limit` does not cover them.
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

LONGEST = 64 * 1024  # bytes of a size line or a trailer section; one that arrives in one piece may be longer

Commands = layer.CommandGenerator[None]


def apply() -> None:
    """Replace how HTTP/1 bodies are read and how responses are written."""
    replace(_http1, "make_body_reader", _replace_make_body_reader)
    replace(Http1Server, "send", _replace_send)


class _Reader(ChunkedReader):
    """A reader of chunked bodies that reads their trailers and drops them."""

    def __call__(self, buf: Any) -> h11.Data | h11.EndOfMessage | None:
        event: h11.Data | h11.EndOfMessage | None = super().__call__(buf)
        if event is None and len(buf) > LONGEST:
            raise h11.RemoteProtocolError(f"a chunk's size line or trailers of more than {LONGEST} bytes")
        if isinstance(event, h11.EndOfMessage) and event.headers:
            return h11.EndOfMessage()
        return event


def _replace_make_body_reader(plain: Callable[[int | None], Any]) -> Callable[[int | None], Any]:
    def make_body_reader(expected_size: int | None) -> Any:
        if expected_size is None:
            return _Reader()
        return plain(expected_size)

    return make_body_reader


def _replace_send(plain: Callable[[Http1Server, Any], Commands]) -> Callable[[Http1Server, Any], Commands]:
    def send(self: Http1Server, event: Any) -> Commands:
        if not isinstance(event, ResponseTrailers):
            yield from plain(self, event)

    return send
