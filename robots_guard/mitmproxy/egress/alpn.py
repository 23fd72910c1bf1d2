"""ALPN cache: remembers which protocol each origin speaks.

The proxy connects to an origin only when a request is permitted, so a client has agreed on HTTP/2
with the proxy before it is known whether the origin speaks it. If it does not, mitmproxy makes a
new connection for each request. So the origin's choice is remembered, and the next client is
offered the protocol that its origin speaks.
"""

from __future__ import annotations

from cachetools import TTLCache
from mitmproxy import tls

from robots_guard.settings import CLOCKS

_MAX_ORIGINS = 8192
_BOTH = frozenset((b"h2", b"http/1.1"))
_REMEMBERED_FOR = 3600.0  # after which an origin is offered HTTP/2 once more


class AlpnCache:
    """The protocol each origin chose, by host and port."""

    def __init__(self) -> None:
        self._last: TTLCache[tuple[str, int], bytes] = TTLCache(
            _MAX_ORIGINS, _REMEMBERED_FOR, timer=CLOCKS.monotonic
        )

    def remember(self, data: tls.TlsData) -> None:
        """Remember an origin's choice, unless it was not offered HTTP/2."""
        address = data.context.server.address
        if address is not None and b"h2" in (data.conn.alpn_offers or ()):
            self._last[address[0], address[1]] = data.conn.alpn or b""

    def offer(self, data: tls.ClientHelloData) -> None:
        """Offer a client that speaks both protocols the one that its origin is known to speak."""
        address = data.context.server.address
        if address is None or not set(data.client_hello.alpn_protocols) >= _BOTH:
            return
        if self._last.get((address[0], address[1]), b"h2") != b"h2":
            data.context.client.alpn = b"http/1.1"
