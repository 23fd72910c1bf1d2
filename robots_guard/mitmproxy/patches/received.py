"""Received bytes: what an origin sends over HTTP/1 is shown, as it came, to the connection handler that wants it.

mitmproxy hands on what it has read of an answer, not the bytes. What it skips, such as bytes behind an answer or a
second field of the same name, shows nowhere else: below TLS, a handler sees ciphertext only.

`Http1Client._handle_event` is `Http1Connection._handle_event` (mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2
and 12.2.3). Here it shows each piece, and the connection's end, to the options of its connection before it reads it, if
they are `ShownTo`. A TLS layer reports a `close_notify` and an end of TCP without one by the same event; its own state
tells which it was.
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


class ShownTo(ABC):
    """Options of a connection handler that wants to see what its origins send."""

    @abstractmethod
    def receive(self, received: bytes) -> None:
        """See one piece."""

    @abstractmethod
    def closed(self, *, notified: bool | None) -> None:
        """See the end, and whether a `close_notify` has announced it; None without TLS."""


def apply() -> None:
    """Replace how HTTP/1 is read from origins."""
    replace(Http1Client, "_handle_event", _showing)


def _showing(plain: Callable[[Http1Client, events.Event], Commands]) -> Callable[[Http1Client, events.Event], Commands]:
    def _handle_event(self: Http1Client, event: events.Event) -> Commands:
        options: Any = self.context.options
        if isinstance(options, ShownTo) and isinstance(event, events.DataReceived):
            options.receive(event.data)
        elif isinstance(options, ShownTo) and isinstance(event, events.ConnectionClosed):
            options.closed(notified=_notified(self))
        return plain(self, event)

    return _handle_event


def _notified(client: Http1Client) -> bool | None:
    """Whether the innermost layer of TLS towards the origin has received `close_notify`; None without one."""
    layers = [each for each in client.context.layers if isinstance(each, ServerTLSLayer)]
    if not layers:
        return None
    tls = layers[-1].tls
    return tls is not None and bool(tls.get_shutdown() & SSL.RECEIVED_SHUTDOWN)
