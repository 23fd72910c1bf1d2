"""mitmproxy's HTTP clients: where a request becomes bytes, and the last check before it does.

After the last hook of a flow mitmproxy still waits for an intercepted flow to be resumed and for a connection, and
other tasks hold the same object; it then writes whatever the object says by that time (mitmproxy/proxy/layers/http,
read in 11.0.2 and 12.2.3).

    HttpStream.make_server_connection   asks for a connection; a parent proxy is then sent a CONNECT
    Http1Client.send                    writes the head and the body over HTTP/1
    Http2Client._handle_event2          writes the head over HTTP/2, also of a stream that had to queue
    Http3Client._handle_event           likewise over HTTP/3, where the operator has allowed it

Here each of them asks the gate of its master, and writes what the gate produces. The bytes of an HTTP/1 body are
counted, too: the surplus of a longer body would be read as another request, and a shorter body would swallow the next
one. mitmproxy does not count, and writes an empty piece of a chunked body as its end.

Invariant: of a master that has a gate, a client writes no request but the one that the gate produces.
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
    """The request must not be written. The message says why, for the client and the log."""


class Gate(Protocol):
    """Produces what is written."""

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


_gates: WeakKeyDictionary[master.Master, Gate] = WeakKeyDictionary()


def set_gate(of: master.Master, gate: Gate) -> None:
    """Have every request that the clients of this master write produced by `gate`, from now on."""
    _gates[of] = gate
    apply()


def apply() -> None:
    """Replace where mitmproxy's clients connect and write. A master without a gate behaves as before."""
    replace(HttpStream, "make_server_connection", _connecting)
    replace(Http1Client, "send", _sending)
    replace(Http2Client, "_handle_event2", _handling_h2)
    replace(Http3Client, "_handle_event", _handling_h3)


def _gate() -> Gate | None:
    return _gates.get(ctx.master)


def _produced(gate: Gate, event: RequestHeaders, by: HttpConnection) -> RequestHeaders:
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


def _connecting(
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


def _sending(plain: Callable[[Http1Client, HttpEvent], Commands]) -> Callable[[Http1Client, HttpEvent], Commands]:
    def send(self: Http1Client, event: HttpEvent) -> Commands:
        gate = _gate()
        if gate is None:
            yield from plain(self, event)
            return
        if self.state == self.done:  # closed here or by mitmproxy: the rest of the request is not sent
            return
        try:
            written = _judged(gate, self, event)
        except NotApproved as error:
            self.state = self.done
            yield commands.CloseConnection(self.conn)
            yield ReceiveHttp(_error(event.stream_id, error))
            return
        if written is not None:
            yield from plain(self, written)

    return send


def _judged(gate: Gate, self: Http1Client, event: HttpEvent) -> HttpEvent | None:
    """The event to write; None if nothing is. Raises NotApproved if the connection must be closed instead."""
    if isinstance(event, RequestHeaders):
        event = _produced(gate, event, self)
        self.__dict__["unsent"] = _announced(event.request)
        return event
    if isinstance(event, RequestTrailers):  # RFC 9110 section 6.5.1 lets an intermediary discard them
        return None
    if self.state == self.passthrough:  # a WebSocket's frames
        return event
    if isinstance(event, RequestData):
        return _counted(self, event)
    if isinstance(event, RequestEndOfMessage) and self.__dict__["unsent"]:
        raise NotApproved("the body is shorter than its head announced")
    return event


def _counted(self: Http1Client, event: RequestData) -> RequestData | None:
    left: int | None = self.__dict__["unsent"]
    if left is not None:
        if len(event.data) > left:
            raise NotApproved("the body is longer than its head announced")
        self.__dict__["unsent"] = left - len(event.data)
    return event if event.data else None


def _announced(request: http.Request) -> int | None:
    """The bytes of the body that a head announces (RFC 9112 section 6); None: chunked."""
    if "transfer-encoding" in request.headers:
        return None
    return int(request.headers.get("content-length", "0"))


# -- HTTP/2 ---------------------------------------------------------------------------------------------------


def _handling_h2(
    plain: Callable[[Http2Client, events.Event], Commands],
) -> Callable[[Http2Client, events.Event], Commands]:
    def handle_event(self: Http2Client, event: events.Event) -> Commands:
        gate = _gate()
        if gate is not None and isinstance(event, RequestTrailers):  # they come after the verdict
            return
        if gate is not None and isinstance(event, RequestHeaders):
            try:
                event = _produced(gate, event, self)
            except NotApproved as error:
                # Other streams go on. No stream ever has this number (RFC 9113 section 5.1.1), so that whatever
                # else of the request comes finds none to be written to.
                self.h2_conn.highest_outbound_stream_id = event.stream_id
                yield ReceiveHttp(_error(event.stream_id, error))
                return
        yield from plain(self, event)

    return handle_event


# -- HTTP/3 ---------------------------------------------------------------------------------------------------


def _handling_h3(
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
                event = _produced(gate, event, self)
            except NotApproved as error:
                refused.add(event.stream_id)
                yield ReceiveHttp(_error(event.stream_id, error))
                return
        yield from plain(self, event)

    return handle_event
