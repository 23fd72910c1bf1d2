"""Received bytes: what an origin sends in answer to a fetch is passed to a `Framing`, as it came.

Scrapy's own HTTP/1.1 handler uses Twisted's client, which skips trailing bytes and accepts much that is ambiguous; no
response and no signal shows it. So each new connection of that handler's pool is watched while it carries a fetch of
the guard; for all other requests nothing changes.

A handler of another kind has no such pool. HTTP/2, and Scrapy's handlers for other libraries, are strict by themselves;
what a browser skips is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urldefrag

from twisted.internet.error import ConnectionDone
from twisted.web.client import URI, HTTPConnectionPool

from robots_guard.fetch.framing import Framing

#: Where to leave the framings of answers to requests for a URL: in each of these lists.
Wanted = Callable[[bytes | None], list[list[Framing]]]


def url_written(url: str) -> bytes:
    """A URL as Twisted writes it in a request."""
    parsed: Any = URI  # which has no types
    written: bytes = parsed.fromBytes(urldefrag(url)[0].encode()).toBytes()
    return written


def show(downloader: Any, scheme: str, wanted: Wanted) -> None:
    """Show the answers that this scheme's handler receives, from its next connection on. Call this before its first,
    because a connection is used for many requests."""
    load = getattr(getattr(downloader, "handlers", None), "_get_handler", lambda _scheme: None)
    pool: Any = getattr(load(scheme), "_pool", None)
    if not isinstance(pool, HTTPConnectionPool):
        return
    plain: Any = pool._factory  # noqa: SLF001  (the pool has no option for it)
    if not isinstance(plain, _Watching):
        watching: Any = _Watching(plain, wanted)
        pool._factory = watching  # noqa: SLF001  (as above)


def objection(framings: Iterable[Framing], *, truncated: bool, content: int) -> str:
    """Why an answer cannot be relied on, or "". A spider's own request for the same URL looks like the guard's: a fault
    in its answer counts, but not that it may still be under way, or of another length."""
    objections = [framing.objection(truncated=truncated, content=content) for framing in framings]
    faults = [framing.fault for framing in framings if framing.fault]
    if "" in objections and not faults:
        return ""
    return next(iter(faults or objections), "")


class _Watching:
    """What a pool makes connections by, Twisted's own or Scrapy's: the same, and each connection is watched."""

    def __init__(self, plain: Callable[..., Any], wanted: Wanted) -> None:
        self._plain = plain
        self._wanted = wanted

    def __call__(self, *args: Any) -> Any:
        factory = self._plain(*args)
        build = factory.buildProtocol

        def build_watched(addr: Any) -> Any:
            protocol = build(addr)
            _Watch(protocol, self._wanted)
            return protocol

        factory.buildProtocol = build_watched
        return factory


class _Watch:
    """Shows what one connection receives, and how it ends, before it reads it, if its present request is for a wanted
    URL."""

    def __init__(self, protocol: Any, wanted: Wanted) -> None:
        self._wanted = wanted
        self._framing: Framing | None = None
        self._places: list[list[Framing]] = []
        self._send, self._receive, self._lose = protocol.request, protocol.dataReceived, protocol.connectionLost
        protocol.request, protocol.dataReceived, protocol.connectionLost = self._request, self._received, self._lost

    def _request(self, request: Any) -> Any:
        self._framing, self._places = None, self._wanted(request.absoluteURI)
        return self._send(request)

    def _received(self, data: bytes) -> None:
        if self._places:
            self._show(data)
        self._receive(data)

    def _lost(self, reason: Any) -> None:
        if self._framing is not None:
            self._framing.closed(clean=_is_clean(reason))
        self._lose(reason)

    def _show(self, data: bytes) -> None:
        if self._framing is None:  # only now: Twisted repeats a request on a new connection if nothing at all came
            self._framing = Framing()
            for place in self._places:
                place.append(self._framing)
        self._framing.feed(data)


def _is_clean(reason: Any) -> bool:
    """Whether a connection was lost by the peer's FIN or, in TLS, its `close_notify`: for a reset, and for TLS without
    that, Twisted's reason is ConnectionLost."""
    return reason.check(ConnectionDone) is not None
