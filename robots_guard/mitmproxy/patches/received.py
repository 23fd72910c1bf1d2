"""Received bytes: what an origin sends over HTTP/1 is shown, as it came, to the connection handler that wants it.

mitmproxy hands on what it has read of an answer, not the bytes. What it skips, such as bytes behind an answer or a
second field of the same name, shows nowhere else: below TLS, a handler sees ciphertext only.

`Http1Client._handle_event` is `Http1Connection._handle_event` (mitmproxy/proxy/layers/http/_http1.py, read in 11.0.2
and 12.2.3). Here it shows each piece to the options of its connection before it reads it, if they are `ShownTo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http._http1 import Http1Client

from robots_guard.mitmproxy.patches import replace

Commands = layer.CommandGenerator[None]


class ShownTo(ABC):
    """Options of a connection handler that wants to see what its origins send."""

    @abstractmethod
    def receive(self, received: bytes) -> None:
        """See one piece."""


def apply() -> None:
    """Replace how HTTP/1 is read from origins."""
    replace(Http1Client, "_handle_event", _showing)


def _showing(plain: Callable[[Http1Client, events.Event], Commands]) -> Callable[[Http1Client, events.Event], Commands]:
    def _handle_event(self: Http1Client, event: events.Event) -> Commands:
        options: Any = self.context.options
        if isinstance(options, ShownTo) and isinstance(event, events.DataReceived):
            options.receive(event.data)
        return plain(self, event)

    return _handle_event
