"""ALPN memory: what an origin speaks is known from the last time.

We connect to an origin only when a request may go, so a client has agreed on HTTP/2 with us before we know whether
the origin speaks it. If it does not, mitmproxy makes a new connection for each request. Whoever has been met is
remembered, and the next client is offered what its origin speaks.
"""

from __future__ import annotations

from cachetools import TTLCache
from mitmproxy import tls

from robots_guard.settings import CLOCKS

_MOST = 8192
_BOTH = frozenset((b"h2", b"http/1.1"))
_SECONDS = 3600.0  # after which an origin is offered HTTP/2 once more


class Spoken:
    """The protocol each origin chose, by host and port."""

    def __init__(self) -> None:
        self._last: TTLCache[tuple[str, int], bytes] = TTLCache(_MOST, _SECONDS, timer=CLOCKS.monotonic)

    def heard(self, data: tls.TlsData) -> None:
        """An origin has chosen; one that was not offered HTTP/2 has not told us whether it speaks it."""
        address = data.context.server.address
        if address is not None and b"h2" in (data.conn.alpn_offers or ()):
            self._last[address[0], address[1]] = data.conn.alpn or b""

    def suggest(self, data: tls.ClientHelloData) -> None:
        """Offer a client that speaks both what its origin is known to speak."""
        address = data.context.server.address
        if address is None or not set(data.client_hello.alpn_protocols) >= _BOTH:
            return
        if self._last.get((address[0], address[1]), b"h2") != b"h2":
            data.context.client.alpn = b"http/1.1"
