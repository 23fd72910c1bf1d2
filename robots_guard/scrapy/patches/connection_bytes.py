"""`HTTP11ClientProtocol` reads and writes one HTTP/1.1 connection of Twisted's client.

Scrapy's own HTTP/1.1 handler uses this client, which skips trailing bytes and accepts many
ambiguous messages; no response and no signal shows it. In each new connection of a pool,
`dataReceived` and `connectionLost` are replaced, so that the bytes of a response to a fetch of the
guard are also passed to a `Framing`, and `request`, to know which connection carries a fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.web._newclient import HTTP11ClientProtocol
from twisted.web.client import HTTPConnectionPool

from robots_guard.gateway.patch import Patch, method
from robots_guard.guard.fetch.framing import Framing

#: Returns, for a URL, the lists that receive the framings of responses to requests for it.
FramingLists = Callable[[bytes | None], list[list[Framing]]]


def watch_pool(pool: HTTPConnectionPool, lists_for: FramingLists) -> None:
    """Watch the connections of a pool, from its next one on."""
    factory: Any = pool._factory  # noqa: SLF001  (the pool has no option for it)
    if not isinstance(factory, _WatchingFactory):
        watching: Any = _WatchingFactory(factory, lists_for)
        pool._factory = watching  # noqa: SLF001  (as above)


class _WatchingFactory:
    """A pool's connection factory, Twisted's or Scrapy's, with each connection watched."""

    def __init__(self, factory: Callable[..., Any], lists_for: FramingLists) -> None:
        self._factory = factory
        self._lists_for = lists_for

    def __call__(self, *args: Any) -> Any:
        factory = self._factory(*args)
        build = factory.buildProtocol

        def build_watched(addr: Any) -> Any:
            protocol = build(addr)
            _Watch(protocol, self._lists_for)
            return protocol

        factory.buildProtocol = build_watched
        return factory


class _Watch:
    """Records in a Framing what one connection receives and how it ends, before the connection's
    own protocol reads it.

    It records only while a framing list exists for the URL of the connection's current request.
    """

    def __init__(self, protocol: Any, lists_for: FramingLists) -> None:
        self._lists_for = lists_for
        self._framing: Framing | None = None
        self._lists: list[list[Framing]] = []
        self._request = protocol.request
        self._data_received = protocol.dataReceived
        self._connection_lost = protocol.connectionLost
        protocol.request = self._on_request
        protocol.dataReceived = self._on_data_received
        protocol.connectionLost = self._on_connection_lost

    def _on_request(self, request: Any) -> Any:
        self._framing = None
        self._lists = self._lists_for(request.absoluteURI)
        return self._request(request)

    def _on_data_received(self, data: bytes) -> None:
        if self._lists:
            self._record(data)
        self._data_received(data)

    def _on_connection_lost(self, reason: Any) -> None:
        if self._framing is not None:
            self._framing.closed(clean=_is_clean(reason))
        self._connection_lost(reason)

    def _record(self, data: bytes) -> None:
        # not earlier: Twisted repeats a request on a new connection if no byte has come
        if self._framing is None:
            self._framing = Framing()
            for framings in self._lists:
                framings.append(self._framing)
        self._framing.feed(data)


def _is_clean(reason: Any) -> bool:
    """Whether the peer closed the connection by FIN or, in TLS, by `close_notify`.

    For a reset, and for TLS without `close_notify`, Twisted's reason is ConnectionLost.
    """
    return reason.check(ConnectionDone) is not None


PATCHES = (
    Patch(
        owner=HTTP11ClientProtocol,
        methods=(
            method("request", "0ce655640fb5"),
            method("dataReceived", "db1d1880b97c"),
            method("connectionLost", "ac1ba76ca203"),
        ),
        versions="Twisted 26.10.0",
        reason="An ambiguous robots.txt must not be trusted, and only its bytes show that.",
        report="""\
For Twisted: a client cannot see that an HTTP/1.1 response was ambiguous.

`HTTP11ClientProtocol` discards bytes after the end of a response, and accepts a response with a
Content-Length beside chunks. A client that must know what a proxy or another reader may have made
of the same bytes, such as an archiver or a crawler, has no way to find out.

To see it: let a server send a response with `Content-Length: 5`, and ten bytes. `readBody` gives
five.

The pool could take the protocol's factory as an argument, where it has the attribute `_factory`.
""",
    ),
)
