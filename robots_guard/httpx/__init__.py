"""The httpx integration: transports that judge every request, each hop of a redirect included.

    client = httpx.Client(transport=robots_guard.httpx.Transport("mybot"))
    client = httpx.AsyncClient(transport=robots_guard.httpx.AsyncTransport("mybot"))

docs/python.md is the user documentation.
"""

from __future__ import annotations

from robots_guard.errors import MissingExtra

try:
    import httpx  # noqa: F401  (imported here, so that its absence is reported in one sentence)
except ImportError as error:
    # mitmproxy 11, the newest on Python 3.11, needs another h11 (docs/python.md)
    needed_for = "the transport for httpx (on Python 3.11 in an environment without mitmproxy)"
    raise MissingExtra("httpx", needed_for) from error

from robots_guard.httpx.transport import (
    AsyncTransport,
    HttpxDeferred,
    HttpxDisallowed,
    HttpxResponseRefused,
    Transport,
)

__all__ = [
    "AsyncTransport",
    "HttpxDeferred",
    "HttpxDisallowed",
    "HttpxResponseRefused",
    "Transport",
]
