"""Bodies of requests: of refused ones they are let go as they come, of those still judged no more is kept than allowed.

mitmproxy reads a request to its end before it sends an answer that an addon has given at the start, and keeps the
whole body until then, also of clients that have left. It has no option against that, and it crashes if one answers
and streams. And while a hook takes its time, for a robots.txt that hangs, it keeps whatever comes: `body_size_limit`
is looked at when the hook is back. HttpStream is no public interface; all that is known of it is known here.
"""

from __future__ import annotations

import functools

from mitmproxy import http
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import HttpEvent, RequestData, RequestProtocolError
from mitmproxy.utils import human


class Refusal(http.Response):
    """A response of ours; the body of the request it answers is not needed."""


def let_go() -> None:
    """From now on, once for a process; other requests are as before."""
    HttpStream.state_consume_request_body = _sparing  # type: ignore[method-assign]  # the point of this file
    HttpStream.handle_event = _bounded  # type: ignore[assignment, method-assign]  # likewise
    HttpStream.state_stream_request_body = _breaking_off  # type: ignore[method-assign]  # likewise


_keeping = HttpStream.state_consume_request_body


@functools.wraps(_keeping)
def _sparing(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    if not (isinstance(event, RequestData) and isinstance(self.flow.response, Refusal)):
        yield from _keeping(self, event)


class _BrokenOff(RequestData):
    """Stands for all that came beyond the limit."""


_unbounded = HttpStream.handle_event
_streaming = HttpStream.state_stream_request_body


@functools.wraps(_unbounded)
def _bounded(self: HttpStream, event: events.Event) -> layer.CommandGenerator[None]:
    """While the stream is paused, events are kept for it. The first that goes beyond the limit is the last: when its
    turn comes, mitmproxy finds the body too large by itself; or the request, if it is streamed, breaks off."""
    if self._paused and isinstance(event, RequestData):
        kept = self.__dict__.get("octets_kept", 0) if self._paused_event_queue else 0
        limit = human.parse_size(self.context.options.body_size_limit)
        if limit is not None and kept > limit:
            event = _BrokenOff(self.stream_id, b"")
            if isinstance(self._paused_event_queue[-1], _BrokenOff):
                return
        self.__dict__["octets_kept"] = kept + len(event.data)
    yield from _unbounded(self, event)


@functools.wraps(_streaming)
def _breaking_off(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    if isinstance(event, _BrokenOff):
        yield from self.handle_protocol_error(RequestProtocolError(self.stream_id, "body_size_limit exceeded", 413))
    else:
        yield from _streaming(self, event)
