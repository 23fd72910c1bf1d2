"""The policy of Scrapy's HTTP cache, restricted: it stores no response whose site forbids that.

A response is stored before RobotsGuardMiddleware sees it, and while it is still compressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

MayStore = Callable[["Request", "Response"], bool]


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
    manager = getattr(
        engine.downloader, "middleware", None
    )  # a project may have its own downloader
    for middleware in getattr(manager, "middlewares", ()):
        if isinstance(middleware, HttpCacheMiddleware):
            middleware.policy = RestrictedPolicy(middleware.policy, may_store)
