"""Components of a user's project, for crawls to meet."""

from __future__ import annotations

import asyncio

from pydispatch.dispatcher import getAllReceivers
from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


class RefusesRobots:
    """Ignores every request for a robots.txt, ours too."""

    def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            raise IgnoreRequest("no robots.txt here")


class CancelsRobots:
    """Cancels the very task that fetches a robots.txt."""

    async def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            raise asyncio.CancelledError


class DivertsRobots:
    """Turns a fetch of robots.txt into one of something else."""

    async def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            return request.replace(url=request.url.replace("/robots.txt", "/private/diverted"))
        return None


class OwnRobots(RobotsTxtMiddleware):
    """A user's version of the built-in."""


class BusyHandler(BaseDownloadHandler):
    """Serves a scheme that is not governed, as Scrapy's handler for s3 does: what it reaches asks for time."""

    async def download_request(self, request):
        return Response(request.url, status=503, headers={"Retry-After": "30"})

    async def close(self):
        pass


class HangingHandler(BaseDownloadHandler):
    """A download handler that never answers on robots.txt, and keeps no time."""

    def __init__(self, crawler):
        super().__init__(crawler)
        self._real = HTTP11DownloadHandler(crawler)

    async def download_request(self, request):
        if request.url.endswith("/robots.txt"):
            await maybe_deferred_to_future(Deferred())
        return await self._real.download_request(request)

    async def close(self):
        await self._real.close()


class FollowingHandler(BaseDownloadHandler):
    """A download handler that follows redirects by itself, as a browser does."""

    def __init__(self, crawler):
        super().__init__(crawler)
        self._real = HTTP11DownloadHandler(crawler)

    async def download_request(self, request):
        response = await self._real.download_request(request)
        while location := response.headers.get("Location"):
            response = await self._real.download_request(request.replace(url=location.decode()))
        return response

    async def close(self):
        await self._real.close()


class Downloads(FilesPipeline):
    """Files whose outcome is kept on the spider."""

    def item_completed(self, results, item, info):
        for (ok, value), url in zip(results, item["file_urls"], strict=True):
            kept = {"action": "pass"} if ok else {"action": "drop", "error": str(value.value)}
            self.crawler.spider.results[url] = kept
        return item


class CountsReceivers:
    """Notes how many listen to bytes_received and headers_received when a request leaves."""

    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.leaves, signals.request_reached_downloader)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def leaves(self, request):
        sender = self.crawler.signals.sender
        received = (signals.bytes_received, signals.headers_received)
        count = sum(len(list(getAllReceivers(sender, signal))) for signal in received)
        what = "robots.txt" if request.url.endswith("/robots.txt") else "the page"
        self.crawler.stats.set_value(f"receivers/at {what}", count)


class SetsHost:
    """Has another site of the server answer, after we have judged."""

    def process_request(self, request):
        if "hosted" in request.url:
            request.headers["Host"] = "other.test"


class TurnsAside:
    """Changes a request where it stands, after we have judged."""

    def process_request(self, request):
        if request.url.endswith("/open?turn"):
            request._set_url(request.url.replace("/open?turn", "/private/turned"))
        elif request.url.endswith("/open?inside"):
            request._set_url(request.url.replace("/open?inside", "/open/inside"))


class CopiesFetch:
    """Asks for a page by a copy of our own fetch of robots.txt, when that is over."""

    def __init__(self, crawler):
        self._crawler = crawler
        self._done = False

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_response(self, request, response):
        if request.url.endswith("/robots.txt") and not self._done:
            self._done = True
            page = request.url.replace("/robots.txt", "/private/copied")
            self._crawler.engine.crawl(request.replace(url=page, callback=None, dont_filter=True))
        return response


class LeadsRobotsAstray:
    """Has another site's robots.txt answer for ours, and changes the request where it stands."""

    def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            request.headers["Host"] = "other.test"
