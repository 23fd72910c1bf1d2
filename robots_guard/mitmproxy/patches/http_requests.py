"""The requests of `HttpStream`: the bodies that it reads, and a request that is sent once more.

The body of a refused request is discarded as it arrives, and any other is bounded, also while the
request is being judged. An upload for which there is no room in `MEMORY` is answered with 503.
mitmproxy has no option for that: it reads a request to its end before it sends a response that an
addon has set at the start, keeps the whole body until then, even if the client has left, and
crashes if an addon both answers and streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from mitmproxy import http
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    HttpEvent,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook
from mitmproxy.utils import human

from robots_guard.gateway.patch import Patch, method
from robots_guard.gateway.refusal import no_room, too_large
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.patches.events import (
    REQUEST_TOO_LARGE,
    Interim,
    Unanswered,
    pass_on,
)
from robots_guard.mitmproxy.patches.write_check import current_gate
from robots_guard.mitmproxy.replies import NoRoom, Refusal

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))  # RFC 9110, 9.2.2

Commands = layer.CommandGenerator[None]
Plain = Callable[..., Commands]


class _KeptBody(RequestData):
    """A piece that arrived while the stream was paused. It is already counted."""


class _BrokenOff(RequestData):
    """The placeholder for everything beyond the limit of one request."""


class _Overflow(_BrokenOff):
    """The placeholder for everything that arrived when there was no room."""


# -- a body that is kept until it is complete -----------------------------------------------------


def _consume_body(self: HttpStream, event: HttpEvent, *, plain: Plain) -> Commands:
    """Keep a piece of a body if it is needed and there is room for it."""
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


def _stream_body(self: HttpStream, event: HttpEvent, *, plain: Plain) -> Commands:
    """Abort a request that exceeds the limit of its size, and release the pieces that were streamed."""
    if isinstance(event, _BrokenOff):
        yield from _abort(self)
        return
    yield from plain(self, event)
    if isinstance(event, RequestData):
        _uncount(self, event)


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


def _handle_event(self: HttpStream, event: events.Event, *, plain: Plain) -> Commands:
    """Bound the events that mitmproxy keeps while the stream is paused.

    The first event beyond a limit is the last one kept. When it is handled, mitmproxy finds the
    body too large, or `state_consume_request_body` finds no room; a streamed request is aborted.
    """
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


def _bound_event(self: HttpStream, event: RequestData, kept: int) -> RequestData:
    """The event to keep for a paused stream that already keeps `kept` bytes."""
    limit = human.parse_size(self.context.options.body_size_limit)
    if limit is not None and kept > limit:
        return _BrokenOff(self.stream_id, b"")
    if not MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data)):
        return _Overflow(self.stream_id, b"")
    return _KeptBody(self.stream_id, event.data)


# -- a tunnel -------------------------------------------------------------------------------------


def _pass_through(self: HttpStream, event: events.Event, *, plain: Plain) -> Commands:
    """Pass the end of a connection on to the layers in a tunnel as an event that they know.

    A CONNECT may declare a body, which mitmproxy takes for the first bytes of the tunnel. If it is
    incomplete, `passthrough` gets an event for which they raise.
    """
    if isinstance(event, RequestProtocolError):
        event = RequestEndOfMessage(self.stream_id)
    elif isinstance(event, ResponseProtocolError):
        event = ResponseEndOfMessage(self.stream_id)
    yield from plain(self, event)


# -- a request that is sent once more -------------------------------------------------------------


@dataclass
class RepeatHook(commands.StartHook):
    """A request is about to be sent once more. Handlers act as in the hook `request`."""

    name: ClassVar[str] = "robots_guard_repeat"
    flow: http.HTTPFlow


def _fail_or_repeat(
    self: HttpStream, event: RequestProtocolError | ResponseProtocolError, *, plain: Plain
) -> Commands:
    """Send a request once more on a new connection if it is idempotent and got no answer, as RFC 9110
    section 9.2.2 allows and browsers do.

    A site may close a kept connection at the moment when the next request is sent on it; mitmproxy
    answers with 502. The hook `robots_guard_repeat` lets the enforcer judge anew whether the
    request may be sent, and when; then it passes the same gates as before.
    """
    if isinstance(event, Unanswered) and _can_repeat(self):
        yield from _repeat(self)
    else:
        yield from plain(self, event)


def _can_repeat(self: HttpStream) -> bool:
    return (
        current_gate() is not None
        and self.flow.request.method in _IDEMPOTENT
        and self.flow.request.data.content is not None  # it was not streamed
        and self.client_state == self.state_done
        and self.server_state == self.state_wait_for_response_headers
        and "has_repeated" not in self.__dict__
    )


def _repeat(self: HttpStream) -> Commands:
    """Repeat what mitmproxy does at the end of a request, except for the hook `request`, which other
    addons expect once."""
    self.__dict__["has_repeated"] = True
    self.request_body_buf += self.flow.request.data.content or b""
    steps = self.state_consume_request_body(RequestEndOfMessage(self.stream_id))
    reply: Any = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration:
            return
        if isinstance(command, HttpRequestHook):
            command = RepeatHook(self.flow)
        reply = yield command


PATCHES = (
    Patch(
        owner=HttpStream,
        methods=(
            method("state_consume_request_body", "45459c1bbd8b", new=_consume_body),
            method("state_stream_request_body", "eb2bdc50e917", "c98f7f715cef", new=_stream_body),
            method("handle_event", "fd88b0fb09ce", new=_handle_event),
            method("passthrough", "33d9057d1375", "a6df32aba1ae", new=_pass_through),
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
    ),
    Patch(
        owner=HttpStream,
        methods=(method("handle_protocol_error", "59fc3b2eeeab", new=_fail_or_repeat),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A site that closes a kept connection as the next request is sent costs a page.",
        report="""\
A site that closes a kept connection costs the request that is sent at that moment.

A client gets a 502 if a site closes a kept connection just as the next request is sent on it, as
happens with each keep-alive timeout. Over HTTP/2 all requests in progress fail when a site announces
by GOAWAY that it will close the connection.

To see it: let a site read a second request on a connection, and close it without a response.

`handle_protocol_error` could send a request of an idempotent method once more on a new connection
(RFC 9110 section 9.2.2) if no byte of the response has arrived, and one that HTTP/2 says was not
processed (RFC 9113 sections 6.8 and 8.7).
""",
    ),
)
