"""Received bytes: what an origin sends in answer to a fetch is shown to a `Framing`, as it came.

Scrapy's own handler for HTTP/1.1 rests on Twisted's client, which skips the bytes behind an answer and reads much that
is in doubt; no response and no signal tells of it. So the connections of that handler's pool are made of a class that
looks for answers to our fetches, and is Twisted's own for all other requests.

A handler of another kind has no such pool. HTTP/2, and the handlers that Scrapy has for other libraries, read strictly
by themselves; what a browser skips is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

from scrapy.utils.httpobj import urlparse_cached
from twisted.web._newclient import HTTP11ClientProtocol
from twisted.web.client import URI, HTTPConnectionPool, _HTTP11ClientFactory

from robots_guard.fetch.framing import Framing

if TYPE_CHECKING:
    from scrapy import Request

#: Where to leave the framings of answers to requests for a URL: in each of these lists.
Wanted = Callable[[bytes | None], list[list[Framing]]]


def url_written(url: str) -> bytes:
    """A URL as Twisted spells that of a request."""
    parsed: Any = URI  # which has no types
    written: bytes = parsed.fromBytes(urldefrag(url)[0].encode()).toBytes()
    return written


def show(downloader: Any, request: Request, wanted: Wanted) -> None:
    """Have the answers shown of the handler that is going to send this request, from its next connection on."""
    load = getattr(getattr(downloader, "handlers", None), "_get_handler", lambda _scheme: None)
    pool = getattr(load(urlparse_cached(request).scheme), "_pool", None)
    if not isinstance(pool, HTTPConnectionPool) or pool._factory is not _HTTP11ClientFactory:  # noqa: SLF001
        return

    class Factory(_HTTP11ClientFactory):
        noisy = False

        def buildProtocol(self, addr: Any) -> HTTP11ClientProtocol:  # noqa: ARG002, N802  (Twisted's)
            return _Shown(self._quiescentCallback, wanted)

    pool._factory = Factory  # noqa: SLF001  (it has no option for it)


def objection(framings: Iterable[Framing], *, truncated: bool) -> str:
    """Why an answer is not to be relied on, or "". A spider's own request for the same URL cannot be told from ours:
    what is wrong with its answer counts, but not that it may still be under way."""
    objections = [framing.objection(truncated=truncated) for framing in framings]
    faults = [framing.fault for framing in framings if framing.fault]
    if "" in objections and not faults:
        return ""
    return next(iter(faults or objections), "")


class _Shown(HTTP11ClientProtocol):
    """One connection. It shows what it receives, before it reads it, if the present request is for a wanted URL."""

    _framing: Framing | None = None

    def __init__(self, quiescent: Any, wanted: Wanted) -> None:
        super().__init__(quiescent)  # type: ignore[no-untyped-call]
        self._wanted = wanted
        self._places: list[list[Framing]] = []

    def request(self, request: Any) -> Any:
        self._framing, self._places = None, self._wanted(request.absoluteURI)
        return super().request(request)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802  (Twisted's)
        if self._places:
            self._show(data)
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def _show(self, data: bytes) -> None:
        if self._framing is None:  # only now: Twisted repeats a request on a new connection if nothing at all came
            self._framing = Framing()
            for place in self._places:
                place.append(self._framing)
        self._framing.feed(data)
