"""The enforcer: what a decision that does not let a request pass does to it.

DROP   RobotsDisallowed, an IgnoreRequest with the decision
DEFER  the request returns to the scheduler with its origin closed; one that bypasses the
       scheduler waits briefly, then raises RobotsDeferred
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from scrapy import signals

from robots_guard.audit.record import shown_url
from robots_guard.decisions.verdict import Action, Decision, Deferral
from robots_guard.scrapy.crawl_guard import CrawlGuard
from robots_guard.scrapy.deferral.gate import wait_of
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.deferral.waiting_limits import WaitingLimits
from robots_guard.scrapy.errors import RobotsDeferred, RobotsDisallowed, RobotsRefused
from robots_guard.scrapy.guarded_request import GuardedRequest, give_back, is_returned
from robots_guard.scrapy.refusals import RefusalLog

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

MAX_UNSCHEDULED_WAIT = 3.0  # seconds; for downloads that bypass the scheduler, and not for turns


class RequestEnforcer:
    """Drops and defers the requests of one crawl. `max_idle` is the most seconds that it waits for
    its requests."""

    def __init__(
        self,
        crawler: Crawler,
        crawl: CrawlGuard,
        pacing: Pacing,
        refusals: RefusalLog,
        *,
        max_idle: float,
    ) -> None:
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._crawl = crawl
        self._gate = crawl.gate
        self._limits = WaitingLimits(crawler, crawl.gate, max_idle)
        self._pacing = pacing
        self._refusals = refusals
        self._has_warned = False
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._request_dropped, signals.request_dropped)

    def refuse(self, guarded: GuardedRequest, decision: Decision) -> NoReturn:
        """Refuse a request, which may have passed before."""
        guarded.refuse()
        self._refusals.report(decision)
        raise self._refusal(decision)

    def send_back(
        self, request: Request, guarded: GuardedRequest, decision: Decision
    ) -> Request | None:
        """Let the request wait in the scheduler. Returns it; None if it cannot go back there.

        Raises RobotsDisallowed for a DROP.
        """
        self._refusals.report(decision)
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        if guarded.is_scheduled and self._limits.can_wait(request, decision):
            return self._gate.send_back(request, decision)
        return None

    async def wait_and_rejudge(self, request: Request, decision: Decision) -> Decision:
        """Wait briefly and judge once more: a request that bypasses the scheduler cannot be
        rescheduled.

        Returns the decision that lets it pass. Raises RobotsDisallowed or RobotsDeferred.
        """
        wait = wait_of(decision)
        if wait <= MAX_UNSCHEDULED_WAIT:
            with self._gate.outside_concurrency_limit(request):
                await self._crawl.runtime.sleep(wait)
            deferral = decision.question.deferral or Deferral(decision.id, decision.at)
            second = await self._crawl.decide(request, deferral)
            if second is None or second.verdict.action is Action.PASS:
                return second or decision
            decision = second
        raise self._refusal(decision)

    def return_for_turn(
        self, request: Request, guarded: GuardedRequest, decision: Decision
    ) -> Request:
        """Return a request whose turn had not come in the handler hook.

        It goes back to the scheduler or, if the request bypasses that, to the turn queue. Raises
        RobotsDeferred if it has waited long enough.
        """
        returned = self.send_back(request, guarded, decision)
        if returned is not None:
            return returned
        if guarded.is_scheduled or not self._pacing.can_wait_again(decision):
            raise RobotsDeferred(decision)
        guarded.wait()
        return give_back(request, decision)

    def _refusal(self, decision: Decision) -> RobotsRefused:
        if decision.verdict.action is Action.DROP:
            return RobotsDisallowed(decision)
        if not self._gate.attached and not self._has_warned:
            self._has_warned = True
            log.warning(
                "A request was refused that could have been deferred: see the warning at the start"
            )
        return RobotsDeferred(decision)

    # -- a scheduler that does not ask the gate ----------------------------------------------------

    def _spider_opened(self) -> None:
        if not self._gate.attached:
            settings = self._crawler.settings
            log.warning(
                "SCHEDULER = %s with SCHEDULER_PRIORITY_QUEUE = %s does not consult robots_guard: requests that may"
                " not be made yet are refused, not deferred, and a slow robots.txt can delay other hosts."
                " Use the add-on, or SCHEDULER = robots_guard.scrapy.GuardScheduler.",
                settings["SCHEDULER"],
                settings["SCHEDULER_PRIORITY_QUEUE"],
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
