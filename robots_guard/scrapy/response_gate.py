"""The response gate: it judges the URLs of a response that were not judged before the request was
sent, and then what the site states with it.

Invariant: a response is handed on only if each URL that it is known to come from has a PASS.
`GuardedRequest.unjudged_urls` finds these URLs. The request for a page that is refused here has
reached the site already; its record says so (`escaped`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from robots_guard.configuration.settings import Settings
from robots_guard.decisions.freshness import PAUSE_STATUSES
from robots_guard.decisions.verdict import Action
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_cached
from robots_guard.scrapy.crawl_guard import CrawlGuard
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.errors import RobotsDeferred, RobotsDisallowed
from robots_guard.scrapy.guarded_request import HISTORY, GuardedRequest
from robots_guard.scrapy.pages import is_from_cache, is_refused_by_proxy
from robots_guard.scrapy.refusals import RefusalLog
from robots_guard.scrapy.response_signals import ResponseSignals

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class ResponseGate:
    """Judges the responses of one crawl. RobotsGuardLinks asks its `signals`, too."""

    def __init__(
        self, settings: Settings, crawl: CrawlGuard, pacing: Pacing, refusals: RefusalLog
    ) -> None:
        self._crawl = crawl
        self._requests = crawl.gate.requests
        self._pacing = pacing
        self._refusals = refusals
        self.signals = ResponseSignals(
            settings, crawl.guard, crawl.questions, refusals, self._requests
        )

    def receive(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, before any other middleware, at once if its URL was judged."""
        guarded = self._requests.of(request)
        if response.status >= 300:
            self.signals.receive(request, guarded, response)
        if response.status not in PAUSE_STATUSES and _is_judged(request, guarded, response):
            return response
        return self._heed_and_judge(request, guarded, response)

    def admit(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Hand on the response, after the other middlewares: one of them may have given it another
        URL. Raises RobotsSignalled if its site does not permit its use."""
        guarded = self._requests.of(request)
        if _is_judged(request, guarded, response):
            return self.signals.admit(request, guarded, response)
        return self._judge_and_admit(request, guarded, response)

    async def admit_carried(self, request: Request, response: Response) -> None:
        """Judge a response that an exception carries, as `admit` does."""
        await self._judge_and_admit(request, self._requests.of(request), response)

    async def _heed_and_judge(
        self, request: Request, guarded: GuardedRequest, response: Response
    ) -> Response:
        """Apply the Retry-After of a 402, 429 or 503 before RetryMiddleware sees it; then judge the
        response."""
        is_pause = response.status in PAUSE_STATUSES and guarded.seal is not None
        if is_pause and not is_from_cache(response):
            # s3:, or a handler of the project's own
            with contextlib.suppress(NotGoverned, MalformedURL):
                await self._pacing.note_pause(split_cached(response.url)[0], response)
        if not self._is_own(request, guarded, response):
            await self._judge(request, guarded, response)
        return response

    async def _judge_and_admit(
        self, request: Request, guarded: GuardedRequest, response: Response
    ) -> Response:
        if self._is_own(request, guarded, response):
            return response
        await self._judge(request, guarded, response)
        return self.signals.admit(request, guarded, response)

    def _is_own(self, request: Request, guarded: GuardedRequest, response: Response) -> bool:
        """Whether the response is to a fetch of the guard, or made for a refused request."""
        if guarded.is_refused and response.url == request.url:
            return True
        return self._crawl.fetcher.owns(request)

    async def _judge(self, request: Request, guarded: GuardedRequest, response: Response) -> None:
        """Judge the URLs of the response that have not been judged yet.

        Raises RobotsDisallowed or RobotsDeferred.
        """
        refusals = []
        for url in guarded.unjudged_urls(request, response):
            sent = _has_reached_site(response, url)
            decision = await self._crawl.decide_on_url(request, url, sent=sent)
            if decision is not None and decision.verdict.action is not Action.PASS:
                self._refusals.report(decision)
                refusals.append(decision)
                continue
            guarded.reached |= {url}
            if decision is not None and decision.question.sent:
                self._pacing.count_visit(decision)
        for decision in refusals:
            if decision.verdict.action is Action.DROP:
                raise RobotsDisallowed(decision)
        if refusals:
            raise RobotsDeferred(refusals[0])


def _is_judged(request: Request, guarded: GuardedRequest, response: Response) -> bool:
    """Whether the response certainly comes from the judged URL: a fast check, because it nearly
    always does."""
    return guarded.judged_url == response.url and HISTORY not in request.meta


def _has_reached_site(response: Response, url: str) -> bool:
    """Whether the request for a URL has reached its site.

    Redirecting URLs have; the response itself may come from the cache, or be a refusal by the
    proxy.
    """
    if is_from_cache(response):
        return False
    return url != response.url or not is_refused_by_proxy(response)
