"""Received bytes: what an origin sends in answer to a fetch is passed to a `Framing`, as it came.

Scrapy's own HTTP/1.1 handler uses Twisted's client, which skips trailing bytes and accepts much that is ambiguous; no
response and no signal shows it. So each new connection of that handler's pool is watched while it carries a fetch of
the guard; for all other requests nothing changes.

A handler that passes requests to such a handler is watched there. Any other kind has no such pool, and nothing of its
connections is seen: its answer to a fetch counts only if it came over HTTP/2, whose frames delimit it (RFC 9113
section 8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


def handler_of(downloader: Any, scheme: str) -> Any:
    """The download handler of a scheme; None if there is none, or it cannot be asked for."""
    load = getattr(getattr(downloader, "handlers", None), "_get_handler", lambda _scheme: None)
    return load(scheme)


def show(downloader: Any, scheme: str, wanted: Wanted) -> None:
    """Show the answers that this scheme's handler receives, from its next connection on. Call this before its first,
    because a connection is used for many requests."""
    for pool in _pools(handler_of(downloader, scheme)):
        plain: Any = pool._factory  # noqa: SLF001  (the pool has no option for it)
        if not isinstance(plain, _Watching):
            watching: Any = _Watching(plain, wanted)
            pool._factory = watching  # noqa: SLF001  (as above)


def _pools(handler: Any, depth: int = 3) -> Iterator[Any]:
    """The pools of a handler, and of the handlers to which it may pass a request."""
    pool = getattr(handler, "_pool", None)
    if isinstance(pool, HTTPConnectionPool):
        yield pool
    for part in getattr(handler, "__dict__", {}).values() if depth else ():
        if hasattr(part, "download_request"):
            yield from _pools(part, depth - 1)


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
