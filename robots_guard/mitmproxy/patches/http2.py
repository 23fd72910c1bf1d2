"""HTTP/2: how mitmproxy reads the frames of sites and clients.

`write_check` has the method that writes requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import h2.events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from mitmproxy import ctx, hooks, http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseProtocolError
from mitmproxy.proxy.layers.http._http2 import (
    Http2Client,
    Http2Server,
    StreamState,
    parse_h2_response_headers,
)
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.events import Interim, Unanswered, is_interim

BURST = 200  # resets; a browser that leaves a page has at most 100 requests in progress
RATE = 33.0  # a second

Result = TypeVar("Result")
Handles = Callable[..., layer.CommandGenerator[bool]]


# -- sites ---------------------------------------------------------------------------------------


def _handle_site_event(
    self: Http2Client, event: Any, *, plain: Handles
) -> layer.CommandGenerator[bool]:
    """Pass interim responses to the stream, and report requests that the site has not processed.

    mitmproxy swallows interim responses, and gives up all requests in progress if the site
    announces by GOAWAY that it will close the connection, as many do after a thousand requests;
    those in its queue would wait forever. An interim response without a readable status is dropped.
    """
    if isinstance(event, h2.events.InformationalResponseReceived):
        yield from _pass_on(event)
        return False
    steps = plain(self, event)
    if isinstance(event, h2.events.ConnectionTerminated):
        is_orderly = event.error_code == ErrorCodes.NO_ERROR
        return (yield from end_requests(self, steps, unanswered=is_orderly))
    if isinstance(event, ProtocolError):  # h2 raises it for any frame behind a GOAWAY
        return (yield from end_requests(self, steps, unanswered=was_used(self)))
    if isinstance(event, h2.events.StreamReset):
        is_refused = event.error_code == ErrorCodes.REFUSED_STREAM
        if is_refused and (theirs := self.their_stream_id.get(event.stream_id)) is not None:
            self.our_stream_id.pop(theirs, None)  # a repeated request gets another number
        return (yield from _marked(self, steps, unanswered=is_refused))
    return (yield from steps)


def was_used(self: Http2Client) -> bool:
    """Whether the connection has carried another request."""
    return len(self.their_stream_id) > 1


def _pass_on(event: h2.events.InformationalResponseReceived) -> Iterator[ReceiveHttp]:
    try:
        status, headers = parse_h2_response_headers(event.headers)
    except ValueError:
        return
    if not is_interim(status):  # such as 1, or 101, which HTTP/2 does not know
        return
    response = http.Response(b"HTTP/2.0", status, b"", headers, None, None, 0.0, None)
    yield ReceiveHttp(Interim(event.stream_id, response))


def end_requests(
    self: Http2Client, steps: layer.CommandGenerator[Result], *, unanswered: bool
) -> layer.CommandGenerator[Result]:
    """End all requests of a connection that the site has closed, after mitmproxy's own `steps`."""
    result = yield from _marked(self, steps, unanswered=unanswered)
    queued = list(self.stream_queue)
    self.stream_queue.clear()
    for theirs in queued:
        ours = self.h2_conn.highest_outbound_stream_id + theirs + 1  # any number without a stream
        self.their_stream_id[ours] = theirs
        yield ReceiveHttp(
            Unanswered(ours, "the site closed the connection", ResponseProtocolError.code)
        )
    return result


def _marked(
    self: Http2Client, steps: layer.CommandGenerator[Result], *, unanswered: bool
) -> layer.CommandGenerator[Result]:
    """Run these steps. If `unanswered`, mark the errors of requests that got no answer at all."""
    while True:
        try:
            command = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if unanswered and isinstance(command, ReceiveHttp):
            error = command.event
            is_waiting = self.streams.get(error.stream_id) is StreamState.EXPECTING_HEADERS
            if is_waiting and isinstance(error, ResponseProtocolError):
                command.event = Unanswered.instead_of(error)
        yield command


# -- clients that reset streams -----------------------------------------------------------------


def _receive_data(
    self: BufferedH2Connection, data: bytes, *, plain: Callable[..., list[Any]]
) -> list[Any]:
    """Drop a request whose reset arrives in the same read (CVE-2023-44487, "rapid reset").

    mitmproxy handles all events of one read before it serves another client, so the request would
    be judged and sent for nothing.
    """
    found = plain(self, data)
    reset = {event.stream_id for event in found if isinstance(event, h2.events.StreamReset)}
    if not reset:
        return found
    return [event for event in found if not _is_request_of(event, reset)]


def _is_request_of(event: Any, reset: set[int | None]) -> bool:
    return isinstance(event, h2.events.RequestReceived) and event.stream_id in reset


@dataclass
class StreamResetHook(hooks.Hook):
    """A client has reset the stream of a flow."""

    name: ClassVar[str] = "robots_guard_stream_reset"
    flow: http.HTTPFlow


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


def _handle_client_event(
    self: Http2Server, event: Any, *, plain: Handles
) -> layer.CommandGenerator[bool]:
    """Close a connection that exceeds its allowance of resets with ENHANCE_YOUR_CALM (RFC 9113 section
    7), and announce each reset to addons at once, so that a request that is held gives up its place.

    Each request costs a proxy much more than its two frames cost the client, and a stream that was
    reset no longer counts against the limit of concurrent streams. A stream whose response has
    begun is not counted: clients that need only its beginning reset each of their streams.
    """
    if isinstance(event, h2.events.StreamReset):
        if not _take_allowance(self, event.stream_id):
            message = "too many streams were reset before their responses began"
            yield from self.protocol_error(message, ErrorCodes.ENHANCE_YOUR_CALM)
            return True
        _announce(self, event.stream_id)
    return (yield from plain(self, event))


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


PATCHES = (
    Patch(
        owner=Http2Client,
        methods=(method("handle_h2_event", "ff6f4bd92716", new=_handle_site_event),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="The 1xx responses of HTTP/2 sites are lost, such as 103 Early Hints; a GOAWAY costs the"
        " requests in progress.",
        report="""\
Interim responses (1xx) of HTTP/2 servers are not forwarded.

`Http2Client.handle_h2_event` ignores `InformationalResponseReceived`. RFC 9110 section 15.2: "A
proxy MUST forward 1xx responses unless the proxy itself requested the generation of the 1xx
response."

To see it: let an HTTP/2 server send `103` with a Link field before its 200, and request the page
through mitmproxy by `curl --http2 -i`.

The event could be passed to the stream as a `ResponseHeaders` of another class, and from there to
the client.

After a GOAWAY without an error, all requests in progress fail, although the site may still answer
some of them and has not processed the others. Those in `stream_queue` wait forever.
""",
    ),
    Patch(
        owner=BufferedH2Connection,
        methods=(method("receive_data", "7dd57c12dc7e", "1ebc3cf9b6b1", new=_receive_data),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A request that its client has already cancelled would be judged and sent.",
        report="""\
A request is begun even if its reset has arrived in the same read (rapid reset).

`BufferedH2Connection.receive_data` returns the events of one read in order. A stream that is
opened and reset in the same read begins a flow, runs its hooks, and may connect to a server, all
for nothing (CVE-2023-44487).

To see it: send HEADERS and RST_STREAM frames of a hundred streams in one piece, and count the
`request` hooks.

`RequestReceived` could be left out if a `StreamReset` of the same stream follows in the list.
""",
    ),
    Patch(
        owner=Http2Server,
        methods=(method("handle_h2_event", "d24a023c678d", new=_handle_client_event),),
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
    ),
)
