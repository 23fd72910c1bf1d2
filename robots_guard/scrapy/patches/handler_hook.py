"""`DownloadHandlers.download_request_async` passes each request to its download handler.

All requests pass through it, whatever handlers a project has. It is replaced in one crawler's own
downloader, when the spider opens, so that code of the guard runs just before the handler.

After the last middleware a request waits in its download slot's queue. A turn taken before that
would be out of date when the request is sent, and two requests that waited together would be sent
together; so turns are taken here. `slot.delay` is no substitute: a slot belongs to a host, or to
anything that a project chooses, but a delay to an origin. A delay set for one origin would hold up
all others in the slot, and their requests would wait in the slot's queue and use up
CONCURRENT_REQUESTS until the crawl stalls. DOWNLOAD_DELAY's jitter and AutoThrottle cannot undercut
a turn either.

Here the request is also compared a last time with the judged one: it can change while it waits in
the slot, after all middlewares but before the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.utils.httpobj import urlparse_cached

from robots_guard.gateway.patch import Patch, method
from robots_guard.scrapy.written import frame

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


PATCHES = (
    Patch(
        owner=DownloadHandlers,
        methods=(method(_SEND, "9fd46ac136e9"),),
        versions="Scrapy 2.14.0 to 2.19.0",
        reason="A request waits in its slot after the last middleware, where it can change.",
        report="""\
A hook between the download slot and the download handler.

After the last downloader middleware, a request waits in the queue of its slot. An extension that
paces requests, signs them with a time, or checks what is finally sent has no place to do so.
`request_reached_downloader` is sent before that wait, and its receivers can neither wait nor
refuse.

To see it: send many requests to one slot with DOWNLOAD_DELAY = 1, and compare the times of
`process_request` of the last middleware with those at the server.

A documented method of the downloader that a subclass may override (setting DOWNLOADER), or an
asynchronous signal, would do.
""",
    ),
)
