"""mitmproxy's HTTP clients: where a request becomes bytes, and the last check before it does.

After the last hook of a flow, mitmproxy still waits for an intercepted flow to be resumed and for a
connection, and other tasks have access to the same object. It then writes whatever the object
contains by that time (mitmproxy/proxy/layers/http, read in 11.0.2 and 12.2.3).

    HttpStream.make_server_connection   requests a connection; a parent proxy is then sent a CONNECT
    Http1Client.send                    writes the head and the body over HTTP/1
    Http2Client._handle_event2          writes the head over HTTP/2, also of a stream that was queued
    Http3Client._handle_event           does so over HTTP/3, if the operator has allowed it

The replacements call the gate of their master, and write what the gate produces. They also count
the bytes of an HTTP/1 body: the surplus of a longer body would be read as another request, and a
shorter body would swallow the next one. mitmproxy does not count, and writes an empty piece of a
chunked body as its end.

Invariant: if its master has a gate, a client writes only requests that the gate has produced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

from mitmproxy import connection, ctx, http, master
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._base import HttpConnection, HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestTrailers,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.proxy.layers.http._http3 import Http3Client

from robots_guard.mitmproxy.patches import replace

Commands = layer.CommandGenerator[None]


class NotApproved(Exception):
    """The request must not be written. The message gives the reason, for the client and the log."""


class WriteCheck(Protocol):
    """The gate that produces the requests to write."""

    def objection(self, request: http.Request, client: connection.Client) -> str | None:
        """Why no connection may be made for this request, or None."""
        ...

    def outgoing(
        self,
        request: http.Request,
        client: connection.Client,
        server: connection.Server,
        *,
        has_body: bool,
        is_http1: bool,
    ) -> http.Request:
        """The request as it is to be written to this server. Raises NotApproved."""
        ...


_gates: WeakKeyDictionary[master.Master, WriteCheck] = WeakKeyDictionary()


def set_gate(of: master.Master, gate: WriteCheck) -> None:
    """Make the clients of this master write only requests that `gate` has produced, from now on."""
    _gates[of] = gate
    apply()


def apply() -> None:
    """Replace the methods that connect and write. A master without a gate behaves as before."""
    replace(HttpStream, "make_server_connection", _replace_make_server_connection)
    replace(Http1Client, "send", _replace_send)
    replace(Http2Client, "_handle_event2", _replace_handle_event2)
    replace(Http3Client, "_handle_event", _replace_handle_event)


def _gate() -> WriteCheck | None:
    return _gates.get(ctx.master)


def _produce(gate: WriteCheck, event: RequestHeaders, by: HttpConnection) -> RequestHeaders:
    server = by.conn
    assert isinstance(server, connection.Server)
    request = gate.outgoing(
        event.request,
        by.context.client,
        server,
        has_body=not event.end_stream,
        is_http1=isinstance(by, Http1Client),
    )
    return RequestHeaders(event.stream_id, request, event.end_stream)


def _error(stream_id: int, why: object) -> ResponseProtocolError:
    return ResponseProtocolError(stream_id, f"robots_guard: {why}", ResponseProtocolError.code)


# -- connections ----------------------------------------------------------------------------------------------


def _replace_make_server_connection(
    plain: Callable[[HttpStream], layer.CommandGenerator[bool]],
) -> Callable[[HttpStream], layer.CommandGenerator[bool]]:
    def make_server_connection(self: HttpStream) -> layer.CommandGenerator[bool]:
        gate = _gate()
        objection = gate.objection(self.flow.request, self.context.client) if gate is not None else None
        if objection is None:
            return (yield from plain(self))
        yield from self.handle_protocol_error(_error(self.stream_id, objection))
        return False

    return make_server_connection


# -- HTTP/1 ---------------------------------------------------------------------------------------------------


def _replace_send(plain: Callable[[Http1Client, HttpEvent], Commands]) -> Callable[[Http1Client, HttpEvent], Commands]:
    def send(self: Http1Client, event: HttpEvent) -> Commands:
        gate = _gate()
        if gate is None:
            yield from plain(self, event)
            return
        if self.state == self.done:  # the connection is closed: the rest of the request is not sent
            return
        try:
            written = _event_to_write(gate, self, event)
        except NotApproved as error:
            self.state = self.done
            yield commands.CloseConnection(self.conn)
            yield ReceiveHttp(_error(event.stream_id, error))
            return
        if written is not None:
            yield from plain(self, written)

    return send


def _event_to_write(gate: WriteCheck, self: Http1Client, event: HttpEvent) -> HttpEvent | None:
    """The event to write, or None. Raises NotApproved if the connection must be closed instead."""
    if isinstance(event, RequestHeaders):
        event = _produce(gate, event, self)
        self.__dict__["unsent"] = _declared_length(event.request)
        return event
    if isinstance(event, RequestTrailers):  # RFC 9110 section 6.5.1 allows an intermediary to discard them
        return None
    if self.state == self.passthrough:  # the frames of a WebSocket
        return event
    if isinstance(event, RequestData):
        return _count(self, event)
    if isinstance(event, RequestEndOfMessage) and self.__dict__["unsent"]:
        raise NotApproved("the body is shorter than its head declared")
    return event


def _count(self: Http1Client, event: RequestData) -> RequestData | None:
    left: int | None = self.__dict__["unsent"]
    if left is not None:
        if len(event.data) > left:
            raise NotApproved("the body is longer than its head declared")
        self.__dict__["unsent"] = left - len(event.data)
    if event.data:
        return event
    return None


def _declared_length(request: http.Request) -> int | None:
    """The length of the body in bytes that a head declares (RFC 9112 section 6); None if it is chunked."""
    if "transfer-encoding" in request.headers:
        return None
    return int(request.headers.get("content-length", "0"))


# -- HTTP/2 ---------------------------------------------------------------------------------------------------


def _replace_handle_event2(
    plain: Callable[[Http2Client, events.Event], Commands],
) -> Callable[[Http2Client, events.Event], Commands]:
    def handle_event(self: Http2Client, event: events.Event) -> Commands:
        gate = _gate()
        if gate is not None and isinstance(event, RequestTrailers):  # trailers arrive after the verdict
            return
        if gate is not None and isinstance(event, RequestHeaders):
            try:
                event = _produce(gate, event, self)
            except NotApproved as error:
                # Other streams continue. This stream number is never used again (RFC 9113 section 5.1.1), so the
                # rest of the request has no stream to be written to.
                self.h2_conn.highest_outbound_stream_id = event.stream_id
                yield ReceiveHttp(_error(event.stream_id, error))
                return
        yield from plain(self, event)

    return handle_event


# -- HTTP/3 ---------------------------------------------------------------------------------------------------


def _replace_handle_event(
    plain: Callable[[Http3Client, events.Event], Commands],
) -> Callable[[Http3Client, events.Event], Commands]:
    def handle_event(self: Http3Client, event: events.Event) -> Commands:
        gate = _gate()
        refused: set[int] = self.__dict__.setdefault("refused", set())
        if isinstance(event, HttpEvent) and event.stream_id in refused:
            return
        if gate is not None and isinstance(event, RequestTrailers):
            return
        if gate is not None and isinstance(event, RequestHeaders):
            try:
                event = _produce(gate, event, self)
            except NotApproved as error:
                refused.add(event.stream_id)
                yield ReceiveHttp(_error(event.stream_id, error))
                return
        yield from plain(self, event)

    return handle_event
