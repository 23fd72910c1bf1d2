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

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urldefrag

from twisted.web.client import URI, HTTPConnectionPool

from robots_guard.guard.fetch.framing import Framing
from robots_guard.scrapy.patches.connection_bytes import FramingLists, watch_pool


def twisted_url(url: str) -> bytes:
    """A URL as Twisted writes it in a request."""
    parsed: Any = URI  # untyped
    written: bytes = parsed.fromBytes(urldefrag(url)[0].encode()).toBytes()
    return written


#: In the place of a download handler that a project's own downloader has.
UNKNOWN = object()


def handler_of(downloader: Any, scheme: str) -> Any:
    """The download handler of a scheme, as Scrapy has loaded it; None if there is none, so that no
    request leaves; UNKNOWN if this downloader gives no access to it."""
    load = getattr(getattr(downloader, "handlers", None), "_get_handler", lambda _scheme: UNKNOWN)
    return load(scheme)


def watch(downloader: Any, scheme: str, lists_for: FramingLists) -> None:
    """Watch the connections of a scheme's handler, from its next one on.

    Call this before the handler's first connection, because a connection carries many requests.
    """
    for pool in _pools(handler_of(downloader, scheme)):
        watch_pool(pool, lists_for)


def _pools(handler: Any, depth: int = 3) -> Iterator[Any]:
    """The connection pools of a handler, and of the handlers to which it may pass a request.

    `depth` is how many handlers may pass the request on, one to the next.
    """
    pool = getattr(handler, "_pool", None)
    if isinstance(pool, HTTPConnectionPool):
        yield pool
    if not depth:
        return
    for part in getattr(handler, "__dict__", {}).values():
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
