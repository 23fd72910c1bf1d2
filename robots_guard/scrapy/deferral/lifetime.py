"""The lifetime of a request in the downloader: it begins when the engine hands the request over, and ends however the
request ends there: by an answer, a refusal, a cancellation, or a middleware that puts another request in its place.

Scrapy has no signal for that end: `request_left_downloader` covers only requests that have reached their download
slot, and a middleware may end a request before the guard's sees it. `Downloader.fetch` is what all requests go through.
It is replaced, in one crawler's own downloader, when the spider opens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import inlineCallbacks

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


def follow(crawler: Crawler, begun: Callable[[Request], None], ended: Callable[[Request], None]) -> None:
    """Call `begun` and `ended` at the beginning and end of each request."""
    engine: Any = crawler.engine
    fetch = engine.downloader.fetch

    @inlineCallbacks
    def fetch_followed(request: Request, *args: Any) -> Generator[Any, Any, Any]:
        begun(request)
        try:
            return (yield fetch(request, *args))
        finally:
            ended(request)

    engine.downloader.fetch = fetch_followed
