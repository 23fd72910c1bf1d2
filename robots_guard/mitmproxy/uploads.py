"""Bodies of requests: of refused ones they are let go as they come, of those still judged no more is kept than allowed.

mitmproxy reads a request to its end before it sends an answer that an addon has given at the start, and keeps the
whole body until then, also of clients that have left. It has no option against that, and it crashes if one answers
and streams. And while a hook takes its time, for a robots.txt that hangs, it keeps whatever comes: `body_size_limit`
is looked at when the hook is back. Nor does it bound what all requests together take: an upload for which there is no
room in `body_memory` is answered with 503. HttpStream is no public interface; all that is known of it is known here.
"""

from __future__ import annotations

import functools
from http import HTTPStatus

from mitmproxy import http
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import HttpEvent, RequestData, RequestProtocolError, ResponseProtocolError
from mitmproxy.utils import human

from robots_guard.mitmproxy.body_memory import MEMORY
from robots_guard.mitmproxy.patches.codes import REQUEST_TOO_LARGE
from robots_guard.mitmproxy.patches.interim import Interim, pass_on
from robots_guard.mitmproxy.replies import Reply, no_room, too_large


class Refusal(http.Response):
    """A response of ours; the body of the request it answers is not needed."""

    @classmethod
    def of(cls, reply: Reply, method: str) -> Refusal:
        """A reply as mitmproxy's response to a request with that method."""
        response = cls.make(reply.status, reply.body, dict(reply.headers))
        response.reason = HTTPStatus(reply.status).phrase  # mitmproxy does not know them all
        if method == "HEAD":
            del response.headers["content-length"]  # what a GET would have been answered with is not known
        assert isinstance(response, cls)
        return response


class NoRoom(Refusal):
    """The response to an upload for which there is no room."""


def let_go() -> None:
    """From now on, once for a process; other requests are as before."""
    HttpStream.state_consume_request_body = _sparing  # type: ignore[method-assign]  # the point of this file
    HttpStream.handle_event = _bounded  # type: ignore[assignment, method-assign]  # likewise
    HttpStream.state_stream_request_body = _breaking_off  # type: ignore[method-assign]  # likewise


class _Kept(RequestData):
    """A piece that came while the stream was paused, and is counted already."""


class _BrokenOff(RequestData):
    """The placeholder for all that came beyond the limit of one request."""


class _Overflow(_BrokenOff):
    """The placeholder for all that came when there was no room."""


_keeping = HttpStream.state_consume_request_body
_unbounded = HttpStream.handle_event
_streaming = HttpStream.state_stream_request_body


@functools.wraps(_keeping)
def _sparing(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    """Keep a piece of a body if it is needed and there is room for it."""
    if not isinstance(event, RequestData):
        yield from _keeping(self, event)
    elif isinstance(self.flow.response, Refusal):
        _uncount(self, event)
    elif isinstance(event, _Overflow) or not _count(self, event):
        _refuse(self, event)
    else:
        yield from _keeping(self, event)
        if self.client_state == self.state_errored:  # beyond body_size_limit: mitmproxy keeps what it has
            self.request_body_buf.clear()


def _count(self: HttpStream, event: RequestData) -> bool:
    """Count a piece, if it is not counted already. Returns False if there is no room."""
    if isinstance(event, _Kept | _BrokenOff) or not event.data:
        return True
    return MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data))


def _uncount(self: HttpStream, event: RequestData) -> None:
    """Release the bytes of a piece that is not kept any more."""
    if isinstance(event, _Kept):
        MEMORY.give_back(self.flow.client_conn.id, self.flow.id, len(event.data))


def _refuse(self: HttpStream, event: RequestData) -> None:
    """Refuse an upload for which there is no room. Its response is sent when the client has sent all of it."""
    method = self.flow.request.method
    reply = no_room if _could_fit(self, event) else too_large
    self.flow.response = NoRoom.of(reply(method=method), method)
    self.request_body_buf.clear()
    MEMORY.release(self.flow.client_conn.id, self.flow.id)


def _could_fit(self: HttpStream, event: RequestData) -> bool:
    """Whether there would be room if no other upload took any."""
    own = MEMORY.kept(self.flow.client_conn.id, self.flow.id)
    return own < MEMORY.held and own + len(event.data) <= MEMORY.limit


@functools.wraps(_unbounded)
def _bounded(self: HttpStream, event: events.Event) -> layer.CommandGenerator[None]:
    """While the stream is paused, events are kept for it. The first that goes beyond a limit is the last: when its
    turn comes, mitmproxy finds the body too large by itself, or we find no room; or the request, if it is streamed,
    breaks off."""
    if isinstance(event, Interim):
        yield from pass_on(self, event)
        return
    if self._paused and isinstance(event, RequestData):
        waiting = self._paused_event_queue
        if waiting and isinstance(waiting[-1], _BrokenOff):
            return
        kept = self.__dict__.get("octets_kept", 0) if waiting else 0
        event = _as_kept(self, event, kept)
        self.__dict__["octets_kept"] = kept + len(event.data)
    yield from _unbounded(self, event)


def _as_kept(self: HttpStream, event: RequestData, kept: int) -> RequestData:
    """The event to keep for a paused stream that keeps `kept` bytes already."""
    limit = human.parse_size(self.context.options.body_size_limit)
    if limit is not None and kept > limit:
        return _BrokenOff(self.stream_id, b"")
    if not MEMORY.take(self.flow.client_conn.id, self.flow.id, len(event.data)):
        return _Overflow(self.stream_id, b"")
    return _Kept(self.stream_id, event.data)


@functools.wraps(_streaming)
def _breaking_off(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    if isinstance(event, _BrokenOff):
        sentence = "body_size_limit exceeded"
        # mitmproxy informs the site only: it takes an error of the request for a client that has disconnected.
        yield SendHttp(ResponseProtocolError(self.stream_id, sentence, REQUEST_TOO_LARGE), self.context.client)
        yield from self.handle_protocol_error(RequestProtocolError(self.stream_id, sentence, REQUEST_TOO_LARGE))
        return
    yield from _streaming(self, event)
    if isinstance(event, RequestData):
        _uncount(self, event)
