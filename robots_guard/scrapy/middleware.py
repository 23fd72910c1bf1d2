"""The downloader middlewares: they turn requests into questions, and verdicts into Scrapy's results.

RobotsGuardMiddleware takes the priority of Scrapy's RobotsTxtMiddleware, 100, so that refused
requests cost no further work. Requests that bypass the scheduler also pass here (media,
`engine.download_async`), and a request that a later component replaces is processed again.

RobotsGuardSeal is the last, after HttpCacheMiddleware, so a cached response uses no turn. Components
between the two can still change a request in place: `DEFAULT_REQUEST_HEADERS` add a Host at 400, a
mirror rotation changes the URL. A request that differs from the judged one is judged again there;
and once more in the handler hook, after it has waited in its slot.

    `guarded_request`   the states of a request, through all of these places
    `crawl_guard`       the decision on it
    `enforcer`          what a decision does to it
    `deferral.pacing`   its turn, if the site requires a delay
    `response_gate`     what comes back
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest, NotConfigured
from scrapy.http import Response

from robots_guard.decisions.verdict import Action, Decision
from robots_guard.errors import SettingsError
from robots_guard.scrapy.crawl_guard import CrawlGuard
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.enforcer import RequestEnforcer
from robots_guard.scrapy.errors import NotYet, abort
from robots_guard.scrapy.guarded_request import HISTORY, GuardedRequest, restore, seal_of
from robots_guard.scrapy.options import ENABLED, ScrapyOptions, is_enabled, options_of
from robots_guard.scrapy.patches.handler_hook import Send, attach
from robots_guard.scrapy.refusals import RefusalLog
from robots_guard.scrapy.response_gate import ResponseGate
from robots_guard.scrapy.runtime import ScrapyRuntime, scrapy_runtime

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

_PASS = Action.PASS  # Python 3.11 takes longer to look up a member than a global


class RobotsGuardMiddleware:
    """Obeys robots.txt. `dont_obey_robotstxt` in a request's meta exempts it, and that is recorded,
    unless ROBOTS_GUARD_META_BYPASS is "deny"."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardMiddleware:
        """Create the middleware. Ends the process if the guard cannot be started."""
        try:
            if not is_enabled(crawler.settings):
                raise NotConfigured(f"{ENABLED} is False")
            return cls(crawler, options_of(crawler.settings), scrapy_runtime())
        except SettingsError as error:
            abort(error)

    def __init__(self, crawler: Crawler, options: ScrapyOptions, runtime: ScrapyRuntime) -> None:
        self._crawler = crawler
        self._gate = OriginGate.of(crawler)
        self._requests = self._gate.requests
        self._crawl = CrawlGuard(crawler, options, runtime, self._gate)
        self._refusals = RefusalLog(crawler)
        self._pacing = Pacing(
            crawler, self._crawl.guard, self._gate, runtime, hold_max=options.settings.hold_max
        )
        self._enforcer = RequestEnforcer(
            crawler, self._crawl, self._pacing, self._refusals, max_idle=options.max_idle
        )
        self.responses = ResponseGate(options.settings, self._crawl, self._pacing, self._refusals)
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        # downloads have ended, but their policies may not be on disk yet
        crawler.signals.connect(self._crawl.close, signals.engine_stopped)

    # -- a request ---------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | Response | None:
        """Pass the request (None), give it back to the scheduler (itself), answer it (a robots.txt
        that the guard has), or refuse it (RobotsDisallowed, RobotsDeferred)."""
        guarded = self._requests.begin(request)
        if self._gate.needs_policy(request):
            return self._crawl.defer_for_policy(request)
        decision = self._crawl.peek(request)
        if (
            decision is not None
            and decision.verdict.action is _PASS
            and self._crawl.is_announced(decision)
        ):
            guarded.let_pass(seal_of(request), decision)
            self._pacing.note_pass(request, guarded)
            return None
        return await self._process(request, guarded, decision)

    async def _process(
        self, request: Request, guarded: GuardedRequest, decision: Decision | None
    ) -> Request | Response | None:
        """Process a request that does not pass at once. `decision` is None if there is none yet."""
        result: Request | Response | None = None
        has_passed = False
        try:
            guarded.deferral = restore(request)
            if not self._crawl.fetcher.owns(request):
                result = await self._judge(request, guarded, decision)
                result = result or await self._crawl.shared_response(request)
            has_passed = result is None
            return result
        finally:
            if not has_passed:  # if it has, `Pacing.note_pass` or the handler hook releases it
                self._gate.release(request)

    async def _judge(
        self,
        request: Request,
        guarded: GuardedRequest,
        decision: Decision | None = None,
        *,
        is_in_hook: bool = False,
    ) -> Request | None:
        """Judge a request, unless there is a decision already, and let it pass as it was then.

        Returns the request if it has to be rescheduled because it may not be made yet. In the
        handler hook, which cannot return it, it raises NotYet.
        """
        seal = seal_of(request)
        guarded.refuse()  # until it passes
        if decision is None:
            decision = await self._crawl.decide(request, guarded.deferral)
        else:
            await self._crawl.announce(request, decision.policy)
        if decision is not None and decision.verdict.action is not Action.PASS:
            if is_in_hook and decision.verdict.action is Action.DEFER:
                raise NotYet(decision)
            returned = self._enforcer.send_back(request, guarded, decision)
            if returned is not None:
                return returned
            decision = await self._enforcer.wait_and_rejudge(request, decision)
        guarded.let_pass(seal, decision, request.meta.get(HISTORY))
        self._pacing.note_pass(request, guarded)
        return None

    # -- in the last middleware --------------------------------------------------------------------

    def recheck(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """None if the request is unchanged since it was judged and need not wait for its turn here.

        Otherwise a coroutine that judges it again, or waits, and returns like `process_request`.
        """
        guarded = self._requests.of(request)
        if guarded.is_sealed(request) and not self._pacing.must_wait(guarded):
            return None
        return self._rejudge_and_wait(request, guarded)

    async def _rejudge_and_wait(self, request: Request, guarded: GuardedRequest) -> Request | None:
        if self._crawl.fetcher.owns(request):
            return None
        while True:
            # in the loop: it may change while it is judged
            if not guarded.is_sealed(request):
                returned = await self._judge(request, guarded)
                if returned is not None:
                    return returned
            elif self._pacing.must_wait(guarded):
                granted = await self._pacing.acquire_before_slot(request, guarded)
                if granted.verdict.action is not Action.PASS:
                    self._enforcer.refuse(guarded, granted)
            else:
                return None

    def defer(self, request: Request, refusal: NotYet) -> Request:
        """Return a request whose turn had not come. Raises RobotsDeferred if it has waited
        long enough."""
        guarded = self._requests.of(request)
        return self._enforcer.return_for_turn(request, guarded, refusal.decision)

    # -- in the handler hook -----------------------------------------------------------------------

    async def _send(self, request: Request, send: Send) -> Response:
        """Send a request as it was judged; judge it again first if it has changed after the last
        middleware, or while it waited for its turn.

        Raises RobotsDisallowed or NotYet.
        """
        if self._crawl.fetcher.mark_sent(request):
            return await self._crawl.fetcher.send(request, send)
        guarded = self._requests.of(request)
        while True:
            while not guarded.is_sealed(request):
                await self._judge(request, guarded, is_in_hook=True)
            if not self._pacing.needs_turn(guarded):
                break
            granted = await self._pacing.acquire_turn(request, guarded)
            if granted.verdict.action is not Action.PASS:
                self._enforcer.refuse(guarded, granted)
            if guarded.is_sealed(request):
                break
        # Nothing is awaited between the last look at the seal and the handler.
        return await self._pacing.download(request, guarded, send)

    # -- a response, and the crawl -----------------------------------------------------------------

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, after the other middlewares. Raises RobotsSignalled if its site does
        not permit its use."""
        return self.responses.admit(request, response)

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Coroutine[Any, Any, None] | None:
        """Judge the response that an exception carries to errbacks, as StopDownload does. Raises
        RobotsSignalled if its site does not permit its use."""
        response = getattr(exception, "response", None)
        if not isinstance(response, Response):
            return None
        return self.responses.admit_carried(request, response)

    def _spider_opened(self) -> None:
        self._pacing.is_hooked = self._crawl.fetcher.is_hooked = attach(self._crawler, self._send)
        self._gate.open()
        self._crawl.open()
        self.responses.signals.open(self._crawler)

    def _spider_idle(self) -> None:
        if self._gate.has_waiters:
            raise DontCloseSpider

    def _spider_closed(self) -> None:
        self._gate.close()
        self._refusals.summarise()
        self._crawl.count()


class RobotsGuardSeal:
    """The last downloader middleware, after HttpCacheMiddleware: requests that the cache answers
    are not sent. It is the first to see what comes back."""

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
        return self._middleware.responses.receive(request, response)

    @cached_property
    def _middleware(self) -> RobotsGuardMiddleware:
        middleware = self._crawler.get_downloader_middleware(RobotsGuardMiddleware)
        if middleware is None:
            raise IgnoreRequest(
                "RobotsGuardMiddleware is missing: no request may be sent without a decision"
            )
        return middleware
