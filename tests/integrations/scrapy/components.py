"""Components of a user's project, to test crawls with."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from pydispatch.dispatcher import getAllReceivers
from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import DontCloseSpider, IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.robotstxt import RobotParser
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.defer import Deferred

from robots_guard.audit.write.log import FileAuditLog
from robots_guard.decisions.policy import Policy
from robots_guard.guard.guard import Guard
from robots_guard.origin import split_url
from robots_guard.scrapy.guarded_request import GuardedRequest
from robots_guard.scrapy.questions import Questions


class RefusesRobots:
    """Ignores every request for a robots.txt, the guard's fetches included."""

    def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            raise IgnoreRequest("no robots.txt here")


class CancelsRobots:
    """Cancels the task that fetches a robots.txt."""

    async def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            raise asyncio.CancelledError


class DivertsRobots:
    """Replaces a fetch of robots.txt by a request for another page."""

    async def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            return request.replace(url=request.url.replace("/robots.txt", "/private/diverted"))
        return None


class EndsEarly:
    """Ends requests in different ways before the guard has seen them."""

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
    """Takes a request out of the queue, and discards it."""

    def next_request(self):
        request = super().next_request()
        if request is not None and request.url.endswith("/forgotten"):
            return super().next_request()
        return request


class OwnRobots(RobotsTxtMiddleware):
    """A user's version of the built-in."""


class BusyHandler(BaseDownloadHandler):
    """Serves a scheme that is not governed, as Scrapy's handler for s3 does, and asks for a
    pause."""

    async def download_request(self, request):
        return Response(request.url, status=503, headers={"Retry-After": "30"})

    async def close(self):
        pass


class HangingHandler(BaseDownloadHandler):
    """A download handler that never returns a robots.txt, and applies no timeout."""

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
    """Scrapy's own handler, except that it loses the last byte of a robots.txt."""

    async def download_request(self, request):
        response = await super().download_request(request)
        return (
            response.replace(body=response.body[:-1])
            if request.url.endswith("/robots.txt")
            else response
        )


class StopsAtHeaders:
    """Stops each download after its header fields, and lets it count as successful."""

    signal = signals.headers_received

    def __init__(self, crawler):
        crawler.signals.connect(self.stop, self.signal)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def stop(self):
        raise StopDownload(fail=False)


class StopsAtBytes(StopsAtHeaders):
    """Stops each download after the first bytes of its body."""

    signal = signals.bytes_received


class FailsAtBytes(StopsAtHeaders):
    """Stops each download of a page after the first bytes of its body, so that an errback gets
    these."""

    signal = signals.bytes_received

    def stop(self, request):
        if not request.url.endswith("/robots.txt"):
            raise StopDownload(fail=True)


class OpaqueHandler(BaseDownloadHandler):
    """A download handler with its own HTTP client, whose connections cannot be watched."""

    async def download_request(self, request):
        answer = await asyncio.to_thread(urllib.request.urlopen, request.url)
        with answer:
            return Response(request.url, status=answer.status, body=answer.read())

    async def close(self):
        pass


class Downloads(FilesPipeline):
    """Stores the outcome of each file on the spider."""

    def item_completed(self, results, item, info):
        for (ok, value), url in zip(results, item["file_urls"], strict=True):
            result = {"action": "pass"} if ok else {"action": "drop", "error": str(value.value)}
            self.crawler.spider.results[url] = result
        return item


class CountsReceivers:
    """Counts the receivers of bytes_received and headers_received when a request is sent."""

    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.count, signals.request_reached_downloader)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def count(self, request):
        sender = self.crawler.signals.sender
        watched = (signals.bytes_received, signals.headers_received)
        count = sum(len(list(getAllReceivers(sender, signal))) for signal in watched)
        what = "robots.txt" if request.url.endswith("/robots.txt") else "the page"
        self.crawler.stats.set_value(f"receivers/at {what}", count)


class CountsCalls:
    """Counts the calls of functions that every request needs."""

    def __init__(self, crawler):
        self.names = {split_url.__code__: "split_url", Policy.freshness.__code__: "freshness"}
        self.stats = crawler.stats
        sys.setprofile(self.count)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def count(self, frame, event, _argument):
        if event == "call" and frame.f_code in self.names:
            self.stats.inc_value(f"calls/{self.names[frame.f_code]}")


# Methods are replaced because no result of a crawl shows in how many steps a request has passed.


class CountsShortPasses:
    """An extension that counts the requests that pass in one step."""

    @classmethod
    def from_crawler(cls, crawler):
        let_pass = GuardedRequest.let_pass

        def counted(self, *args):
            crawler.stats.inc_value("calls/passed_at_once", int(self.state == "NEW"))
            let_pass(self, *args)

        GuardedRequest.let_pass = counted
        return cls()


class PassesInSteps(CountsShortPasses):
    """The same, but none does."""

    @classmethod
    def from_crawler(cls, crawler):
        Questions.plain_question = lambda _self, _request: None
        return super().from_crawler(crawler)


class SetsHost:
    """Selects another site of the server by the Host field, after the guard has judged."""

    def process_request(self, request):
        if "hosted" in request.url:
            request.headers["Host"] = "other.test"


class ChangesUrl:
    """Changes a request's URL in place, after the guard has judged."""

    def process_request(self, request):
        if request.url.endswith("/open?turn"):
            request._set_url(request.url.replace("/open?turn", "/private/turned"))
        elif request.url.endswith("/open?inside"):
            request._set_url(request.url.replace("/open?inside", "/open/inside"))


class TurnsUrl:
    """Changes a request's URL in place to the target in its query, if that names this place."""

    place = "outside"

    def process_request(self, request):
        before, turn, target = request.url.partition(f"?{self.place}=")
        if turn:
            request._set_url("/".join(before.split("/", 3)[:3]) + target)


class TurnsUrlBetween(TurnsUrl):
    """The same, between the guard's gates."""

    place = "between"


class TurnsUrlInside(TurnsUrl):
    """The same, nearer to the download handler than the guard, which it follows in the list of
    settings."""

    place = "inside"


class TurnsUrlInTurn(TurnsUrl):
    """An extension that does the same while the request waits for its turn."""

    place = "turn"

    @classmethod
    def from_crawler(cls, crawler):
        changer, turn = cls(), Guard.turn

        async def turn_and_change(guard, decision, patience=0.0):
            granted = await turn(guard, decision, patience)
            for request in crawler.engine.downloader.active:
                changer.process_request(request)
            return granted

        Guard.turn = turn_and_change
        return changer


class ParsedUrlHandler(HTTP11DownloadHandler):
    """Downloads the URL that Scrapy has parsed, as its handler for HTTP/2 does."""

    async def download_request(self, request):
        request._set_url(urlparse_cached(request).geturl())
        return await super().download_request(request)


class CopiesFetch:
    """Requests a page by a copy of the guard's fetch of robots.txt, after that fetch."""

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


class ChangesRobotsHost:
    """Selects another site's robots.txt, by changing the guard's fetch in place."""

    def process_request(self, request):
        if request.url.endswith("/robots.txt"):
            request.headers["Host"] = "other.test"


class SeenScheduler(Scheduler):
    """Drops requests that it has seen, whatever `dont_filter` says, and remembers them in
    JOBDIR."""

    result_for_seen = False

    def open(self, spider):
        self._seen = set()
        self._file = Path(self.dqdir, "seen") if self.dqdir else None
        if self._file and self._file.exists():
            self._seen.update(self._file.read_text().splitlines())
        return super().open(spider)

    def enqueue_request(self, request):
        if request.url in self._seen:
            return self.result_for_seen
        self._seen.add(request.url)
        return super().enqueue_request(request)

    def close(self, reason):
        if self._file:
            self._file.write_text("\n".join(self._seen))
        return super().close(reason)


class SilentScheduler(SeenScheduler):
    """A SeenScheduler that returns True for the requests it drops."""

    result_for_seen = True


class UrlFilter(BaseDupeFilter):
    """Filters by URL, and is called only as Scrapy's scheduler calls it."""

    def __init__(self):
        self._seen = set()

    def request_seen(self, request):
        seen = request.url in self._seen
        self._seen.add(request.url)
        return seen

    def log(self, request, spider):
        pass


class FollowingHandler(BaseDownloadHandler):
    """Follows redirects by itself, as a browser does.

    The response has the last URL; the meta has the others if `reports_history` is set.
    """

    reports_history = False

    def __init__(self, crawler):
        super().__init__(crawler)
        self._real = HTTP11DownloadHandler(crawler)

    async def download_request(self, request):
        hop, history = request, []
        response = await self._real.download_request(hop)
        while "Location" in response.headers:
            history.append(hop.url)
            hop = hop.replace(url=response.urljoin(response.headers["Location"].decode()))
            response = await self._real.download_request(hop)
        if self.reports_history and history:
            request.meta["redirect_urls"] = history
        return response

    async def close(self):
        await self._real.close()


class ReportingHandler(FollowingHandler):
    """A FollowingHandler that reports its redirects, as scrapy-playwright does."""

    reports_history = True


class RespellingHandler(FollowingHandler):
    """Sends the request unchanged, and spells the URL of the response in another way."""

    async def download_request(self, request):
        response = await super().download_request(request)
        return response.replace(url=self._respell(request.url))

    @staticmethod
    def _respell(url):
        scheme, _, rest = url.partition("://")
        authority, slash, target = rest.partition("/")
        host, _, port = authority.partition(":")
        number = int.from_bytes(map(int, host.split(".")), "big")
        return f"{scheme.upper()}://somebody@{number:#x}:0{port}{slash}{target}#part"


class ElsewhereHandler(BaseDownloadHandler):
    """Serves a scheme of its own with the page that a URL names after `?`, as Scrapy's handler for
    s3 does."""

    async def download_request(self, request):
        return Response(request.url.partition("?")[2], body=b"page")

    async def close(self):
        pass


class GuardedBrowserHandler(FollowingHandler):
    """Imitates a proxy that refuses forbidden pages, so that no request for them reaches the
    site."""

    async def download_request(self, request):
        url = request.url.replace("/open", "/private/x").replace("/scripted", "/private/y")
        if request.url.endswith("/open"):
            return Response(
                url, status=403, headers={"Robots-Guard": "drop; reason=disallowed; id=1-1"}
            )
        if request.url.endswith("/scripted"):
            return Response(
                url,
                body=b'<head><meta name="robots-guard" content="drop; reason=disallowed"></head>',
            )
        return await super().download_request(request)


class DrivesBrowser:
    """A middleware that makes its own requests in process_request, as scrapy-selenium does."""

    def process_request(self, request):
        if "/driven" not in request.url:
            return None
        with urllib.request.urlopen(request.url) as answer:
            return Response(answer.url, body=answer.read())


class RenamesResponse:
    """A middleware that gives a response another URL, as scrapy-splash does."""

    def process_response(self, request, response):
        renamed = {"/renamed": "/private/x", "/open-renamed": "/open"}
        for name, page in renamed.items():
            if request.url.endswith(name):
                return response.replace(url=request.url.replace(name, page))
        return response


class AnswersRedirects:
    """A middleware that replaces a redirect by a page, as one that drives a browser may."""

    def process_response(self, request, response):
        if response.status == 302:
            return Response(request.url, headers={"X-Robots-Tag": "noindex"}, body=b"page")
        return response


class AnswersRefusals:
    """A middleware that returns its own response for refused requests."""

    def process_exception(self, request, exception):
        return (
            Response(request.url, status=200, body=b"instead")
            if isinstance(exception, IgnoreRequest)
            else None
        )


class ChangesLate:
    """Changes a request in place when it enters its download slot, after all middlewares."""

    def __init__(self, crawler):
        crawler.signals.connect(self.change, signals.request_reached_downloader)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def change(self, request):
        if "?to=" in request.url:
            request._set_url(request.url.partition("?to=")[2])
        ChangesUrl.process_request(self, request)
        SetsHost.process_request(self, request)


class ListensForRobots:
    """Writes into the stats what `robots_parsed` says of each site, slowly, and counts pages that did
    not wait for that."""

    def __init__(self, crawler):
        self.stats = crawler.stats
        self.heard = set()
        self.stats.set_value("heard", [])
        if hasattr(signals, "robots_parsed"):
            crawler.signals.connect(self.hear, signals.robots_parsed)
            crawler.signals.connect(self.count_early, signals.request_reached_downloader)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def hear(self, robotparser, request):
        await asyncio.sleep(0.2)
        site = request.url.rpartition("/")[0]
        self.heard.add(site)
        self.stats.get_value("heard").append(
            {
                "site": site,
                "allowed": [
                    robotparser.allowed(f"{site}/{page}", "mybot/1.0 (+http://x.test)")
                    for page in ("a", "private")
                ],
                "delay": robotparser.crawl_delay(b"mybot"),
                "sitemaps": list(robotparser.file.sitemaps),
                "is_parser": isinstance(robotparser, RobotParser),
            }
        )

    def count_early(self, request):
        site, _, page = request.url.rpartition("/")
        if page != "robots.txt" and site not in self.heard:
            self.stats.inc_value("early")


class BreaksTheLog:
    """Makes the audit log raise an unexpected exception for some pages."""

    @classmethod
    def from_crawler(cls, crawler):
        write = FileAuditLog.write

        def fail(audit_log, decision):
            if decision.question.target.startswith("/odd") and decision.policy is not None:
                raise ZeroDivisionError("an odd page")
            write(audit_log, decision)

        FileAuditLog.write = fail
        return cls()


class CountsSignals:
    """Counts in Scrapy's stats which requests each signal is about."""

    SIGNALS = (
        "request_scheduled",
        "request_dropped",
        "request_reached_downloader",
        "request_left_downloader",
        "headers_received",
        "bytes_received",
        "response_downloaded",
        "response_received",
    )

    def __init__(self, crawler):
        self._stats = crawler.stats
        for name in self.SIGNALS:
            receiver = self._receiver(name)
            crawler.signals.connect(receiver, getattr(signals, name), weak=False)

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def _receiver(self, name):
        def count(request):
            self._stats.inc_value(f"seen/{name}{urlsplit(request.url).path}")

        return count


class FailsAtHeaders(StopsAtHeaders):
    """Stops each download after its header fields, and lets it count as failed."""

    def stop(self):
        raise StopDownload(fail=True)


class ClosesAtFirst:
    """Closes the spider at the first response."""

    def __init__(self, crawler):
        self._engine_of = lambda: crawler.engine
        crawler.signals.connect(self._close, signals.response_received)

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def _close(self):
        if not self._engine_of()._slot.closing:
            deferred_from_coro(self._engine_of().close_spider_async(reason="enough"))


class ClosesAtDownload(ClosesAtFirst):
    def __init__(self, crawler):
        self._engine_of = lambda: crawler.engine
        crawler.signals.connect(self._close, signals.request_reached_downloader)


class Minimal:
    """A scheduler with what Scrapy requires, and a method and an attribute of its own."""

    from_crawler = classmethod(lambda cls, crawler: cls(crawler.stats))

    def __init__(self, stats):
        self._stats, self._waiting, self.limit = stats, [], 0

    def has_pending_requests(self):
        return bool(self._waiting)

    def enqueue_request(self, request):
        self._waiting.append(request)
        return True

    def next_request(self):
        self._stats.set_value("minimal/limit", self.limit)
        return self._waiting.pop() if self._waiting else None

    def pause(self):
        self._stats.inc_value("minimal/pauses")


class UsesScheduler:
    """Uses the methods and attributes of the project's own scheduler."""

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def __init__(self, crawler):
        self._crawler = crawler
        crawler.signals.connect(self._use, signals.spider_opened)

    def _use(self):
        scheduler = self._crawler.engine._slot.scheduler
        scheduler.pause()
        scheduler.limit = 7


class OwnRequest(Request):
    """A project's request: its constructor takes another one, so that `copy` cannot make it, and it
    has an attribute that `copy` does not know."""

    def __init__(self, like):
        super().__init__(
            like.url, callback=like.callback, errback=like.errback, cb_kwargs=like.cb_kwargs
        )
        self.wait_time = 5


class YieldsOwnRequests:
    """A spider middleware that makes a project's own requests of a spider's, and counts those that
    come back with their responses."""

    from_crawler = classmethod(lambda cls, crawler: cls(crawler.stats))

    def __init__(self, stats):
        self._stats, self._own = stats, set()

    async def process_start(self, start):
        async for request in start:
            own = OwnRequest(request)
            self._own.add(own)
            yield own

    def process_spider_input(self, response):
        if response.request in self._own and response.request.wait_time == 5:
            self._stats.inc_value("own_requests")


class CrawlsWhenIdle:
    """Adds a request whenever the spider is idle, twice, as a spider that reads a queue does."""

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def __init__(self, crawler):
        self._crawler, self._left = crawler, 2
        crawler.signals.connect(self._add, signals.spider_idle)

    def _add(self, spider):
        if self._left:
            self._left -= 1
            request = spider.make_request(
                f"{spider.site}/{self._left}", {"url": f"{spider.site}/{self._left}"}
            )
            self._crawler.engine.crawl(request)
            raise DontCloseSpider
