"""`Http1Client.send` writes the head and the body of a request over HTTP/1.

The replacement writes the head that the gate of the master produces (`write_check`). It also counts
the bytes of the body: the surplus of a longer body would be read as another request, and a shorter
body would swallow the next one. mitmproxy does not count, and writes an empty piece of a chunked
body as its end.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import http
from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestTrailers,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.write_check import (
    NotApproved,
    WriteCheck,
    current_gate,
    produce,
    replies,
)

Commands = layer.CommandGenerator[None]
Sends = Callable[[Http1Client, HttpEvent], Commands]


def _replace_send(plain: Sends) -> Sends:
    def send(self: Http1Client, event: HttpEvent) -> Commands:
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

    return send


def _event_to_write(gate: WriteCheck, self: Http1Client, event: HttpEvent) -> HttpEvent | None:
    """The event to write, or None. Raises NotApproved if the connection must be closed instead."""
    if isinstance(event, RequestHeaders):
        event = produce(gate, event, self)
        self.__dict__["unsent"] = _declared_length(event.request)
        return event
    if isinstance(event, RequestTrailers):  # RFC 9110 section 6.5.1 allows it
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


PATCH = Patch(
    owner=Http1Client,
    methods=(method("send", "35d961e20d48", make=_replace_send),),
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
)
