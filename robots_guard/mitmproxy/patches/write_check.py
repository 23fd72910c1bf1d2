"""The write check: the last check of a request, where one of mitmproxy's clients writes it.

After the last hook of a flow, mitmproxy still waits for an intercepted flow to be resumed and for a
connection, over HTTP/2 also for the site to permit another stream, and other tasks have access to
the same object. It then writes whatever the object contains by that time. The methods that request
a connection and those that write a head are replaced: they call the gate of their master. Trailers
are not written, because they arrive after the verdict (RFC 9110 section 6.5.1 allows it).

Invariant: if its master has a gate, a client writes only requests that the gate has produced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.proxy.layers.http._http3 import Http3Client

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.http2 import end_requests, was_used

Commands = layer.CommandGenerator[None]
Plain = Callable[..., Commands]


class NotApproved(Exception):
    """The request must not be written. The message gives the reason, for the client and the log.

    `response` is the client's response if there is one; otherwise the client gets an error.
    """

    def __init__(self, why: str, response: http.Response | None = None) -> None:
        super().__init__(why)
        self.response = response


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


def current_gate() -> WriteCheck | None:
    """The gate of the running master, if it has one."""
    return _gates.get(ctx.master)


def produce(gate: WriteCheck, event: RequestHeaders, by: HttpConnection) -> RequestHeaders:
    """The head that a client may write instead of this one. Raises NotApproved."""
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


def replies(stream_id: int, error: NotApproved) -> Iterator[HttpEvent]:
    """What a stream whose request was not written receives instead of the site's response."""
    if error.response is None:
        yield refusal(stream_id, error)
        return
    content = error.response.raw_content or b""
    yield ResponseHeaders(stream_id, error.response, end_stream=not content)
    if content:
        yield ResponseData(stream_id, content)
    yield ResponseEndOfMessage(stream_id)


def refusal(stream_id: int, why: object) -> ResponseProtocolError:
    """The error of a stream whose request was not written."""
    return ResponseProtocolError(stream_id, f"robots_guard: {why}", ResponseProtocolError.code)


# -- the connection -------------------------------------------------------------------------------


def _connect(
    self: HttpStream, *, plain: Callable[..., layer.CommandGenerator[bool]]
) -> layer.CommandGenerator[bool]:
    """Ask the gate first. The connection may begin with a CONNECT to a parent proxy, which names the
    site, and mitmproxy does not ask again whether the request may still be made."""
    gate = current_gate()
    objection = None
    if gate is not None:
        objection = gate.objection(self.flow.request, self.context.client)
    if objection is None:
        return (yield from plain(self))
    yield from self.handle_protocol_error(refusal(self.stream_id, objection))
    return False


# -- the writers ----------------------------------------------------------------------------------


def _write_http1(self: Http1Client, event: HttpEvent, *, plain: Plain) -> Commands:
    """Write the head that the gate produces, and count the bytes of the body.

    The surplus of a longer body would be read as another request, and a shorter body would swallow
    the next one. mitmproxy does not count, and writes an empty piece of a chunked body as its end.
    """
    gate = current_gate()
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
        for reply in replies(event.stream_id, error):
            yield ReceiveHttp(reply)
        return
    if written is not None:
        yield from plain(self, written)


def _event_to_write(gate: WriteCheck, self: Http1Client, event: HttpEvent) -> HttpEvent | None:
    """The event to write, or None. Raises NotApproved if the connection must be closed instead."""
    if isinstance(event, RequestHeaders):
        event = produce(gate, event, self)
        self.__dict__["unsent"] = _declared_length(event.request)
        return event
    if isinstance(event, RequestTrailers):
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
    """The declared length of the body (RFC 9112 section 6); None if it is chunked."""
    if "transfer-encoding" in request.headers:
        return None
    return int(request.headers.get("content-length", "0"))


def _write_http2(self: Http2Client, event: events.Event, *, plain: Plain) -> Commands:
    """Write the head that the gate produces, also of a stream that was queued. When the site closes
    the connection, report the requests that it has not answered."""
    gate = current_gate()
    if gate is not None and isinstance(event, RequestTrailers):
        return
    if gate is not None and isinstance(event, RequestHeaders):
        try:
            event = produce(gate, event, self)
        except NotApproved as error:
            # Other streams continue. This stream number is never used again (RFC 9113 section 5.1.1), so the
            # rest of the request has no stream to be written to.
            self.h2_conn.highest_outbound_stream_id = event.stream_id
            for reply in replies(event.stream_id, error):
                yield ReceiveHttp(reply)
            return
    if isinstance(event, events.ConnectionClosed):
        yield from end_requests(self, plain(self, event), unanswered=was_used(self))
    else:
        yield from plain(self, event)


def _write_http3(self: Http3Client, event: events.Event, *, plain: Plain) -> Commands:
    """Write the head that the gate produces, and nothing of a stream whose head was refused."""
    gate = current_gate()
    refused: set[int] = self.__dict__.setdefault("refused", set())
    if isinstance(event, HttpEvent) and event.stream_id in refused:
        return
    if gate is not None and isinstance(event, RequestTrailers):
        return
    if gate is not None and isinstance(event, RequestHeaders):
        try:
            event = produce(gate, event, self)
        except NotApproved as error:
            refused.add(event.stream_id)
            for reply in replies(event.stream_id, error):
                yield ReceiveHttp(reply)
            return
    yield from plain(self, event)


PATCHES = (
    Patch(
        owner=HttpStream,
        methods=(method("make_server_connection", "9ed0ff470bbb", "ddc7bc72f4d2", new=_connect),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="No hook can refuse a connection, or the CONNECT to a parent proxy, for what a flow has"
        " become after its last hook.",
        report="""\
Addons cannot check the connection that a request leads to after the `request` hook.

Between the `request` hook and the connection, a flow can change: while it is intercepted, or
because another task has the object. In upstream mode the first bytes are a CONNECT for the new
destination. `server_connect` gets the address of the parent proxy, and not the flow.

To see it: start `mitmdump --mode upstream:...` with an addon that sets `flow.request.host` from a
task that runs 0.1 s after `request`, and delay `server_connect`.

A hook that gets the flow when its connection is requested would help, or the flow as an attribute
of `ServerConnectionHookData`.
""",
    ),
    Patch(
        owner=Http1Client,
        methods=(method("send", "35d961e20d48", new=_write_http1),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A request can change after its last hook, and a body of another length than its head"
        " declares is another request to the site.",
        report="""\
Http1Client writes bodies of another length than their head declares (request smuggling).

`Http1Client.send` writes the pieces of a streamed body as they are. If an addon has changed
Content-Length or the pieces, the site reads the surplus as the next request on the connection, or
takes the next request for the rest of the body. An empty piece of a chunked body is written as
`0\\r\\n\\r\\n`, which ends it.

To see it: stream a request (`flow.request.stream = True`) whose `stream` function returns more
bytes than Content-Length says, or `b""` for one piece of a chunked body, and read what the site
gets.

`send` should count what it writes, close the connection when the count is wrong at the end or
would be exceeded, and skip empty pieces.
""",
    ),
    Patch(
        owner=Http2Client,
        methods=(method("_handle_event2", "a3b722b18c3f", new=_write_http2),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A request can change after its last hook; over HTTP/2 it may also be queued, until the"
        " site permits another stream.",
        report="""\
Addons have no hook at which a request is final.

After the `request` hook, a flow waits for a connection, and over HTTP/2 for the site to permit
another stream. Whatever `flow.request` contains by then is written. An addon that must guarantee
something about every request that is sent cannot do so.

To see it: let a site announce SETTINGS_MAX_CONCURRENT_STREAMS = 1, send two requests, and change
the path of the second in a task while it is queued. The site gets the changed path.

A hook called where the head is written, or a request that is frozen after `request`, would help.
The same applies to `Http1Client.send` and `Http3Client._handle_event`.
""",
    ),
    Patch(
        owner=Http3Client,
        methods=(method("_handle_event", "94b342097cc2", new=_write_http3),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A request can change after its last hook.",
        report="""\
Addons have no hook at which a request is final: HTTP/3.

`Http3Client._handle_event` writes whatever `flow.request` contains after the connection has been
made, as `Http1Client.send` and `Http2Client._handle_event2` do. The report about those says more.

To see it: change `flow.request.path` in a task while the QUIC connection to the site is being
made.

A hook called where the head is written, or a request that is frozen after `request`, would help.
""",
    ),
)
