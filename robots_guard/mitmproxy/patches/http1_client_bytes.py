"""`Http1Client._handle_event` gets the raw bytes that an origin sends over HTTP/1.

mitmproxy delivers a parsed response, not its bytes. What it skips, such as bytes after a response
or a second field of the same name, is visible nowhere else: below TLS, a handler sees only
ciphertext.

If the options of its connection are `ReceivesBytes`, the replacement passes each piece, and the end
of the connection, to them before mitmproxy reads it. A TLS layer reports a `close_notify` and an
end of TCP without one by the same event; its own state distinguishes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.tls import ServerTLSLayer
from OpenSSL import SSL

from robots_guard.gateway.patch import Patch, method

Commands = layer.CommandGenerator[None]
Handler = Callable[[Http1Client, events.Event], Commands]


class ReceivesBytes(ABC):
    """The options of a connection handler that needs the bytes its origins send."""

    @abstractmethod
    def receive(self, received: bytes) -> None:
        """Receive one piece."""

    @abstractmethod
    def closed(self, *, notified: bool | None) -> None:
        """Receive the end; `notified`: whether a `close_notify` announced it, None without TLS."""


def _replace_handle_event(plain: Handler) -> Handler:
    def _handle_event(self: Http1Client, event: events.Event) -> Commands:
        options: Any = self.context.options
        if isinstance(options, ReceivesBytes) and isinstance(event, events.DataReceived):
            options.receive(event.data)
        elif isinstance(options, ReceivesBytes) and isinstance(event, events.ConnectionClosed):
            options.closed(notified=_has_close_notify(self))
        return plain(self, event)

    return _handle_event


def _has_close_notify(client: Http1Client) -> bool | None:
    """Whether the innermost TLS layer has received a `close_notify`; None without TLS."""
    layers = [each for each in client.context.layers if isinstance(each, ServerTLSLayer)]
    if not layers:
        return None
    tls = layers[-1].tls
    return tls is not None and bool(tls.get_shutdown() & SSL.RECEIVED_SHUTDOWN)


PATCH = Patch(
    owner=Http1Client,
    methods=(method("_handle_event", "2ac8db3e43ae", make=_replace_handle_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="An ambiguous robots.txt must not be trusted, and only its bytes show that.",
    report="""\
Addons cannot see the bytes of an HTTP/1 response, or how its connection ended.

What mitmproxy skips or repairs in a response is not visible to addons: bytes after its end, a body
that ends early with the connection, a second field of the same name. Whether a TLS connection
ended by `close_notify` is not visible either. A program that archives or verifies responses needs
both.

To see it: let a server send a response with `Content-Length: 5`, and ten bytes. The flow shows
five.

A hook for received data, or attributes of the flow such as `response.trailing_data` and
`server_conn.closed_cleanly`, would do.
""",
)
