"""Received bytes: gives a connection handler the raw bytes that an origin sends over HTTP/1.

mitmproxy delivers a parsed response, not its bytes. What it skips, such as bytes after a response
or a second field of the same name, is visible nowhere else: below TLS, a handler sees only
ciphertext.

`Http1Client._handle_event` is `Http1Connection._handle_event`
(mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2 and 12.2.3). With this patch, if the options
of its connection are `ReceivesBytes`, it passes each piece, and the end of the connection, to them
before it reads it. A TLS layer reports a `close_notify` and an end of TCP without one by the same
event; its own state distinguishes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.tls import ServerTLSLayer
from OpenSSL import SSL

from robots_guard.mitmproxy.patches import replace

Commands = layer.CommandGenerator[None]
Handler = Callable[[Http1Client, events.Event], Commands]


class ReceivesBytes(ABC):
    """The options of a connection handler that needs the bytes its origins send."""

    @abstractmethod
    def receive(self, received: bytes) -> None:
        """Receive one piece."""

    @abstractmethod
    def closed(self, *, notified: bool | None) -> None:
        """Receive the end; `notified` says whether a `close_notify` announced it, None without TLS."""


def apply() -> None:
    """Replace how HTTP/1 is read from origins."""
    replace(Http1Client, "_handle_event", _replace_handle_event)


def _replace_handle_event(
    plain: Callable[[Http1Client, events.Event], Commands],
) -> Callable[[Http1Client, events.Event], Commands]:
    def _handle_event(self: Http1Client, event: events.Event) -> Commands:
        options: Any = self.context.options
        if isinstance(options, ReceivesBytes) and isinstance(event, events.DataReceived):
            options.receive(event.data)
        elif isinstance(options, ReceivesBytes) and isinstance(event, events.ConnectionClosed):
            options.closed(notified=_has_close_notify(self))
        return plain(self, event)

    return _handle_event


def _has_close_notify(client: Http1Client) -> bool | None:
    """Whether the innermost TLS layer towards the origin has received a `close_notify`; None without TLS."""
    layers = [each for each in client.context.layers if isinstance(each, ServerTLSLayer)]
    if not layers:
        return None
    tls = layers[-1].tls
    return tls is not None and bool(tls.get_shutdown() & SSL.RECEIVED_SHUTDOWN)
