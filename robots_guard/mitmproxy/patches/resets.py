"""Resets: closes the connection of an HTTP/2 client that cancels too many requests before their responses begin.

Each request costs a proxy much more than its two frames cost the client (CVE-2023-44487, "rapid
reset"), and a stream that was reset no longer counts against the limit of concurrent streams.
`Http2Server.handle_h2_event` (mitmproxy/proxy/layers/http/_http2.py, read in 11.0.2 and 12.2.3)
sets no bound, and handles all frames of one read before any other client is served.

With this patch, a request whose reset arrives in the same read is not started: it is neither judged
nor sent. And each connection has an allowance: `BURST` streams may be reset before their response
has begun, and `RATE` more per second. Beyond it the connection is closed with ENHANCE_YOUR_CALM
(RFC 9113 section 7). A stream whose response has begun is not counted: clients that need only the
beginning of a response reset each of their streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import h2.events
from h2.errors import ErrorCodes
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http._http2 import Http2Server
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from robots_guard.mitmproxy.patches import replace

BURST = 200  # resets; a browser that leaves a page has at most 100 requests in progress
RATE = 33.0  # a second

Handles = Callable[[Any, Any], layer.CommandGenerator[bool]]


def apply() -> None:
    """Replace how an HTTP/2 client's frames are handled."""
    replace(BufferedH2Connection, "receive_data", _replace_receive_data)
    replace(Http2Server, "handle_h2_event", _replace_handle_h2_event)


class Allowance:
    """A token bucket of `BURST` resets, refilled at `RATE`. `now` is in seconds."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token. Returns False if there is none."""
        self._left = min(float(BURST), self._left + (now - self._at) * RATE)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def _replace_receive_data(plain: Callable[[Any, bytes], list[Any]]) -> Callable[[Any, bytes], list[Any]]:
    def receive_data(self: BufferedH2Connection, data: bytes) -> list[Any]:
        found = plain(self, data)
        reset = {event.stream_id for event in found if isinstance(event, h2.events.StreamReset)}
        if not reset:
            return found
        return [event for event in found if not _is_request_of(event, reset)]

    return receive_data


def _is_request_of(event: Any, reset: set[int | None]) -> bool:
    return isinstance(event, h2.events.RequestReceived) and event.stream_id in reset


def _replace_handle_h2_event(plain: Handles) -> Handles:
    def handle_h2_event(self: Http2Server, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, h2.events.StreamReset) and not _take_allowance(self, event.stream_id):
            message = "too many streams were reset before their responses began"
            yield from self.protocol_error(message, ErrorCodes.ENHANCE_YOUR_CALM)
            return True
        return (yield from plain(self, event))

    return handle_h2_event


def _take_allowance(server: Http2Server, stream_id: int | None) -> bool:
    stream = server.h2_conn.streams.get(stream_id)
    if stream is not None and stream.state_machine.headers_sent:
        return True
    now = time.monotonic()
    allowance: Allowance = server.__dict__.setdefault("robots_guard_allowance", Allowance(now))
    return allowance.take(now)
