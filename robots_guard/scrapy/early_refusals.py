"""What header fields refuse before RobotsGuardMiddleware sees the response.

stop_early       stops the download when they have arrived: no byte of the body is needed.
                 `ResponseSignals.admit` refuses the response, as it does when the download was
                 not stopped: if the handler does not send `headers_received`, or its status is
                 unknown
restrict_cache   keeps it out of Scrapy's HTTP cache, which stores a response earlier, and while
                 it is still compressed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.exceptions import StopDownload

from robots_guard.scrapy.patches.response_status import note_statuses, status_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.http.headers import Headers

MayStop = Callable[["Request", "Headers", int], bool]
MayStore = Callable[["Request", "Response"], bool]


def stop_early(crawler: Crawler, may_stop: MayStop) -> None:
    """Stop each download of a crawl whose header fields and status satisfy `may_stop`."""

    def on_headers_received(headers: Headers, body_length: int | None, request: Request) -> None:
        status = status_of(request)
        if body_length == 0 or status is None:
            return
        if may_stop(request, headers, status):
            raise StopDownload(fail=False)

    note_statuses()
    crawler.signals.connect(on_headers_received, signals.headers_received, weak=False)


class RestrictedPolicy:
    """A cache policy of a project, `HTTPCACHE_POLICY`, that `may_store` restricts."""

    def __init__(self, policy: Any, may_store: MayStore) -> None:
        self._policy = policy
        self._may_store = may_store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def should_cache_response(self, response: Response, request: Request) -> bool:
        """Whether the response is stored."""
        is_stored = self._policy.should_cache_response(response, request)
        return bool(is_stored and self._may_store(request, response))


def restrict_cache(crawler: Crawler, may_store: MayStore) -> None:
    """Restrict the cache policies of a crawl that has begun."""
    engine: Any = crawler.engine
    # A project may have its own downloader.
    manager = getattr(engine.downloader, "middleware", None)
    for middleware in getattr(manager, "middlewares", ()):
        if isinstance(middleware, HttpCacheMiddleware):
            middleware.policy = RestrictedPolicy(middleware.policy, may_store)
