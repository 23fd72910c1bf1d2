"""`HttpStream` reads a request body.

mitmproxy reads a request to its end before it sends a response that an addon has set at the start,
and keeps the whole body until then, even if the client has left. It has no option against that, and
it crashes if an addon both answers and streams. While a hook waits, such as for a robots.txt that
hangs, it keeps whatever arrives: `body_size_limit` is checked only when the hook returns. Nor does
it bound the bodies of all requests together: an upload for which there is no room in `body_memory`
is answered with 503.

With the replacements, the body of a refused request is discarded as it arrives, and any other is
bounded, also while the request is being judged. `handle_event` also forwards interim responses
(`interim`).

A CONNECT may declare a body, which mitmproxy takes for the first bytes of the tunnel. If it is
incomplete, `passthrough` gets an event that the layers in the tunnel do not know, and they raise.
The replacement passes the end of the connection on to them.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    HttpEvent,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.utils import human

from robots_guard.gateway.patch import Patch, method
from robots_guard.gateway.refusal import no_room, too_large
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.patches.codes import REQUEST_TOO_LARGE
from robots_guard.mitmproxy.patches.interim import Interim, pass_on
from robots_guard.mitmproxy.replies import NoRoom, Refusal

Commands = layer.CommandGenerator[None]
Reads = Callable[[HttpStream, HttpEvent], Commands]
Handles = Callable[[HttpStream, events.Event], Commands]


class _KeptBody(RequestData):
    """A piece that arrived while the stream was paused. It is already counted."""


class _BrokenOff(RequestData):
    """The placeholder for everything beyond the limit of one request."""


class _Overflow(_BrokenOff):
    """The placeholder for everything that arrived when there was no room."""


# -- a body that is kept until it is complete -----------------------------------------------------


def _replace_consume(plain: Reads) -> Reads:
    """Keep a piece of a body if it is needed and there is room for it."""

    def state_consume_request_body(self: HttpStream, event: HttpEvent) -> Commands:
        if not isinstance(event, RequestData):
            yield from plain(self, event)
        elif isinstance(self.flow.response, Refusal):
            _uncount(self, event)
        elif isinstance(event, _Overflow) or not _count(self, event):
            _refuse(self, event)
        else:
            yield from plain(self, event)
            if self.client_state == self.state_errored:  # beyond body_size_limit
                self.request_body_buf.clear()

    return state_consume_request_body


def _count(self: HttpStream, event: RequestData) -> bool:
    """Count a piece unless it is already counted. Returns False if there is no room."""
    if isinstance(event, _KeptBody | _BrokenOff) or not event.data:
        return True
    return MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data))


def _uncount(self: HttpStream, event: RequestData) -> None:
    """Release the bytes of a piece that is no longer kept."""
    if isinstance(event, _KeptBody):
        MEMORY.give_back(self.flow.client_conn.id, self.flow.id, len(event.data))


def _refuse(self: HttpStream, event: RequestData) -> None:
    """Refuse an upload for which there is no room, when the client has sent all of it."""
    method = self.flow.request.method
    reply = no_room if _could_fit(self, event) else too_large
    self.flow.response = NoRoom.of(reply(method=method), method)
    self.request_body_buf.clear()
    MEMORY.release(self.flow.client_conn.id, self.flow.id)


def _could_fit(self: HttpStream, event: RequestData) -> bool:
    """Whether there would be room without the other uploads."""
    own = MEMORY.used_by(self.flow.client_conn.id, self.flow.id)
    return own < MEMORY.used and own + len(event.data) <= MEMORY.limit


# -- a body that is streamed ----------------------------------------------------------------------


def _replace_stream(plain: Reads) -> Reads:
    def state_stream_request_body(self: HttpStream, event: HttpEvent) -> Commands:
        if isinstance(event, _BrokenOff):
            yield from _abort(self)
            return
        yield from plain(self, event)
        if isinstance(event, RequestData):
            _uncount(self, event)

    return state_stream_request_body


def _abort(self: HttpStream) -> Commands:
    message = "body_size_limit exceeded"
    # mitmproxy informs only the site: to it, the client has disconnected
    yield SendHttp(
        ResponseProtocolError(self.stream_id, message, REQUEST_TOO_LARGE), self.context.client
    )
    yield from self.handle_protocol_error(
        RequestProtocolError(self.stream_id, message, REQUEST_TOO_LARGE)
    )


# -- pieces that arrive while a hook waits --------------------------------------------------------


def _replace_handle_event(plain: Handles) -> Handles:
    """Bound the events that mitmproxy keeps while the stream is paused.

    The first event beyond a limit is the last one kept. When it is handled, mitmproxy finds the
    body too large, or `state_consume_request_body` finds no room; a streamed request is aborted.
    """

    def handle_event(self: HttpStream, event: events.Event) -> Commands:
        if isinstance(event, Interim):
            yield from pass_on(self, event)
            return
        if self._paused and isinstance(event, RequestData):
            waiting = self._paused_event_queue
            if waiting and isinstance(waiting[-1], _BrokenOff):
                return
            kept = self.__dict__.get("bytes_kept", 0) if waiting else 0
            event = _bound_event(self, event, kept)
            self.__dict__["bytes_kept"] = kept + len(event.data)
        yield from plain(self, event)

    return handle_event


def _bound_event(self: HttpStream, event: RequestData, kept: int) -> RequestData:
    """The event to keep for a paused stream that already keeps `kept` bytes."""
    limit = human.parse_size(self.context.options.body_size_limit)
    if limit is not None and kept > limit:
        return _BrokenOff(self.stream_id, b"")
    if not MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data)):
        return _Overflow(self.stream_id, b"")
    return _KeptBody(self.stream_id, event.data)


# -- a tunnel -------------------------------------------------------------------------------------


def _replace_passthrough(plain: Handles) -> Handles:
    def passthrough(self: HttpStream, event: events.Event) -> Commands:
        if isinstance(event, RequestProtocolError):
            event = RequestEndOfMessage(self.stream_id)
        elif isinstance(event, ResponseProtocolError):
            event = ResponseEndOfMessage(self.stream_id)
        yield from plain(self, event)

    return passthrough


PATCH = Patch(
    owner=HttpStream,
    methods=(
        method("state_consume_request_body", "45459c1bbd8b", make=_replace_consume),
        method("state_stream_request_body", "eb2bdc50e917", "c98f7f715cef", make=_replace_stream),
        method("handle_event", "fd88b0fb09ce", make=_replace_handle_event),
        method("passthrough", "33d9057d1375", "a6df32aba1ae", make=_replace_passthrough),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="The bodies of refused requests, and those that arrive while a hook waits, are kept in"
    " memory without bound.",
    report="""\
Request bodies are kept in memory although they are not needed, or beyond `body_size_limit`.

If an addon sets `flow.response` in `requestheaders`, mitmproxy still collects the whole body
before it sends that response. While a hook of the flow waits, `HttpStream` queues whatever
arrives, and checks `body_size_limit` only afterwards. A streamed request that exceeds the limit is
aborted without a response. And nothing bounds the bodies of all requests together.

To see it: let an addon answer in `requestheaders`, upload 1 GB, and watch the memory. Or let an
addon wait for a minute in `requestheaders`, with `body_size_limit=1m`, and upload 1 GB meanwhile.

After a CONNECT with a Content-Length and a shorter body, `HttpStream.passthrough` hands
`RequestProtocolError` to the layers in the tunnel, which raise AssertionError.

The body of an answered request could be discarded as it arrives, and the queue of a paused layer
counted against `body_size_limit`.
""",
)
