"""`Http2Server.handle_h2_event` lets a client cancel any number of requests, and no addon learns of it
while a hook of the request waits.

Each request costs a proxy much more than its two frames cost the client (CVE-2023-44487, "rapid
reset"), and a stream that was reset no longer counts against the limit of concurrent streams.

With the replacement, each connection has an allowance: `BURST` streams may be reset before their
response has begun, and `RATE` more per second. Beyond it the connection is closed with
ENHANCE_YOUR_CALM (RFC 9113 section 7). A stream whose response has begun is not counted: clients
that need only the beginning of a response reset each of their streams. Addons get `StreamResetHook`
at once, so that a request that is held gives up its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import h2.events
from h2.errors import ErrorCodes
from mitmproxy import ctx, hooks, http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._http2 import Http2Server

from robots_guard.gateway.patch import Patch, method

BURST = 200  # resets; a browser that leaves a page has at most 100 requests in progress
RATE = 33.0  # a second


@dataclass
class StreamResetHook(hooks.Hook):
    """A client has reset the stream of a flow."""

    name: ClassVar[str] = "robots_guard_stream_reset"
    flow: http.HTTPFlow


Handles = Callable[[Any, Any], layer.CommandGenerator[bool]]


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


def _replace_handle_h2_event(plain: Handles) -> Handles:
    def handle_h2_event(self: Http2Server, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, h2.events.StreamReset):
            if not _take_allowance(self, event.stream_id):
                message = "too many streams were reset before their responses began"
                yield from self.protocol_error(message, ErrorCodes.ENHANCE_YOUR_CALM)
                return True
            _announce(self, event.stream_id)
        return (yield from plain(self, event))

    return handle_h2_event


def _announce(server: Http2Server, stream_id: int | None) -> None:
    """Call the handlers of `StreamResetHook`, if the stream has a flow."""
    client = server.context.client
    for each in server.context.layers:
        if isinstance(each, HttpLayer) and each.connections.get(client) is server:
            stream = each.streams.get(stream_id or 0)
            if stream is not None and hasattr(stream, "flow"):
                ctx.master.addons.trigger(StreamResetHook(stream.flow))


def _take_allowance(server: Http2Server, stream_id: int | None) -> bool:
    stream = server.h2_conn.streams.get(stream_id)
    if stream is not None and stream.state_machine.headers_sent:
        return True
    now = time.monotonic()
    allowance: Allowance = server.__dict__.setdefault("robots_guard_allowance", Allowance(now))
    return allowance.take(now)


PATCH = Patch(
    owner=Http2Server,
    methods=(method("handle_h2_event", "d24a023c678d", make=_replace_handle_h2_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A client can make the proxy busy by requests that it cancels at once, and no addon learns of"
    " it while a hook waits.",
    report="""\
HTTP/2 clients may reset any number of streams (rapid reset, CVE-2023-44487).

A stream that was reset no longer counts against SETTINGS_MAX_CONCURRENT_STREAMS, but its flow
still runs hooks and may connect to a server. A single client can keep mitmproxy busy with it.

To see it: open and reset streams in a loop on one connection, and request a page on another.

A hook that waits, such as for a rate limit, cannot know that its request has been cancelled: the event
reaches the stream when the hook has ended.

Other servers close such a connection with ENHANCE_YOUR_CALM. We count only streams that are reset
before their response has begun, and allow 200, and 33 more per second.
""",
)
