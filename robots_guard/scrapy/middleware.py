"""The downloader middleware: each request becomes a question, each verdict what Scrapy understands.

Stands where Scrapy's RobotsTxtMiddleware stood, at 100: also what passes the scheduler by comes here (media,
`engine.download_async`), and a request that a later component replaces comes round again.

    PASS   goes on; where the site wants time between requests, its turn is taken on the wire (`deferral.pacing`)
    DROP   RobotsDisallowed, an IgnoreRequest that carries the decision
    DEFER  back to the scheduler, its origin shut; or, for who is not from there, a short wait and RobotsDeferred
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec
from scrapy import signals
from scrapy.exceptions import DontCloseSpider, NotConfigured

from robots_guard.audit.record import shown_url
from robots_guard.core.verdict import Action, Decision, Deferral, Question, Reason
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import split_url
from robots_guard.ports import Fetcher
from robots_guard.scrapy.deferral.gate import Gate, wait_of
from robots_guard.scrapy.deferral.lifetime import follow
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.deferral.returning import is_returned, restore, returned
from robots_guard.scrapy.deferral.wire import Send, attach
from robots_guard.scrapy.direct import DirectFetcher
from robots_guard.scrapy.errors import NotYet, RobotsDeferred, RobotsDisallowed, abort, sentence
from robots_guard.scrapy.fetcher import ScrapyFetcher, target_written
from robots_guard.scrapy.options import ENABLED, Options, is_enabled, options_of
from robots_guard.scrapy.questions import Questions, hosts_of
from robots_guard.scrapy.reached import HISTORY, is_from_cache
from robots_guard.scrapy.response_gate import ResponseGate
from robots_guard.scrapy.runtime import HostRuntime, host_runtime
from robots_guard.scrapy.unseen import unseen
from robots_guard.settings import CLOCKS, direct_fetcher, open_guard

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

log = logging.getLogger("robots_guard")

HOLD = 3.0  # seconds a download past the scheduler waits at most for what is not its turn


class RobotsGuardMiddleware:
    """Obeys robots.txt. `dont_obey_robotstxt` in a request's meta exempts it, and that is recorded, unless
    ROBOTS_GUARD_META_BYPASS is "deny"."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardMiddleware:
        """Ends the process if it cannot guard."""
        try:
            if not is_enabled(crawler.settings):
                raise NotConfigured(f"{ENABLED} is False")
            return cls(crawler, options_of(crawler.settings), host_runtime())
        except SettingsError as error:
            abort(error)

    def __init__(self, crawler: Crawler, options: Options, runtime: HostRuntime) -> None:
        settings = options.settings
        self._crawler: Any = crawler  # its parts are there once the crawl has begun
        self._runtime = runtime
        self._questions = Questions(crawler, settings.agent, denies_bypass=options.meta_bypass == "deny")
        self._fetcher = ScrapyFetcher(
            crawler, runtime, user_agent=settings.user_agent, tls_verified=options.tls_verified
        )
        self._direct = None
        if settings.fetch == "direct":
            self._direct = DirectFetcher(direct_fetcher(settings, trusts_asked=True))
        self._guard = open_guard(
            settings,
            door="scrapy",
            runtime=runtime,
            fetcher=self._direct or self._fetcher,
            demands_verified=options.tls_verified or self._direct is not None,  # else it would not trust its own
        )
        self._gate = Gate.of(crawler)
        self._gate.unknown = self._is_unknown
        self._pacing = Pacing(
            crawler,
            guard=self._guard,
            gate=self._gate,
            runtime=runtime,
            hold_max=settings.hold_max,
            now=CLOCKS.now,
        )
        self._responses = ResponseGate(
            guard=self._guard,
            questions=self._questions,
            fetcher_for=self._fetcher_for,
            gate=self._gate,
            pacing=self._pacing,
            note=self._note,
        )
        self._sealed: WeakKeyDictionary[Request, tuple[Any, ...]] = WeakKeyDictionary()
        self._refused: WeakSet[Request] = WeakSet()
        self._deferrals: WeakKeyDictionary[Request, Deferral] = WeakKeyDictionary()
        self._has_refused = False
        self._warned = False
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._request_dropped, signals.request_dropped)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    # -- a request ----------------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | None:
        """Let it go (None), put it back (a Request), or refuse it (RobotsDisallowed, RobotsDeferred)."""
        passed = False
        try:
            if self._gate.needs_learning(request):
                return self._send_to_learn(request)
            deferral = restore(request)
            if self._fetcher.owns(request):
                return None
            back = await self._seal(request, deferral)
            passed = back is None
            return back
        finally:
            if not passed:
                self._gate.release(request)  # refusal and cancellation free the origin; so does `expect`, or the wire

    async def _seal(self, request: Request, deferral: Deferral | None = None) -> Request | None:
        """Judge a request and remember what was judged; the copy to put back, if it may not go yet."""
        seal = _seal_of(request)
        self._refused.add(request)  # until it is let pass
        decision = await self._decide(request, deferral)
        if decision is not None and decision.verdict.action is not Action.PASS:
            self._note(decision)
            if decision.verdict.action is Action.DROP:
                raise RobotsDisallowed(decision)
            if self._gate.is_scheduled(request):
                return self._gate.send_back(request, decision)
            decision = await self._hold(request, decision)
        self._let_pass(request, seal, decision)
        if deferral is not None:
            self._deferrals[request] = deferral
        return None

    def _let_pass(self, request: Request, seal: tuple[Any, ...], decision: Decision | None) -> None:
        self._refused.discard(request)
        self._sealed[request] = seal
        self._responses.begin(request)
        self._pacing.expect(request, decision)

    def _send_to_learn(self, request: Request) -> Request:
        """Back to the scheduler with it, while its policy is fetched. Should that not be known even then (it may
        have expired, or be too large to be kept) it waits here after all: a request is sent back only once for this.
        """
        origin, copy = self._gate.send_to_learn(request)
        self._runtime.spawn(self._learn(request, origin))
        return copy

    async def _learn(self, request: Request, origin: str) -> None:
        try:
            await self._guard.prepare(self._questions.question(request), self._fetcher_for(request))
        finally:
            self._gate.learned(origin)

    async def _decide(self, request: Request, deferral: Deferral | None) -> Decision | None:
        """The decision; None for what no robots.txt governs."""
        try:
            question = self._questions.question(request, deferral)
        except NotGoverned:
            self._guard.counts[f"{Action.PASS}/{Reason.NOT_GOVERNED}"] += 1
            return None
        except MalformedURL as error:
            return self._guard.decide(*self._questions.malformed(request, request.url, error))
        verdict = self._questions.verdict_without_rules(request, question)
        if verdict is not None:
            return self._guard.decide(question, verdict)
        decision = await self._ask(request, question)
        written = target_written(request.url, question.target)
        if written == question.target or decision.verdict.action is not Action.PASS:
            return decision
        return await self._ask(request, msgspec.structs.replace(question, target=written))

    async def _ask(self, request: Request, question: Question) -> Decision:
        fetcher = self._fetcher_for(request)  # also for what is renewed behind our back: it goes by the same proxy
        return self._guard.peek(question, fetcher) or await self._guard.check(question, fetcher)

    def _fetcher_for(self, request: Request) -> Fetcher:
        return self._direct or self._fetcher.bound(request)

    async def _hold(self, request: Request, decision: Decision) -> Decision:
        """Who asks past the scheduler cannot be put back: wait a little, ask once more."""
        wait = wait_of(decision)
        if wait <= HOLD:
            with self._gate.standing_aside(request):
                await self._runtime.sleep(wait)
            deferral = decision.question.deferral or Deferral(decision.id, decision.at)
            again = await self._decide(request, deferral)
            if again is None or again.verdict.action is Action.PASS:
                return again or decision
            decision = again
        self._warn_of_foreign_queue()
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        raise RobotsDeferred(decision)

    # -- for the last middleware --------------------------------------------------------------------------

    def before_slot(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """None if the request is still what was judged, and need not wait in line for its turn; else a judgement like
        the first, or the wait."""
        if self._sealed.get(request) == _seal_of(request) and not self._pacing.must_wait(request):
            return None
        return self._judge_again(request)

    async def _judge_again(self, request: Request) -> Request | None:
        if self._fetcher.owns(request):
            return None
        while True:
            if self._sealed.get(request) != _seal_of(request):  # it may change while we judge
                back = await self._seal(request, self._deferrals.get(request))
                if back is not None:
                    return back
            elif self._pacing.must_wait(request):
                await self._stand_in_line(request)
            else:
                return None

    async def _stand_in_line(self, request: Request) -> None:
        try:
            await self._pacing.before_slot(request)
        except RobotsDisallowed as refusal:
            self._refuse(request, refusal)
            raise
        except RobotsDeferred as refusal:
            self._note(refusal.decision)
            self._warn_of_foreign_queue()
            raise

    def put_off(self, request: Request, refusal: NotYet) -> Request:
        """On the wire it was not the request's turn: the copy to put back, or to stand in line again."""
        decision = refusal.decision
        self._note(decision)
        if self._gate.is_scheduled(request):
            return self._gate.send_back(request, decision)
        if self._pacing.has_patience(decision):
            return returned(request, decision)
        raise RobotsDeferred(decision)

    # -- at the write -------------------------------------------------------------------------------------

    async def _send(self, request: Request, send: Send) -> Response:
        """Send a request as it was judged; one that was changed after the last middleware is judged again first.
        Raises RobotsDisallowed or NotYet."""
        if self._fetcher.leaves(request):
            return await self._fetcher.send(request, send)
        while self._sealed.get(request) != _seal_of(request):
            seal = _seal_of(request)
            decision = await self._decide(request, self._deferrals.get(request))
            if decision is not None and decision.verdict.action is Action.DROP:
                raise self._refuse(request, RobotsDisallowed(decision))
            if decision is not None and decision.verdict.action is Action.DEFER:
                raise NotYet(decision)
            self._let_pass(request, seal, decision)
        return await self._travel(request, send)

    async def _travel(self, request: Request, send: Send) -> Response:
        try:
            return await self._pacing.travel(request, send)
        except RobotsDisallowed as refusal:
            self._refuse(request, refusal)
            raise

    def _refuse(self, request: Request, refusal: RobotsDisallowed) -> RobotsDisallowed:
        """A request that was let pass before is refused at the write. Returns the refusal."""
        self._refused.add(request)
        self._note(refusal.decision)
        return refusal

    # -- an answer ----------------------------------------------------------------------------------------

    def process_response(self, request: Request, response: Response) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, after the other middlewares: one of them may have given it another URL."""
        return response if self._is_judged(request, response) else self._admitted(request, response)

    def answered(self, request: Request, response: Response) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, before any other middleware, at once if it answers what was judged."""
        if response.status not in (429, 503) and self._is_judged(request, response):
            return response
        return self._received(request, response)

    def _is_judged(self, request: Request, response: Response) -> bool:
        """Whether the response certainly answers what was judged: a fast check, because it nearly always does."""
        seal = self._sealed.get(request)
        return seal is not None and seal[1] == response.url and HISTORY not in request.meta

    async def _received(self, request: Request, response: Response) -> Response:
        """Heed what a 429 or 503 says of time, before RetryMiddleware has it."""
        if response.status in (429, 503) and request in self._sealed and not is_from_cache(response):
            with contextlib.suppress(NotGoverned, MalformedURL):  # s3:, or a handler of the project's own
                await self._pacing.hold_off(split_url(response.url)[0], response)
        return await self._admitted(request, response)

    async def _admitted(self, request: Request, response: Response) -> Response:
        if self._fetcher.owns(request):
            return response
        if request in self._refused and response.url == request.url:
            return response  # nothing was sent: a component answers refused requests itself
        seal = self._sealed.get(request)
        await self._responses.admit(request, response, seal[1] if seal else None)
        return response

    # -- a verdict ----------------------------------------------------------------------------------------
    def _note(self, decision: Decision) -> None:
        """Say it, and count it where the built-in counted. The first refusal of a crawl is a warning: it is all
        that `scrapy fetch` and `scrapy shell` have to show for it."""
        verdict = decision.verdict
        first = verdict.action is Action.DROP and not self._has_refused
        self._has_refused = self._has_refused or first
        log.log(logging.WARNING if first or decision.has_escaped else logging.INFO, "%s", sentence(decision))
        stats = self._crawler.stats
        stats.inc_value(f"robots_guard/{verdict.action}/{verdict.reason}")
        if verdict.action is Action.DROP:
            stats.inc_value("robotstxt/forbidden")

    # -- the gate's question ------------------------------------------------------------------------------

    def _is_unknown(self, request: Request) -> bool:
        """Whether the request will have to wait for a policy."""
        try:
            origin, _ = split_url(request.url)
        except (NotGoverned, MalformedURL):
            return False
        return not self._questions.is_exempt(request) and not self._guard.knows(origin)

    # -- a crawl ------------------------------------------------------------------------------------------

    def _spider_opened(self) -> None:
        self._pacing.is_on_wire = self._fetcher.is_on_wire = attach(self._crawler, self._send)
        self._fetcher.watch()
        follow(self._crawler, self._gate.begun, self._gate.ended)
        for component in unseen(self._crawler.settings):
            log.log(logging.INFO if component.proxy else logging.WARNING, "%s", component.sentence)
        if not self._gate.attached:
            settings = self._crawler.settings
            log.warning(
                "SCHEDULER = %s with SCHEDULER_PRIORITY_QUEUE = %s does not ask robots_guard: requests that may not be"
                " made yet are refused, not put off, and a slow robots.txt can hold up other hosts."
                " Use the add-on, or SCHEDULER = robots_guard.scrapy.GuardScheduler.",
                settings["SCHEDULER"],
                settings["SCHEDULER_PRIORITY_QUEUE"],
            )

    def _spider_idle(self) -> None:
        if self._gate.anybody_stands_aside:
            raise DontCloseSpider

    def _warn_of_foreign_queue(self) -> None:
        if not self._gate.attached and not self._warned:
            self._warned = True
            log.warning("A request was refused that could have been put off: see the warning at the start")

    def _request_dropped(self, request: Request) -> None:
        """Report a request that was put off and that a scheduler which is not wrapped has refused: it is lost."""
        if not is_returned(request):
            return
        self._crawler.stats.inc_value("robots_guard/refused_by_scheduler")
        log.error(
            "%s has refused %s, which was put off and is now lost: use the add-on, or"
            " SCHEDULER = robots_guard.scrapy.GuardScheduler",
            self._crawler.settings["SCHEDULER"],
            shown_url(request.url),
        )

    def _spider_closed(self) -> None:
        self._gate.close()
        for name, count in self._guard.counts.items():
            self._crawler.stats.set_value(f"robots_guard/{name}", count)

    async def _engine_stopped(self) -> None:
        await self._guard.settle()  # downloads have ended by now; what they brought may still be on its way to disk
        self._guard.close()
        if self._direct is not None:
            self._direct.close()


def _seal_of(request: Request) -> tuple[Any, ...]:
    """All of a request that its verdict rests on."""
    return request.method, request.url, hosts_of(request)
