"""Watched connections: the bytes that an origin sends in response to a fetch are also passed to a
`Framing`.

Scrapy's own HTTP/1.1 handler uses Twisted's client, which skips trailing bytes and accepts many
ambiguous messages; no response and no signal shows it. So each new connection of that handler's
pool is watched while it carries a fetch of the guard; other requests are not affected.

If a handler passes requests to such a handler, that one is watched. Any other kind has no such
pool, and its connections cannot be observed: its response to a fetch counts only if it came over
HTTP/2, whose frames delimit it (RFC 9113 section 8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urldefrag

from twisted.internet.error import ConnectionDone
from twisted.web.client import URI, HTTPConnectionPool

from robots_guard.fetch.framing import Framing

#: Returns, for a URL, the lists that receive the framings of responses to requests for it.
FramingLists = Callable[[bytes | None], list[list[Framing]]]


def twisted_url(url: str) -> bytes:
    """A URL as Twisted writes it in a request."""
    parsed: Any = URI  # untyped
    written: bytes = parsed.fromBytes(urldefrag(url)[0].encode()).toBytes()
    return written


def handler_of(downloader: Any, scheme: str) -> Any:
    """The download handler of a scheme; None if there is none, or if this Scrapy gives no access to
    it."""
    load = getattr(getattr(downloader, "handlers", None), "_get_handler", lambda _scheme: None)
    return load(scheme)


def watch(downloader: Any, scheme: str, lists_for: FramingLists) -> None:
    """Watch the connections of a scheme's handler, from its next one on.

    Call this before the handler's first connection, because a connection carries many requests.
    """
    for pool in _pools(handler_of(downloader, scheme)):
        factory: Any = pool._factory  # noqa: SLF001  (the pool has no option for it)
        if not isinstance(factory, _WatchingFactory):
            watching: Any = _WatchingFactory(factory, lists_for)
            pool._factory = watching  # noqa: SLF001  (as above)


def _pools(handler: Any, depth: int = 3) -> Iterator[Any]:
    """The connection pools of a handler, and of the handlers to which it may pass a request."""
    pool = getattr(handler, "_pool", None)
    if isinstance(pool, HTTPConnectionPool):
        yield pool
    for part in getattr(handler, "__dict__", {}).values() if depth else ():
        if hasattr(part, "download_request"):
            yield from _pools(part, depth - 1)


def objection(framings: Iterable[Framing], *, truncated: bool, content: int) -> str:
    """Why a response cannot be trusted, or "".

    A spider's own request for the same URL looks like the guard's: a fault in its response counts,
    but not that it may be incomplete so far, or have another length.
    """
    objections = [framing.objection(truncated=truncated, content=content) for framing in framings]
    faults = [framing.fault for framing in framings if framing.fault]
    if "" in objections and not faults:
        return ""
    return next(iter(faults or objections), "")


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
