"""The lifetime of a request in the downloader.

It begins when the engine hands the request over, and ends with a response, a refusal, a
cancellation, or a middleware that replaces the request.

Scrapy has no signal for that end: `request_left_downloader` covers only requests that have reached
their download slot, and a middleware may end a request before the guard's middleware sees it. All
requests pass through `Downloader.fetch`, so it is replaced, in one crawler's own downloader, when
the spider opens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import inlineCallbacks

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


def follow(
    crawler: Crawler,
    on_begin: Callable[[Request], None],
    on_end: Callable[[Request], None],
) -> None:
    """Call `on_begin` and `on_end` at the beginning and end of each request."""
    engine: Any = crawler.engine
    fetch = engine.downloader.fetch

    @inlineCallbacks
    def fetch_and_report(request: Request, *args: Any) -> Generator[Any, Any, Any]:
        on_begin(request)
        try:
            return (yield fetch(request, *args))
        finally:
            on_end(request)

    engine.downloader.fetch = fetch_and_report
