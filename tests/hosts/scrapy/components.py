"""Components of a user's project, for crawls to meet."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

from pydispatch.dispatcher import getAllReceivers
from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from robots_guard.audit.journal import FileJournal


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


class EndsEarly:
    """Ends requests before the guard has seen them, each in another way."""

    async def process_request(self, request):
        path = request.url.rpartition("/")[2]
        if path == "ignored":
            raise IgnoreRequest("not this one")
        if path == "cancelled":
            raise asyncio.CancelledError
        if path == "answered":
            return Response(request.url, flags=["cached"])
        if path == "replaced":
            return request.replace(url=request.url.replace("/replaced", "/instead"))
        return None


class Forgets(Scheduler):
    """Takes a request out of the queue, and does not hand it on."""

    def next_request(self):
        request = super().next_request()
        if request is not None and request.url.endswith("/forgotten"):
            return super().next_request()
        return request


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


class ShorteningHandler(HTTP11DownloadHandler):
    """Scrapy's own handler, but it loses the last byte of a robots.txt."""

    async def download_request(self, request):
        response = await super().download_request(request)
        return response.replace(body=response.body[:-1]) if request.url.endswith("/robots.txt") else response


class StopsAtHeaders:
    """Stops each download when its fields have come, and has it count as successful."""

    signal = signals.headers_received

    def __init__(self, crawler):
        crawler.signals.connect(self.stop, self.signal)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def stop(self):
        raise StopDownload(fail=False)


class StopsAtBytes(StopsAtHeaders):
    """... when the first bytes have come."""

    signal = signals.bytes_received


class OpaqueHandler(BaseDownloadHandler):
    """A download handler over a client of its own, of whose connections nothing can be seen."""

    async def download_request(self, request):
        answer = await asyncio.to_thread(urllib.request.urlopen, request.url)
        with answer:
            return Response(request.url, status=answer.status, body=answer.read())

    async def close(self):
        pass


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


class SeenScheduler(Scheduler):
    """Drops by itself what it has seen before, whatever `dont_filter` says, and remembers it in JOBDIR."""

    answer_to_seen = False

    def open(self, spider):
        self._seen = set()
        self._file = Path(self.dqdir, "seen") if self.dqdir else None
        if self._file and self._file.exists():
            self._seen.update(self._file.read_text().splitlines())
        return super().open(spider)

    def enqueue_request(self, request):
        if request.url in self._seen:
            return self.answer_to_seen
        self._seen.add(request.url)
        return super().enqueue_request(request)

    def close(self, reason):
        if self._file:
            self._file.write_text("\n".join(self._seen))
        return super().close(reason)


class SilentScheduler(SeenScheduler):
    """... and says that it has taken what it drops."""

    answer_to_seen = True


class UrlFilter(BaseDupeFilter):
    """Takes every request for seen that it has met before, and is asked only as Scrapy's scheduler asks."""

    def __init__(self):
        self._seen = set()

    def request_seen(self, request):
        seen = request.url in self._seen
        self._seen.add(request.url)
        return seen

    def log(self, request, spider):
        pass


class FollowingHandler(BaseDownloadHandler):
    """Follows redirects by itself, as a browser does. It tells where they end; by what way, if it `tells_history`."""

    tells_history = False

    def __init__(self, crawler):
        super().__init__(crawler)
        self._real = HTTP11DownloadHandler(crawler)

    async def download_request(self, request):
        asked, history = request, []
        response = await self._real.download_request(asked)
        while "Location" in response.headers:
            history.append(asked.url)
            asked = asked.replace(url=response.urljoin(response.headers["Location"].decode()))
            response = await self._real.download_request(asked)
        if self.tells_history and history:
            request.meta["redirect_urls"] = history
        return response

    async def close(self):
        await self._real.close()


class TellingHandler(FollowingHandler):
    """... and tells by what way, as scrapy-playwright does."""

    tells_history = True


class RespellingHandler(FollowingHandler):
    """Asks for what it is asked for, and spells the URL of the answer in its own way."""

    async def download_request(self, request):
        response = await super().download_request(request)
        return response.replace(url=self._respelt(request.url))

    @staticmethod
    def _respelt(url):
        scheme, _, rest = url.partition("://")
        authority, slash, target = rest.partition("/")
        host, _, port = authority.partition(":")
        number = int.from_bytes(map(int, host.split(".")), "big")
        return f"{scheme.upper()}://somebody@{number:#x}:0{port}{slash}{target}#part"


class ElsewhereHandler(BaseDownloadHandler):
    """Serves a scheme of its own with the page that a URL names behind `?`, as Scrapy's handler for s3 does."""

    async def download_request(self, request):
        return Response(request.url.partition("?")[2], body=b"page")

    async def close(self):
        pass


class GuardedBrowserHandler(FollowingHandler):
    """Goes by a proxy that refuses what is forbidden, so that it never reaches the site."""

    async def download_request(self, request):
        refused = request.url.replace("/open", "/private/x").replace("/scripted", "/private/y")
        if request.url.endswith("/open"):
            return Response(refused, status=403, headers={"Robots-Guard": "drop; reason=disallowed; id=1-1"})
        if request.url.endswith("/scripted"):
            return Response(refused, body=b'<head><meta name="robots-guard" content="drop; reason=disallowed"></head>')
        return await super().download_request(request)


class Drives:
    """A middleware that makes requests by itself in process_request, as scrapy-selenium does."""

    def process_request(self, request):
        if "/driven" not in request.url:
            return None
        with urllib.request.urlopen(request.url) as answer:
            return Response(answer.url, body=answer.read())


class Renames:
    """A middleware that gives an answer another URL, as scrapy-splash does."""

    def process_response(self, request, response):
        renamed = {"/renamed": "/private/x", "/open-renamed": "/open"}
        for name, page in renamed.items():
            if request.url.endswith(name):
                return response.replace(url=request.url.replace(name, page))
        return response


class StandsIn:
    """A middleware that has an answer of its own for what is refused."""

    def process_exception(self, request, exception):
        return Response(request.url, status=200, body=b"instead") if isinstance(exception, IgnoreRequest) else None


class ChangesLate:
    """Changes a request where it stands, when it enters its download slot: no middleware comes after that."""

    def __init__(self, crawler):
        crawler.signals.connect(self.entered, signals.request_reached_downloader)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def entered(self, request):
        if "?to=" in request.url:
            request._set_url(request.url.partition("?to=")[2])
        TurnsAside.process_request(self, request)
        SetsHost.process_request(self, request)


class BreaksTheLog:
    """Makes the audit log fail on some pages, in a way that it does not foresee."""

    @classmethod
    def from_crawler(cls, crawler):
        write = FileJournal.write

        def fail(journal, decision):
            if decision.question.target.startswith("/odd") and decision.policy is not None:
                raise ZeroDivisionError("an odd page")
            write(journal, decision)

        FileJournal.write = fail
        return cls()
