"""The wire: the last place a request passes before its download handler has it.

Between the last middleware and the wire lies the download slot's queue, where a request may wait for others of its
slot. A turn taken before that would be out of date when the request leaves, and two requests that waited together
would leave together; so turns are taken here. `slot.delay` would not do: a slot belongs to a host, or to whatever a
project chooses, and a delay to an origin. Raised for one origin, it delays all others of the slot, and their requests
wait in the slot's queue, where they use up CONCURRENT_REQUESTS until the crawl stalls. DOWNLOAD_DELAY's jitter and
AutoThrottle cannot undercut a turn either.

It is also where a request is compared a last time with what was judged: a change while it waits in the slot comes after
all middlewares, but still before the handler.

`Downloader.handlers` is what all requests go through, whatever handlers a project has. One method of it is replaced, in
one crawler's own downloader, when the spider opens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scrapy.utils.httpobj import urlparse_cached

from robots_guard.scrapy.framing import frame

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

Send = Callable[["Request"], Awaitable["Response"]]
_SEND = "download_request_async"
_LOAD = "_get_handler"  # private to Scrapy; without it, handlers are loaded a little later


def attach(crawler: Crawler, around: Callable[[Request, Send], Awaitable[Response]]) -> bool:
    """Have every request of the crawl sent by `around(request, send)`. False: this downloader has no such place."""
    engine: Any = crawler.engine
    handlers = getattr(engine.downloader, "handlers", None)
    send: Send | None = getattr(handlers, _SEND, None)
    if send is None:
        return False

    load = getattr(handlers, _LOAD, lambda _scheme: None)

    async def send_around(request: Request) -> Response:
        handler = load(urlparse_cached(request).scheme)  # its first use takes time: before the turn, not after it

        async def send_framed(request: Request) -> Response:
            frame(request, handler)
            return await send(request)

        return await around(request, send_framed)

    setattr(handlers, _SEND, send_around)
    return True
