"""The write check: the last check of a request, where one of mitmproxy's clients writes it.

After the last hook of a flow, mitmproxy still waits for an intercepted flow to be resumed and for a
connection, and other tasks have access to the same object. It then writes whatever the object
contains by that time. Four methods are replaced, which call the gate of their master:

    http_stream_connection    a connection is requested; a parent proxy is then sent a CONNECT
    http1_client_writer       the head and the body are written over HTTP/1
    http2_client_writer       the head is written over HTTP/2, also of a stream that was queued
    http3_client_writer       the head is written over HTTP/3, if the operator has allowed it

Invariant: if its master has a gate, a client writes only requests that the gate has produced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from weakref import WeakKeyDictionary

from mitmproxy import connection, ctx, http, master
from mitmproxy.proxy.layers.http._base import HttpConnection
from mitmproxy.proxy.layers.http._events import (
    HttpEvent,
    RequestHeaders,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client


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
