"""The second gate: the request that is sent is the one that was judged.

RobotsGuardMiddleware judges at 100, so that refused requests cost no further work. But later
components can still change a request in place: `DEFAULT_REQUEST_HEADERS` add a Host at 400, a
mirror rotation changes the URL. So the middleware remembers what it has judged, and this innermost
middleware compares. A request that differs, or was never judged, is judged here.

A seal is a tuple and the comparison is one look-up; nothing is awaited unless the request has
changed.

This middleware also comes after HttpCacheMiddleware, so a cached response uses no turn. It is the
first to see what comes back: a request whose turn had not come at the download handler, a response
that asks for a pause, and one whose URL was not judged.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import IgnoreRequest, NotConfigured

from robots_guard.scrapy.errors import NotYet
from robots_guard.scrapy.middleware import RobotsGuardMiddleware
from robots_guard.scrapy.options import ENABLED, is_enabled

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RobotsGuardSeal:
    """The last downloader middleware, after HttpCacheMiddleware: requests that the cache answers
    are not sent."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardSeal:
        """Create the middleware. Raises NotConfigured if the guard is off."""
        if not is_enabled(crawler.settings):
            raise NotConfigured(f"{ENABLED} is False")
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    def process_request(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """None if the request is unchanged since it was judged; else a coroutine that judges it or
        awaits its turn."""
        return self._middleware.recheck(request)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Defer a request whose turn had not come."""
        if isinstance(exception, NotYet):
            return self._middleware.defer(request, exception)
        return None

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, at once if its URL was judged, otherwise after judging it."""
        return self._middleware.receive_response(request, response)

    @cached_property
    def _middleware(self) -> RobotsGuardMiddleware:
        middleware = self._crawler.get_downloader_middleware(RobotsGuardMiddleware)
        if middleware is None:
            raise IgnoreRequest(
                "RobotsGuardMiddleware is missing: no request may be sent without a decision"
            )
        return middleware
