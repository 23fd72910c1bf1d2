"""mitmproxy's HTTP clients: where a request becomes bytes, and the last check before it does.

Invariant: of a master that has a gate, a client writes no request but the one that the gate produces. After the
last hook of a flow mitmproxy still waits for an intercepted flow to be resumed and for a connection, and other tasks
hold the same object; it then writes whatever the object says by that time.

    HttpStream.make_server_connection   asks for a connection, of a parent proxy perhaps, which is told where to
    Http1Client.send                    writes the head and the body over HTTP/1
    Http2Client._handle_event2          writes the head over HTTP/2, also that of a stream which had to queue
    Http3Client._handle_event           likewise over HTTP/3, where the operator has allowed it

HTTP/1 bodies are counted here, too: more or fewer bytes than the head announces would be read as another request,
or make one out of the next. mitmproxy counts neither, and writes an empty piece of a chunked body as its end.
Seen in mitmproxy 11.0.2 and 12.2.3; tests/hosts/mitmproxy/test_clients_patch.py fails when these methods change.
"""

from __future__ import annotations

import functools
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

Commands = layer.CommandGenerator[None]


class NotApproved(Exception):
    """The request must not be written. The text says why, for the client and the log."""


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
    HttpStream.make_server_connection = _connect  # type: ignore[method-assign]  # the point of this file
    Http1Client.send = _send  # type: ignore[method-assign]  # likewise
    Http2Client._handle_event2 = _handle_h2_event  # type: ignore[method-assign]  # noqa: SLF001  likewise
    Http3Client._handle_event = _handle_h3_event  # type: ignore[method-assign]  # noqa: SLF001  likewise


def _gate() -> Gate | None:
    """The gate of the master that runs; None: it is one without robots_guard, and writes as mitmproxy does."""
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

_plain_connect = HttpStream.make_server_connection


@functools.wraps(_plain_connect)
def _connect(self: HttpStream) -> layer.CommandGenerator[bool]:
    gate = _gate()
    objection = gate.objection(self.flow.request, self.context.client) if gate is not None else None
    if objection is None:
        return (yield from _plain_connect(self))
    yield from self.handle_protocol_error(_error(self.stream_id, objection))
    return False


# -- HTTP/1 ---------------------------------------------------------------------------------------------------

_plain_send = Http1Client.send


@functools.wraps(_plain_send)
def _send(self: Http1Client, event: HttpEvent) -> Commands:
    gate = _gate()
    if gate is None:
        yield from _plain_send(self, event)
        return
    if self.state == self.done:  # closed here or by mitmproxy: what is left of the request goes nowhere
        return
    try:
        written = _judged(gate, self, event)
    except NotApproved as error:
        yield from _close(self, event.stream_id, error)
        return
    if written is not None:
        yield from _plain_send(self, written)


def _judged(gate: Gate, self: Http1Client, event: HttpEvent) -> HttpEvent | None:
    """What of an event is to be written; raises NotApproved if the connection must be closed instead."""
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


def _close(self: Http1Client, stream_id: int, error: NotApproved) -> Commands:
    self.state = self.done
    yield commands.CloseConnection(self.conn)
    yield ReceiveHttp(_error(stream_id, error))


# -- HTTP/2 ---------------------------------------------------------------------------------------------------

_plain_h2 = Http2Client._handle_event2  # noqa: SLF001  see above


@functools.wraps(_plain_h2)
def _handle_h2_event(self: Http2Client, event: events.Event) -> Commands:
    gate = _gate()
    if gate is not None and isinstance(event, RequestTrailers):  # nothing leaves that came after the verdict
        return
    if gate is not None and isinstance(event, RequestHeaders):
        try:
            event = _produced(gate, event, self)
        except NotApproved as error:
            # Other streams go on. No stream ever has this number (RFC 9113 section 5.1.1), so that whatever else
            # of the request comes finds none to be written to.
            self.h2_conn.highest_outbound_stream_id = event.stream_id
            yield ReceiveHttp(_error(event.stream_id, error))
            return
    yield from _plain_h2(self, event)


# -- HTTP/3 ---------------------------------------------------------------------------------------------------

_plain_h3 = Http3Client._handle_event  # noqa: SLF001  see above


@functools.wraps(_plain_h3)
def _handle_h3_event(self: Http3Client, event: events.Event) -> Commands:
    gate = _gate()
    refused: set[int] = self.__dict__.setdefault("refused", set())
    if isinstance(event, RequestTrailers) or (isinstance(event, HttpEvent) and event.stream_id in refused):
        return
    if gate is not None and isinstance(event, RequestHeaders):
        try:
            event = _produced(gate, event, self)
        except NotApproved as error:
            refused.add(event.stream_id)
            yield ReceiveHttp(_error(event.stream_id, error))
            return
    yield from _plain_h3(self, event)
