"""The handler hook: code that runs just before a request reaches its download handler.

After the last middleware a request waits in its download slot's queue. A turn taken before that
would be out of date when the request is sent, and two requests that waited together would be sent
together; so turns are taken here. `slot.delay` is no substitute: a slot belongs to a host, or to
anything that a project chooses, but a delay to an origin. A delay set for one origin would hold up
all others in the slot, and their requests would wait in the slot's queue and use up
CONCURRENT_REQUESTS until the crawl stalls. DOWNLOAD_DELAY's jitter and AutoThrottle cannot undercut
a turn either.

Here the request is also compared a last time with the judged one: it can change while it waits in
the slot, after all middlewares but before the handler.

All requests pass through `Downloader.handlers`, whatever handlers a project has. One of its methods
is replaced, in one crawler's own downloader, when the spider opens.
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
_LOAD = "_get_handler"  # private to Scrapy; without it, handlers are loaded slightly later


def attach(crawler: Crawler, around: Callable[[Request, Send], Awaitable[Response]]) -> bool:
    """Send every request of the crawl by `around(request, send)`.

    Returns False if this downloader has no such hook.
    """
    engine: Any = crawler.engine
    handlers = getattr(engine.downloader, "handlers", None)
    send: Send | None = getattr(handlers, _SEND, None)
    if send is None:
        return False

    load = getattr(handlers, _LOAD, lambda _scheme: None)

    async def send_around(request: Request) -> Response:
        # before the turn is taken, because loading takes time
        handler = load(urlparse_cached(request).scheme)

        async def send_framed(request: Request) -> Response:
            frame(request, handler)
            return await send(request)

        return await around(request, send_framed)

    setattr(handlers, _SEND, send_around)
    return True
