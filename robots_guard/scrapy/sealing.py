"""The second gate: what leaves is what was judged.

The guard judges at 100, so that what it refuses costs nothing more. But components behind it can still change a
request where it stands: `DEFAULT_REQUEST_HEADERS` add a Host at 400, a rotation of mirrors changes the URL. So what
was judged is remembered, and the innermost middleware compares. What differs, or was never judged, is judged here.

A seal is a tuple and the comparison costs a look-up; nothing is awaited unless something has changed.

Behind HttpCacheMiddleware too, so a cached answer costs no turn; and the first to see what comes back: a request that
was refused on the wire because it was not its turn, a response that asks for time, and one that does not answer what
was judged.
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
    """Stands behind all other downloader middlewares, also HttpCacheMiddleware: what the cache answers is not sent."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardSeal:
        """Off where the guard is."""
        if not is_enabled(crawler.settings):
            raise NotConfigured(f"{ENABLED} is False")
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    def process_request(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """None at once for what was judged as it stands; else the guard's answer to it, or the wait for its turn."""
        return self._middleware.before_slot(request)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Put off what had no turn."""
        return self._middleware.put_off(request, exception) if isinstance(exception, NotYet) else None

    def process_response(self, request: Request, response: Response) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response: at once if it answers what was judged, otherwise when its URL has been judged."""
        return self._middleware.answered(request, response)

    @cached_property
    def _middleware(self) -> RobotsGuardMiddleware:
        guard = self._crawler.get_downloader_middleware(RobotsGuardMiddleware)
        if guard is None:
            raise IgnoreRequest("robots_guard's middleware is missing: nothing may leave unjudged")
        return guard
