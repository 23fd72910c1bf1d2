"""`HttpStream.make_server_connection` requests the connection to a site or parent proxy, and
`handle_protocol_error` gives up if that connection fails.

The connection may begin with a CONNECT to the parent proxy, which names the site. mitmproxy does
not ask again whether the request may still be made. The replacement asks the gate of the master
first (`write_check`).

A site may close a kept connection at the moment when the next request is sent on it. mitmproxy
answers with 502. With the replacement, a request that is idempotent and got no answer is sent once
more on a new connection, as RFC 9110 section 9.2.2 allows and browsers do. `http1_client_head`,
`http2_client_interim` and `http2_client_writer` report such an end as `Unanswered`. The hook
`robots_guard_repeat` lets the enforcer judge anew whether the request may be sent, and when; then it
passes the same gates as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from mitmproxy import http
from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import (
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.write_check import current_gate, refusal

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))  # RFC 9110, 9.2.2

Commands = layer.CommandGenerator[None]
Connects = Callable[[HttpStream], layer.CommandGenerator[bool]]
Fails = Callable[[HttpStream, RequestProtocolError | ResponseProtocolError], Commands]


class Unanswered(ResponseProtocolError):
    """The site sent no byte of a response to a request, on a connection on which it had answered
    another; or it said that it did not process the request."""

    @classmethod
    def instead_of(cls, error: ResponseProtocolError) -> Unanswered:
        """The same error, marked."""
        return cls(error.stream_id, error.message, error.code)


@dataclass
class RepeatHook(commands.StartHook):
    """A request is about to be sent once more. Handlers act as in the hook `request`."""

    name: ClassVar[str] = "robots_guard_repeat"
    flow: http.HTTPFlow


def _replace_make_server_connection(plain: Connects) -> Connects:
    def make_server_connection(self: HttpStream) -> layer.CommandGenerator[bool]:
        gate = current_gate()
        objection = None
        if gate is not None:
            objection = gate.objection(self.flow.request, self.context.client)
        if objection is None:
            return (yield from plain(self))
        yield from self.handle_protocol_error(refusal(self.stream_id, objection))
        return False

    return make_server_connection


def _replace_handle_protocol_error(plain: Fails) -> Fails:
    def handle_protocol_error(
        self: HttpStream, event: RequestProtocolError | ResponseProtocolError
    ) -> Commands:
        if isinstance(event, Unanswered) and _can_repeat(self):
            yield from _repeat(self)
        else:
            yield from plain(self, event)

    return handle_protocol_error


def _can_repeat(self: HttpStream) -> bool:
    return (
        current_gate() is not None
        and self.flow.request.method in _IDEMPOTENT
        and self.flow.request.data.content is not None  # it was not streamed
        and self.client_state == self.state_done
        and self.server_state == self.state_wait_for_response_headers
        and "has_repeated" not in self.__dict__
    )


def _repeat(self: HttpStream) -> Commands:
    """Repeat what mitmproxy does at the end of a request, except for the hook `request`, which other
    addons expect once."""
    self.__dict__["has_repeated"] = True
    self.request_body_buf += self.flow.request.data.content or b""
    steps = self.state_consume_request_body(RequestEndOfMessage(self.stream_id))
    reply: Any = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration:
            return
        if isinstance(command, HttpRequestHook):
            command = RepeatHook(self.flow)
        reply = yield command


PATCH = Patch(
    owner=HttpStream,
    methods=(
        method("handle_protocol_error", "59fc3b2eeeab", make=_replace_handle_protocol_error),
        method(
            "make_server_connection",
            "9ed0ff470bbb",
            "ddc7bc72f4d2",
            make=_replace_make_server_connection,
        ),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="No hook can refuse a connection, or the CONNECT to a parent proxy, for what a flow has"
    " become after its last hook. And a site that closes a kept connection costs a page.",
    report="""\
Addons cannot check the connection that a request leads to after the `request` hook.

Between the `request` hook and the connection, a flow can change: while it is intercepted, or
because another task has the object. In upstream mode the first bytes are a CONNECT for the new
destination. `server_connect` gets the address of the parent proxy, and not the flow.

To see it: start `mitmdump --mode upstream:...` with an addon that sets `flow.request.host` from a
task that runs 0.1 s after `request`, and delay `server_connect`.

A hook that gets the flow when its connection is requested would help, or the flow as an attribute
of `ServerConnectionHookData`.

Another subject of the same class: a client gets a 502 if a site closes a kept connection just as
the next request is sent on it, as happens with each keep-alive timeout. Over HTTP/2 all requests in
progress fail when a site announces by GOAWAY that it will close the connection.

To see it: let a site read a second request on a connection, and close it without a response.

`handle_protocol_error` could send a request of an idempotent method once more on a new connection
(RFC 9110 section 9.2.2) if no byte of the response has arrived, and one that HTTP/2 says was not
processed (RFC 9113 sections 6.8 and 8.7).
""",
)
