"""The downloader middleware: it turns requests into questions, and verdicts into Scrapy's results.

It takes the priority of Scrapy's RobotsTxtMiddleware, 100. Requests that bypass the scheduler also
pass here (media, `engine.download_async`), and a request that a later component replaces is
processed again.

    PASS   the request goes on; if the site requires a delay, its turn is taken in the handler hook
           (`deferral.pacing`)
    DROP   RobotsDisallowed, an IgnoreRequest with the decision
    DEFER  the request returns to the scheduler with its origin closed; one that bypasses the
           scheduler waits briefly, then raises RobotsDeferred
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
from scrapy.http import Response

from robots_guard.audit.record import shown_url
from robots_guard.configuration.settings import CLOCKS, direct_fetcher, open_guard
from robots_guard.decisions.component import Component
from robots_guard.decisions.freshness import PAUSE_STATUSES
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Deferral, Question
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import ROBOTS_TXT, Origin, split_cached
from robots_guard.ports import Fetcher
from robots_guard.scrapy.announcements import Announcements
from robots_guard.scrapy.bypasses import find_bypasses
from robots_guard.scrapy.deferral.gate import OriginGate, wait_of
from robots_guard.scrapy.deferral.known_origins import KnownOrigins
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.deferral.return_state import give_back, is_returned, restore
from robots_guard.scrapy.deferral.waiting_limits import WaitingLimits
from robots_guard.scrapy.errors import NotYet, RobotsDeferred, RobotsDisallowed, abort
from robots_guard.scrapy.fetch.connections import handler_of
from robots_guard.scrapy.fetch.direct import DirectFetcher
from robots_guard.scrapy.fetch.fetcher import ScrapyFetcher
from robots_guard.scrapy.options import ENABLED, ScrapyOptions, is_enabled, options_of
from robots_guard.scrapy.passed_requests import PassedRequest, PassedRequests, Seal
from robots_guard.scrapy.patches.downloader_fetch import follow
from robots_guard.scrapy.patches.handler_hook import Send, attach
from robots_guard.scrapy.questions import BYPASS, NO_HOSTS, Questions, hosts_of
from robots_guard.scrapy.reached_urls import HISTORY, is_from_cache
from robots_guard.scrapy.refusals import RefusalLog
from robots_guard.scrapy.response_gate import ResponseGate
from robots_guard.scrapy.response_signals import ResponseSignals
from robots_guard.scrapy.robots_responses import can_share, response_from
from robots_guard.scrapy.runtime import ScrapyRuntime, scrapy_runtime
from robots_guard.scrapy.written import parsed_url, written_target

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

_BYPASS_RECORDED = (
    "%s in a request's meta exempts %s, and each other request that has it, from robots.txt: they are"
    " made, and recorded as bypassed. Remove it, or set ROBOTS_GUARD_META_BYPASS = 'deny' to have them"
    " judged"
)
_BYPASS_WITHOUT_EFFECT = (
    "%s in a request's meta has no effect on %s, nor on any other request:"
    " ROBOTS_GUARD_META_BYPASS is 'deny'. Exempt a site by an override instead"
)
_PASS = Action.PASS  # Python 3.11 takes longer to look up a member than a global
MAX_UNSCHEDULED_WAIT = 3.0  # seconds; for downloads that bypass the scheduler, and not for turns


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
        settings = options.settings
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._runtime = runtime
        self._denies_bypass = options.meta_bypass == "deny"
        self._questions = Questions(crawler, settings.agent, denies_bypass=self._denies_bypass)
        self._announcements = Announcements(crawler, runtime)
        self._fetcher = ScrapyFetcher(
            crawler, runtime, user_agent=settings.user_agent, tls_verified=options.tls_verified
        )
        self._direct = None
        if settings.fetch == "direct":
            self._direct = DirectFetcher(direct_fetcher(settings, trusts_caller=True))
        self._default_fetcher: Fetcher = self._direct or self._fetcher
        self._guard = open_guard(
            settings,
            component=Component.SCRAPY,
            runtime=runtime,
            fetcher=self._default_fetcher,
            # Without verification, the guard would not trust the policies that it has fetched
            # itself.
            demands_verified=options.tls_verified or self._direct is not None,
        )
        self._known = KnownOrigins(self._guard.fresh_for, CLOCKS.monotonic)
        self._refusals = RefusalLog(crawler)
        self._passed: PassedRequests = WeakKeyDictionary()
        self._gate = OriginGate.of(crawler)
        self._gate.lacks_policy = self._lacks_policy
        self._gate.is_exempt = self._questions.is_exempt
        self._limits = WaitingLimits(crawler, self._gate, options.max_idle)
        self._pacing = Pacing(
            crawler,
            guard=self._guard,
            gate=self._gate,
            runtime=runtime,
            passed_requests=self._passed,
            hold_max=settings.hold_max,
            now=CLOCKS.now,
        )
        self._responses = ResponseGate(
            guard=self._guard,
            questions=self._questions,
            fetcher_for=self._fetcher_for,
            gate=self._gate,
            pacing=self._pacing,
            report=self._refusals.report,
        )
        self.signals = ResponseSignals(  # RobotsGuardLinks asks it, too
            settings,
            self._guard,
            self._questions,
            self._refusals,
            self._passed,
            self._gate.is_scheduled,
        )
        self._refused: WeakSet[Request] = WeakSet()
        # by scheme, as Scrapy keeps each handler for the whole crawl
        self._handlers: dict[str, Any] = {}
        self._deferrals: WeakKeyDictionary[Request, Deferral] = WeakKeyDictionary()
        self._has_warned = False
        self._has_warned_of_bypass = False
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._request_dropped, signals.request_dropped)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    # -- a request ---------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | Response | None:
        """Pass the request (None), give it back to the scheduler (itself), answer it (a robots.txt
        that the guard has), or refuse it (RobotsDisallowed, RobotsDeferred)."""
        decision = None
        if not self._gate.is_out_alone(request):
            decision = self._decide_at_once(request)
            if decision is not None and self._let_pass_at_once(request, decision):
                return None
        return await self._process_and_release(request, decision)

    async def _process_and_release(
        self, request: Request, decision: Decision | None
    ) -> Request | Response | None:
        """Process a request of any kind. `process_request` handles most requests without this.

        `decision` is None if there is none yet.
        """
        has_passed = False
        try:
            if self._gate.needs_policy(request):
                return self._defer_for_policy(request)
            decision = decision or self._decide_at_once(request)
            result: Request | Response | None = None
            if decision is None:
                result = await self._process(request)
            elif decision.verdict.action is Action.PASS and not self._must_announce(decision):
                self._let_pass(request, _seal_of(request), decision)
            else:
                result = await self._seal(request, decision=decision)
            has_passed = result is None
            return result
        finally:
            if not has_passed:  # if it has, `Pacing.admit` or the handler hook releases it
                self._gate.release(request)

    async def _process(self, request: Request) -> Request | Response | None:
        """Process a request on which no decision can be made at once."""
        deferral = restore(request)
        if self._fetcher.owns(request):
            return None
        if BYPASS in request.meta:
            self._warn_of_bypass(request)
        returned = await self._seal(request, deferral)
        if returned is None and can_share(request):
            return await self._shared_response(request)
        return returned

    def _decide_at_once(self, request: Request) -> Decision | None:
        """The decision on an ordinary request (`Questions.plain_question`) if it can be made from
        memory; otherwise None.

        Invariant: it is the decision that `_decide` would return.
        """
        question = self._questions.plain_question(request)
        if question is None or self._written_target(request) != question.target:
            return None
        return self._guard.peek(question, self._default_fetcher)

    def _let_pass_at_once(self, request: Request, decision: Decision) -> bool:
        """Let a request pass if the decision on it (`_decide_at_once`) is all that it needs.
        Returns whether it has passed.

        Invariant: `_let_pass` would do the same. The request has no Host field, no URL has
        redirected to it, it is not out alone, and it needs no turn. So there is nothing to forget
        unless something is kept, and nothing to note about its origin unless some origin is paced.
        """
        verdict = decision.verdict
        if verdict.action is not _PASS or verdict.delay is not None:
            return False
        if self._must_announce(decision):
            return False
        if self._refused:
            self._refused.discard(request)
        self.signals.begin(request)
        seal = request.method, request.url, parsed_url(request), NO_HOSTS
        self._passed[request] = PassedRequest(seal, decision)
        if self._responses.keeps_any:
            self._responses.begin(request)
        if self._pacing.has_paced:
            self._pacing.admit(request, decision)
        return True

    async def _seal(
        self,
        request: Request,
        deferral: Deferral | None = None,
        *,
        decision: Decision | None = None,
    ) -> Request | None:
        """Judge a request, unless there is a decision already, and remember its judged state.

        Returns the request if it has to be rescheduled because it may not be made yet.
        """
        seal = _seal_of(request)
        self._refused.add(request)  # until it passes
        self._passed.pop(request, None)  # it may have been judged, and sent back
        if decision is None:
            decision = await self._decide(request, deferral)
        else:
            await self._announce_if_due(request, decision)
        if decision is not None and decision.verdict.action is not Action.PASS:
            self._refusals.report(decision)
            if decision.verdict.action is Action.DROP:
                raise RobotsDisallowed(decision)
            if self._can_go_back(request, decision):
                return self._gate.send_back(request, decision)
            decision = await self._wait_and_rejudge(request, decision)
        self._let_pass(request, seal, decision)
        if deferral is not None:
            self._deferrals[request] = deferral
        return None

    def _let_pass(self, request: Request, seal: Seal, decision: Decision | None) -> None:
        if self._refused:
            self._refused.discard(request)
        self.signals.begin(request)
        self._passed[request] = PassedRequest(seal, decision)
        self._responses.begin(request)
        self._pacing.admit(request, decision)

    def _defer_for_policy(self, request: Request) -> Request:
        """Return the request to the scheduler while its policy is fetched.

        A request is sent back only once for this. If the policy is still unknown then (it may have
        expired, or be too large for the cache), the request waits in this middleware.
        """
        origin, returned = self._gate.defer_for_policy(request)
        self._runtime.spawn(self._prefetch_policy(request, origin))
        return returned

    async def _prefetch_policy(self, request: Request, origin: str) -> None:
        try:
            await self._guard.prefetch(
                self._questions.question(request), self._fetcher_for(request)
            )
        finally:
            self._gate.policy_ready(origin)

    async def _decide(self, request: Request, deferral: Deferral | None) -> Decision | None:
        """The decision on a request; None if no robots.txt governs it."""
        try:
            target = written_target(request, self._handler_of(request))
            question = self._questions.question(request, deferral)
        except NotGoverned:
            self._guard.counts[f"{Action.PASS}/{Reason.NOT_GOVERNED}"] += 1
            return None
        except MalformedURL as error:
            return self._guard.decide(*self._questions.malformed(request, request.url, error))
        verdict = self._questions.verdict_without_rules(request, question)
        if verdict is not None:
            return self._guard.decide(question, verdict)
        decision = await self._check(request, question)
        if target == question.target or decision.verdict.action is not Action.PASS:
            return decision
        return await self._check(request, msgspec.structs.replace(question, target=target))

    async def _check(self, request: Request, question: Question) -> Decision:
        # for `peek`, too: a refresh in the background uses the same proxy
        fetcher = self._fetcher_for(request)
        decision = self._guard.peek(question, fetcher) or await self._guard.check(question, fetcher)
        await self._announce_if_due(request, decision)
        return decision

    def _written_target(self, request: Request) -> str | None:
        """The target that the download handler will write; None if it will write none."""
        try:
            return written_target(request, self._handler_of(request))
        except (NotGoverned, MalformedURL):
            return None

    def _handler_of(self, request: Request) -> Any:
        """The handler that Scrapy chooses for a request; None if there is none."""
        parsed = parsed_url(request)
        return self._handler(parsed.scheme if parsed is not None else "")

    def _handler(self, scheme: str) -> Any:
        if scheme not in self._handlers:
            self._handlers[scheme] = handler_of(self._crawler.engine.downloader, scheme)
        return self._handlers[scheme]

    def _must_announce(self, decision: Decision) -> bool:
        """Whether the decision's robots.txt has yet to be announced."""
        return decision.policy is not None and self._announcements.is_due(decision.policy)

    async def _announce_if_due(self, request: Request, decision: Decision) -> None:
        """Announce the decision's robots.txt, unless that has been done."""
        if self._must_announce(decision):
            assert decision.policy is not None
            await self._announce(request, decision.policy)

    async def _announce(self, request: Request, policy: Policy) -> None:
        """Announce the policy's robots.txt to the handlers of `robots_parsed`."""
        terms = self._guard.terms(policy.origin)
        await self._announcements.send(request, policy, terms, CLOCKS.now())

    async def _shared_response(self, request: Request) -> Response | None:
        """The response to a spider's own request for a robots.txt, made of a fresh policy; None if
        the request has to be made.

        If the guard has no fresh policy, its own fetch is the only request that the site receives.
        """
        if self._questions.is_exempt(request):
            return None
        origin, target = split_cached(request.url)
        if target != ROBOTS_TXT:
            return None
        with self._gate.outside_concurrency_limit(request):
            policy = await self._guard.fresh_policy(origin, self._fetcher_for(request))
        if policy is None:
            return None
        terms = self._guard.terms(origin)
        if terms.pinned is None and self._announcements.is_due(policy):
            await self._announce(request, policy)
        response = response_from(request, policy, terms.dialect, CLOCKS.now())
        if response is not None:
            self._crawler.stats.inc_value("robots_guard/fetch/shared")
        return response

    def _fetcher_for(self, request: Request) -> Fetcher:
        return self._direct or self._fetcher.bound(request)

    async def _wait_and_rejudge(self, request: Request, decision: Decision) -> Decision:
        """Wait briefly and judge once more: a request that bypasses the scheduler cannot be
        rescheduled.

        Returns the decision that lets it pass. Raises RobotsDisallowed or RobotsDeferred.
        """
        wait = wait_of(decision)
        if wait <= MAX_UNSCHEDULED_WAIT:
            with self._gate.outside_concurrency_limit(request):
                await self._runtime.sleep(wait)
            deferral = decision.question.deferral or Deferral(decision.id, decision.at)
            second = await self._decide(request, deferral)
            if second is None or second.verdict.action is Action.PASS:
                return second or decision
            decision = second
        self._warn_of_ungated_queue()
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        raise RobotsDeferred(decision)

    # -- for the last middleware -------------------------------------------------------------------

    def recheck(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """None if the request is unchanged since it was judged and need not wait for its turn here.

        Otherwise a coroutine that judges it again, or waits, and returns like `process_request`.
        """
        if self._is_sealed(request) and not self._pacing.must_wait(request):
            return None
        return self._rejudge_and_wait(request)

    def _is_sealed(self, request: Request) -> bool:
        """Whether the request has passed, and has not been changed since it was judged."""
        passed = self._passed.get(request)
        return passed is not None and passed.seal == _seal_of(request)

    async def _rejudge_and_wait(self, request: Request) -> Request | None:
        if self._fetcher.owns(request):
            return None
        while True:
            # in the loop: it may change while it is judged
            if not self._is_sealed(request):
                returned = await self._seal(request, self._deferrals.get(request))
                if returned is not None:
                    return returned
            elif self._pacing.must_wait(request):
                await self._wait_for_turn(request)
            else:
                return None

    async def _wait_for_turn(self, request: Request) -> None:
        try:
            await self._pacing.acquire_before_slot(request)
        except RobotsDisallowed as refusal:
            self._refuse(request, refusal)
            raise
        except RobotsDeferred as refusal:
            self._refusals.report(refusal.decision)
            self._warn_of_ungated_queue()
            raise

    def defer(self, request: Request, refusal: NotYet) -> Request:
        """Return a request whose turn had not come in the handler hook.

        It goes back to the scheduler or, if the request bypasses that, to the turn queue.
        Raises RobotsDeferred if the request has waited long enough.
        """
        decision = refusal.decision
        self._refusals.report(decision)
        if self._can_go_back(request, decision):
            return self._gate.send_back(request, decision)
        if not self._gate.is_scheduled(request) and self._pacing.can_wait_again(decision):
            return give_back(request, decision)
        raise RobotsDeferred(decision)

    def _can_go_back(self, request: Request, decision: Decision) -> bool:
        """Whether a deferred request waits in the scheduler, where it came from."""
        return self._gate.is_scheduled(request) and self._limits.admit(request, decision)

    # -- in the handler hook -----------------------------------------------------------------------

    async def _send(self, request: Request, send: Send) -> Response:
        """Send a request as it was judged; judge it again first if it has changed after the last
        middleware, or while it waited for its turn.

        Raises RobotsDisallowed or NotYet.
        """
        if self._fetcher.mark_sent(request):
            return await self._fetcher.send(request, send)
        while True:
            while not self._is_sealed(request):
                await self._judge_changed(request)
            if not self._pacing.needs_turn(request):
                break
            await self._take_turn(request)
            if self._is_sealed(request):
                break
        # Nothing is awaited between the last look at the seal and the handler.
        return await self._pacing.download(request, send)

    async def _judge_changed(self, request: Request) -> None:
        seal = _seal_of(request)
        decision = await self._decide(request, self._deferrals.get(request))
        if decision is not None and decision.verdict.action is Action.DROP:
            raise self._refuse(request, RobotsDisallowed(decision))
        if decision is not None and decision.verdict.action is Action.DEFER:
            raise NotYet(decision)
        self._let_pass(request, seal, decision)

    async def _take_turn(self, request: Request) -> None:
        try:
            await self._pacing.acquire_turn(request)
        except RobotsDisallowed as refusal:
            self._refuse(request, refusal)
            raise

    def _refuse(self, request: Request, refusal: RobotsDisallowed) -> RobotsDisallowed:
        """Record that a request which had passed is refused after all. Returns the refusal."""
        self._refused.add(request)
        self._refusals.report(refusal.decision)
        return refusal

    # -- a response --------------------------------------------------------------------------------

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, after the other middlewares: one of them may have given it another
        URL. Raises RobotsSignalled if its site does not permit its use."""
        if self._is_judged(request, response):
            return self.signals.admit(request, response)
        return self._admit_by_signals(request, response)

    async def _admit_by_signals(self, request: Request, response: Response) -> Response:
        response = await self._admit_response(request, response)
        if self._is_own(request, response):
            return response
        return self.signals.admit(request, response)

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Coroutine[Any, Any, None] | None:
        """Judge the response that an exception carries to errbacks, as StopDownload does. Raises
        RobotsSignalled if its site does not permit its use."""
        response = getattr(exception, "response", None)
        if not isinstance(response, Response):
            return None
        return self._admit_carried(request, response)

    async def _admit_carried(self, request: Request, response: Response) -> None:
        await self._admit_by_signals(request, response)

    def receive_response(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, before any other middleware, at once if its URL was judged."""
        if response.status >= 300:
            self.signals.receive(request, response)
        if response.status not in PAUSE_STATUSES and self._is_judged(request, response):
            return response
        return self._heed_and_admit(request, response)

    def _is_judged(self, request: Request, response: Response) -> bool:
        """Whether the response certainly comes from the judged URL: a fast check, because it nearly
        always does."""
        passed = self._passed.get(request)
        if passed is None or passed.url != response.url:
            return False
        return HISTORY not in request.meta

    async def _heed_and_admit(self, request: Request, response: Response) -> Response:
        """Apply the Retry-After of a 402, 429 or 503 before RetryMiddleware sees it; then admit the
        response."""
        is_pause = response.status in PAUSE_STATUSES and request in self._passed
        if is_pause and not is_from_cache(response):
            # s3:, or a handler of the project's own
            with contextlib.suppress(NotGoverned, MalformedURL):
                await self._pacing.note_pause(split_cached(response.url)[0], response)
        return await self._admit_response(request, response)

    async def _admit_response(self, request: Request, response: Response) -> Response:
        if self._is_own(request, response):
            return response
        passed = self._passed.get(request)
        judged = passed.url if passed is not None else None
        await self._responses.admit(request, response, judged)
        return response

    def _is_own(self, request: Request, response: Response) -> bool:
        """Whether the response is to a fetch of the guard, or made for a refused request."""
        is_refused = request in self._refused and response.url == request.url
        return is_refused or self._fetcher.owns(request)

    # -- for the gate ------------------------------------------------------------------------------

    def _lacks_policy(self, origin: Origin) -> bool:
        """Whether a request to the origin will have to wait for a policy in the scheduler."""
        return origin not in self._known and self._handler(origin.scheme) is not None

    # -- a crawl -----------------------------------------------------------------------------------

    def _spider_opened(self) -> None:
        self._pacing.is_hooked = self._fetcher.is_hooked = attach(self._crawler, self._send)
        self._fetcher.open()
        self.signals.open(self._crawler)
        follow(self._crawler, self._gate.mark_begun, self._gate.mark_ended)
        for bypass in find_bypasses(self._crawler.settings):
            log.log(logging.INFO if bypass.proxy else logging.WARNING, "%s", bypass.sentence)
        if not self._gate.attached:
            settings = self._crawler.settings
            log.warning(
                "SCHEDULER = %s with SCHEDULER_PRIORITY_QUEUE = %s does not consult robots_guard: requests that may"
                " not be made yet are refused, not deferred, and a slow robots.txt can delay other hosts."
                " Use the add-on, or SCHEDULER = robots_guard.scrapy.GuardScheduler.",
                settings["SCHEDULER"],
                settings["SCHEDULER_PRIORITY_QUEUE"],
            )

    def _spider_idle(self) -> None:
        if self._gate.has_waiters:
            raise DontCloseSpider

    def _warn_of_bypass(self, request: Request) -> None:
        """Say once in a crawl what `dont_obey_robotstxt` does."""
        if self._has_warned_of_bypass or not request.meta[BYPASS]:
            return
        if not self._denies_bypass and not self._questions.is_exempt(request):
            return
        self._has_warned_of_bypass = True
        sentence = _BYPASS_WITHOUT_EFFECT if self._denies_bypass else _BYPASS_RECORDED
        log.warning(sentence, BYPASS, shown_url(request.url))

    def _warn_of_ungated_queue(self) -> None:
        if not self._gate.attached and not self._has_warned:
            self._has_warned = True
            log.warning(
                "A request was refused that could have been deferred: see the warning at the start"
            )

    def _request_dropped(self, request: Request) -> None:
        """Report a deferred request that a scheduler without GuardScheduler has refused: it is
        lost."""
        if not is_returned(request):
            return
        self._crawler.stats.inc_value("robots_guard/refused_by_scheduler")
        log.error(
            "%s has refused %s, which was deferred and is now lost: use the add-on, or"
            " SCHEDULER = robots_guard.scrapy.GuardScheduler",
            self._crawler.settings["SCHEDULER"],
            shown_url(request.url),
        )

    def _spider_closed(self) -> None:
        self._gate.close()
        self._refusals.summarise()
        for name, count in self._guard.counts.items():
            self._crawler.stats.set_value(f"robots_guard/{name}", count)

    async def _engine_stopped(self) -> None:
        # downloads have ended, but their policies may not be on disk yet
        await self._guard.drain()
        self._guard.close()
        if self._direct is not None:
            self._direct.close()


def _seal_of(request: Request) -> Seal:
    return request.method, request.url, parsed_url(request), hosts_of(request)
