"""The responses of `HttpStream`: what becomes of their bodies.

mitmproxy either streams a body, and then the client has the status before the first byte of the
body is known, or keeps all of it. A response that an addon sets in the hook `responseheaders` is
overwritten by the site's body. With the patch there are two more ways:

    held        a page in `HELD_PAGES` is kept until its beginning has been judged, and is then
                passed on as other addons want it, or refused
    refused     instead of the site's response, the client gets the guard's. The rest of the site's
                body is discarded as it arrives. If it is long or slow, the download is ended: over
                HTTP/1 the connection is closed, over HTTP/2 the stream is reset
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import MethodType

from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import (
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.utils import human

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.bodies import HELD_PAGES, MEMORY, HeldPage, memory_key
from robots_guard.mitmproxy.patches.events import CLIENT_DISCONNECTED
from robots_guard.mitmproxy.replies import Refusal

HOLD_TIME = 10.0  # seconds a page is held; then what has arrived is judged
DISCARD_BYTES = 64 * 1024  # of a refused body; a new connection costs the site about as much
DISCARD_TIME = 1.0  # seconds
_TICK = 1.0  # seconds; mitmproxy cannot cancel a timer, so that long ones would pile up

Commands = layer.CommandGenerator[None]
Plain = Callable[..., Commands]


def _begin_response(self: HttpStream, event: ResponseHeaders, *, plain: Plain) -> Commands:
    """Discard the body of a response that is refused by its head, and hold a page in `HELD_PAGES`."""
    yield from plain(self, event)
    held = HELD_PAGES.pop(self.flow.id, None)
    if self.server_state != self.state_consume_response_body:
        return
    if isinstance(self.flow.response, Refusal):
        yield from _start_discarding(self, event)
    elif held is not None:
        yield from _start_holding(self, event, held)


def _handle_timers(self: HttpStream, event: events.Event, *, plain: Plain) -> Commands:
    """Pass timers on to the state of a held or refused response: only this method sees them."""
    if isinstance(event, events.Wakeup):
        if self.flow.live and self.server_state in _states(self):
            yield from self.server_state(event)
    elif not (isinstance(event, ResponseProtocolError) and _has_stopped_site(self)):
        yield from plain(self, event)


def _has_stopped_site(self: HttpStream) -> bool:
    """Whether the client has the refusal, so that it must not learn how the site's response ended.
    The connection may have closed while the hook of the refusal was running."""
    return "discarded" in self.__dict__ and self.server_state == self.state_errored


def _states(self: HttpStream) -> tuple[MethodType, ...]:
    return MethodType(state_hold_page, self), MethodType(state_discard_response_body, self)


def _check_body_size(
    self: HttpStream, request: bool, *, plain: Callable[..., layer.CommandGenerator[bool]]
) -> layer.CommandGenerator[bool]:
    """Check only what is kept against `body_size_limit`.

    mitmproxy would fail a response for its Content-Length before it is known that it will be
    streamed.
    """
    if not request and not self.response_body_buf:  # only its head has arrived
        _stream_if_large(self)
        return False
    return (yield from plain(self, request))


def _stream_if_large(self: HttpStream) -> None:
    """Apply `stream_large_bodies` to the length that the head of a response declares."""
    response, most = self.flow.response, human.parse_size(self.context.options.stream_large_bodies)
    if most is None or response is None:
        return
    try:
        size = expected_http_body_size(self.flow.request, response)
    except ValueError:
        return
    if size is not None and size > most:
        response.stream = True


# -- a page that is held --------------------------------------------------------------------------


def _start_holding(self: HttpStream, event: ResponseHeaders, held: HeldPage) -> Commands:
    if event.end_stream:
        held.stream = False  # nothing follows, and the client shall know it with the head
    self.__dict__["held_page"] = held
    self.server_state = MethodType(state_hold_page, self)
    yield commands.RequestWakeup(_TICK)


def state_hold_page(self: HttpStream, event: events.Event) -> Commands:
    """Keep the beginning of a page until it can be judged."""
    held: HeldPage = self.__dict__["held_page"]
    if isinstance(event, ResponseData):
        has_room = _count(self, held.feed(event.data))
        if held.window.is_full or not has_room:
            yield from _judge(self, held)
    elif isinstance(event, ResponseTrailers):
        assert self.flow.response is not None
        self.flow.response.trailers = event.trailers
    elif isinstance(event, ResponseEndOfMessage):
        held.window.end()
        yield from _judge(self, held)
        yield from self.server_state(event)
    elif time.monotonic() - held.began >= HOLD_TIME:
        yield from _judge(self, held)
    else:
        yield commands.RequestWakeup(_TICK)


def _judge(self: HttpStream, held: HeldPage) -> Commands:
    """Pass a page on, or refuse it."""
    response = self.flow.response
    assert response is not None
    del self.__dict__["held_page"]
    refusal = held.judge()
    if refusal is not None:
        _uncount(self)
        self.flow.response = refusal
        yield from _discard_rest(self, discarded=len(held.body))
        return
    response.stream = held.stream
    if held.stream:
        yield from self.start_response_stream()
    else:
        self.server_state = self.state_consume_response_body
    if held.body:
        yield from self.server_state(ResponseData(self.stream_id, bytes(held.body)))
    _uncount(self)


def _count(self: HttpStream, size: int) -> bool:
    return MEMORY.take(self.flow.client_conn.id, memory_key(self.flow.id), size)


def _uncount(self: HttpStream) -> None:
    MEMORY.release(self.flow.client_conn.id, memory_key(self.flow.id))


# -- a body that is refused -----------------------------------------------------------------------


def _start_discarding(self: HttpStream, event: ResponseHeaders) -> Commands:
    expected = 0
    if not event.end_stream:
        expected = _declared_length(event)
    yield from _discard_rest(self, discarded=0, expected=expected)


def _declared_length(event: ResponseHeaders) -> int:
    length = event.response.headers.get("content-length", "")
    return int(length) if length.isdecimal() and length.isascii() else 0


def _discard_rest(self: HttpStream, discarded: int, expected: int = 0) -> Commands:
    """Discard what follows, unless it is known to be long. The site must not wait for the rest of
    an upload, either."""
    self.__dict__["discarded"] = discarded
    self.server_state = MethodType(state_discard_response_body, self)
    is_uploading = self.client_state == self.state_stream_request_body
    if is_uploading or max(discarded, expected) > DISCARD_BYTES:
        yield from _stop_site(self)
    else:
        yield commands.RequestWakeup(DISCARD_TIME)


def state_discard_response_body(self: HttpStream, event: events.Event) -> Commands:
    """Discard the body of a refused response, and send the refusal at its end."""
    if isinstance(event, ResponseData):
        self.__dict__["discarded"] += len(event.data)
        if self.__dict__["discarded"] > DISCARD_BYTES:
            yield from _stop_site(self)
    elif isinstance(event, ResponseEndOfMessage):
        yield from _send_refusal(self)
    elif isinstance(event, events.Wakeup):
        yield from _stop_site(self)


def _stop_site(self: HttpStream) -> Commands:
    """End the download, so that the site stops sending; then answer the client."""
    message = "the rest of the response is not needed"
    yield SendHttp(
        RequestProtocolError(self.stream_id, message, CLIENT_DISCONNECTED), self.context.server
    )
    yield from _send_refusal(self)


def _send_refusal(self: HttpStream) -> Commands:
    if self.client_state == self.state_stream_request_body:
        self.client_state = MethodType(state_discard_request_body, self)
    yield from self.send_response()
    self.server_state = self.state_errored  # ignores what the site had sent already


def state_discard_request_body(self: HttpStream, event: HttpEvent) -> Commands:
    """Discard the rest of an upload whose response has been refused."""
    if isinstance(event, RequestEndOfMessage):
        self.client_state = self.state_done
        yield from self.flow_done()


PATCHES = (
    Patch(
        owner=HttpStream,
        methods=(
            method("state_wait_for_response_headers", "10e32e91b294", new=_begin_response),
            method("_handle_event", "e3cbfef7310a", new=_handle_timers),
            method("check_body_size", "7244b3db5fa1", "236ca0a7b9fd", new=_check_body_size),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="An addon cannot replace a response whose body is streamed, nor look at the beginning of"
        " a body before the client has its head.",
        report="""\
Addons cannot replace a streamed response, nor decide by the first bytes of its body.

If an addon sets `flow.response` in `responseheaders`, mitmproxy still downloads the site's body and
puts it into that response. With `stream`, the head is sent before the callable sees any data, and
without it the whole body is kept in memory. Nothing but `flow.kill()` ends a download. And a
response whose Content-Length exceeds `body_size_limit` fails even if it would be streamed.

To see it: set `flow.response = http.Response.make(403, b"no")` in `responseheaders`, for a site that
sends 1 GB.

`responseheaders` could honour a response with content: send it, and end the request to the server
(`RequestProtocolError`), as happens for `body_size_limit`. And `stream` could be a callable that is
called before the head is sent.
""",
    ),
)
