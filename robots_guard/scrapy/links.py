"""The spider middleware: it keeps a spider from following links that a page forbids to follow, and
drops the items of pages that may be used for their links only.

It is nearest to the spider, at 910, so that no other spider middleware counts what it drops. Start
requests do not pass here, and neither do requests of pipelines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from robots_guard.decisions.signal_settings import Use
from robots_guard.errors import SettingsError
from robots_guard.guard.fetch.content_coding import Undecodable, decoder
from robots_guard.protocol.html.links import absolute_url
from robots_guard.scrapy.errors import abort
from robots_guard.scrapy.middleware import RobotsGuardMiddleware
from robots_guard.scrapy.options import can_enforce_signals, is_enabled, options_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from robots_guard.scrapy.pages import PageLinks

_GZIP = b"\x1f\x8b"
_HEAD = 4096  # bytes of a document in which its root element must begin
_SITEMAP = re.compile(rb"<(?:\w+:)?(?:urlset|sitemapindex)[\s>]")


class RobotsGuardLinks(BaseSpiderMiddleware):
    """Drops requests for links marked nofollow, and items of follow-only pages."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardLinks:
        """Create the middleware. Raises NotConfigured if no signals can be enforced."""
        try:
            if not is_enabled(crawler.settings) or not can_enforce_signals(
                options_of(crawler.settings).settings
            ):
                raise NotConfigured
        except SettingsError as error:
            abort(error)
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._guard: RobotsGuardMiddleware | None = None
        crawler.signals.connect(self._spider_opened, signals.spider_opened)

    def _spider_opened(self) -> None:
        self._guard = self.crawler.get_downloader_middleware(RobotsGuardMiddleware)
        if self._guard is not None:
            self._guard.responses.signals.can_drop_items = True

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        """The request, or None if its page forbids following that link."""
        links = self._links_of(response)
        if links is None or self._guard is None or response is None:
            return request
        objection = _objection(links, request, response)
        if objection and not self._guard.responses.signals.may_follow(request, links, objection):
            return None
        return request

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        """The item, or None if its page may be used for its links only."""
        links = self._links_of(response)
        if links is None or links.verdict is None or not links.verdict.is_follow_only:
            return item
        stats: Any = self.crawler.stats
        stats.inc_value("robots_guard/signals/items_dropped")
        return None

    def _links_of(self, response: Response | None) -> PageLinks | None:
        if response is None or self._guard is None:
            return None
        return self._guard.responses.signals.links_of(response)


def _objection(links: PageLinks, request: Request, response: Response) -> str:
    """Why a link is not to be followed, in words; "" if it may be."""
    target = absolute_url(request.url)
    if target is None or target == absolute_url(response.url):
        return ""
    uses = links.verdict.uses if links.verdict is not None else None
    denial = uses.denial_of(Use.FOLLOW.value) if uses is not None else None
    if denial is not None and not _is_sitemap(response):
        return f"{denial.signal} ({denial.place}) of the page says {denial.raw}"
    if links.page is not None and not links.page.may_follow(request.url):
        return "all links to it on the page have rel=nofollow"
    return ""


def _is_sitemap(response: Response) -> bool:
    """Whether a response lists URLs, as sitemaps and robots.txt do, instead of linking to them."""
    if urlsplit(response.url).path == "/robots.txt":
        return True
    start = response.body[:_HEAD]
    if start.startswith(_GZIP):
        unpacker = decoder("gzip", _HEAD)
        try:
            unpacker.feed(start)
        except Undecodable:
            return False
        start = bytes(unpacker.body)
    is_html = b"html" in (response.headers.get("Content-Type") or b"").lower()
    return not is_html and _SITEMAP.search(start) is not None
