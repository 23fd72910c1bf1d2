"""Request bodies: discarded as they arrive for refused requests, and bounded while a request is being judged.

mitmproxy reads a request to its end before it sends a response that an addon has set at the start,
and keeps the whole body until then, even if the client has left. It has no option against that, and
it crashes if an addon both answers and streams. While a hook waits, such as for a robots.txt that
hangs, it keeps whatever arrives: `body_size_limit` is checked only when the hook returns. Nor does
it bound the bodies of all requests together: an upload for which there is no room in `body_memory`
is answered with 503. HttpStream is not a public interface; this module is the only one that relies
on its internals.
"""

from __future__ import annotations

import functools
from http import HTTPStatus

from mitmproxy import http
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import HttpEvent, RequestData, RequestProtocolError, ResponseProtocolError
from mitmproxy.utils import human

from robots_guard.gateway.refusal import ProxyReply, no_room, too_large
from robots_guard.mitmproxy.body_memory import MEMORY
from robots_guard.mitmproxy.patches.codes import REQUEST_TOO_LARGE
from robots_guard.mitmproxy.patches.interim import Interim, pass_on


class Refusal(http.Response):
    """A response made by the guard. The body of the request it answers is not needed."""

    @classmethod
    def of(cls, reply: ProxyReply, method: str) -> Refusal:
        """A reply as mitmproxy's response to a request with that method."""
        response = cls.make(reply.status, reply.body, dict(reply.headers))
        response.reason = HTTPStatus(reply.status).phrase  # mitmproxy does not know them all
        if method == "HEAD":
            del response.headers["content-length"]  # the length of a response to GET is not known
        assert isinstance(response, cls)
        return response


class NoRoom(Refusal):
    """The response to an upload for which there is no room."""


def patch_uploads() -> None:
    """Replace how mitmproxy reads request bodies, once per process. Requests without a Refusal are only bounded."""
    HttpStream.state_consume_request_body = _consume_request_body  # type: ignore[method-assign]  # the patch itself
    HttpStream.handle_event = _handle_event  # type: ignore[assignment, method-assign]  # likewise
    HttpStream.state_stream_request_body = _stream_request_body  # type: ignore[method-assign]  # likewise


class _KeptBody(RequestData):
    """A piece that arrived while the stream was paused. It is already counted."""


class _BrokenOff(RequestData):
    """The placeholder for everything beyond the limit of one request."""


class _Overflow(_BrokenOff):
    """The placeholder for everything that arrived when there was no room."""


_plain_consume = HttpStream.state_consume_request_body
_plain_handle_event = HttpStream.handle_event
_plain_stream = HttpStream.state_stream_request_body


@functools.wraps(_plain_consume)
def _consume_request_body(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    """Keep a piece of a body if it is needed and there is room for it."""
    if not isinstance(event, RequestData):
        yield from _plain_consume(self, event)
    elif isinstance(self.flow.response, Refusal):
        _uncount(self, event)
    elif isinstance(event, _Overflow) or not _count(self, event):
        _refuse(self, event)
    else:
        yield from _plain_consume(self, event)
        if self.client_state == self.state_errored:  # beyond body_size_limit: mitmproxy would keep the buffer
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
    """Refuse an upload for which there is no room. The response is sent when the client has sent all of it."""
    method = self.flow.request.method
    reply = no_room if _could_fit(self, event) else too_large
    self.flow.response = NoRoom.of(reply(method=method), method)
    self.request_body_buf.clear()
    MEMORY.release(self.flow.client_conn.id, self.flow.id)


def _could_fit(self: HttpStream, event: RequestData) -> bool:
    """Whether there would be room without the other uploads."""
    own = MEMORY.used_by(self.flow.client_conn.id, self.flow.id)
    return own < MEMORY.used and own + len(event.data) <= MEMORY.limit


@functools.wraps(_plain_handle_event)
def _handle_event(self: HttpStream, event: events.Event) -> layer.CommandGenerator[None]:
    """Bound the events that mitmproxy keeps while the stream is paused.

    The first event beyond a limit is the last one kept. When it is handled, mitmproxy finds the
    body too large, or `_consume_request_body` finds no room; a streamed request is aborted.
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
    yield from _plain_handle_event(self, event)


def _bound_event(self: HttpStream, event: RequestData, kept: int) -> RequestData:
    """The event to keep for a paused stream that already keeps `kept` bytes."""
    limit = human.parse_size(self.context.options.body_size_limit)
    if limit is not None and kept > limit:
        return _BrokenOff(self.stream_id, b"")
    if not MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data)):
        return _Overflow(self.stream_id, b"")
    return _KeptBody(self.stream_id, event.data)


@functools.wraps(_plain_stream)
def _stream_request_body(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    if isinstance(event, _BrokenOff):
        message = "body_size_limit exceeded"
        # mitmproxy informs only the site: it treats an error of the request as a client that has disconnected.
        yield SendHttp(ResponseProtocolError(self.stream_id, message, REQUEST_TOO_LARGE), self.context.client)
        yield from self.handle_protocol_error(RequestProtocolError(self.stream_id, message, REQUEST_TOO_LARGE))
        return
    yield from _plain_stream(self, event)
    if isinstance(event, RequestData):
        _uncount(self, event)
