"""Waiting limits: how long requests wait in the scheduler, and how long a crawl waits for them.

    a command for one page   `scrapy fetch`, `view`, `shell` and `parse` wait for 25 s, retries of a
                             robots.txt included: a person is waiting for the page
    a dead host              one whose name cannot be resolved, or that cannot be connected to
                             (directly, or by the crawl's only proxy), is tried for half a minute,
                             six times. Scrapy itself tries three times, at once
    a crawl                  ends if it has nothing else to do and no request may be made within
                             `max_idle` seconds. JOBDIR keeps the requests that are left

A request that may not wait so long is refused with RobotsDeferred. No request is made early.
"""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.utils.job import job_dir

from robots_guard.audit.record import shown_url
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.access import Failure, Scope
from robots_guard.decisions.verdict import REASONS, Decision
from robots_guard.scrapy.deferral.gate import OriginGate, wait_of
from robots_guard.text import counted

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

CLOSE_REASON = "robots_guard_deferred"
COMMAND_WAIT = 25.0  # seconds
DEAD_HOST_WAIT = 60.0  # seconds from the first failure; the sixth retry comes later
_DEAD = {
    Failure.DNS: "its host name has not been resolved",
    Failure.CONNECT: "no connection to it could be made",
}
MAX_NAMED = 5  # origins in the warning
_COMMANDS = frozenset(("scrapy.commands.fetch", "scrapy.commands.parse"))  # `view` is a `fetch`


class WaitingLimits:
    """The limits of one crawl. When one of them ends it, a warning names the requests that are left.

    `max_idle` is the most seconds that the crawl waits with nothing else to do.
    """

    def __init__(self, crawler: Crawler, gate: OriginGate, max_idle: float) -> None:
        self._crawler = crawler
        self._gate = gate
        self._max_idle = max_idle
        self._longest_wait = COMMAND_WAIT if is_for_one_page(crawler) else math.inf
        self._ending = ""
        self._has_objected = False
        self._first_deferral = math.inf
        gate.max_idle = max_idle
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    def can_wait(self, request: Request, decision: Decision) -> bool:
        """Whether a deferred request may wait in the scheduler until it may be judged again.

        The first that may not is a WARNING, because `scrapy fetch` shows nothing else of it.
        """
        objection = self._objection(decision)
        if objection:
            level = logging.INFO if self._has_objected else logging.WARNING
            self._has_objected = True
            log.log(level, "%s is given up: %s", shown_url(request.url), objection)
        return not objection

    def _objection(self, decision: Decision) -> str:
        wait = wait_of(decision)
        self._first_deferral = min(self._first_deferral, decision.at)
        trouble = decision.policy.trouble if decision.policy is not None else None
        if trouble is not None and decision.verdict.reason is not REASONS[trouble.scope]:
            trouble = None
        # What another crawl has waited does not count: the host may be back at the next try.
        since = decision.at if trouble is None else max(trouble.since, self._first_deferral)
        waited = decision.at - since
        if waited + wait > self._longest_wait:
            return (
                f"it may be requested in {wait:.0f} s, and a command for one page does not wait"
                f" longer than {self._longest_wait:.0f} s"
            )
        if trouble is None or trouble.failure not in _DEAD or waited + wait <= DEAD_HOST_WAIT:
            return ""
        if trouble.scope is Scope.ROUTE and self._gate.has_other_routes():
            return ""
        return f"{_DEAD[trouble.failure]}{trouble.by} for {waited:.0f} s"

    def _spider_idle(self) -> None:
        """End the crawl if the scheduler still has requests: none may be made soon (`gate`)."""
        left = self._gate.left()
        if left:
            self._ending = self._describe(left)
            raise CloseSpider(CLOSE_REASON)

    def _spider_closed(self, reason: str) -> None:
        if reason == CLOSE_REASON:
            log.warning("%s", self._ending)

    def _describe(self, left: dict[str, tuple[int, float]]) -> str:
        """Say which requests are left, until when, and where they are kept."""
        offset = CLOCKS.now() - CLOCKS.monotonic()
        named = [
            f"{origin} ({count}, not before {_moment(offset + opening)})"
            for origin, (count, opening) in sorted(left.items(), key=lambda item: item[1][1])
        ]
        if len(named) > MAX_NAMED:
            named[MAX_NAMED:] = [f"{len(named) - MAX_NAMED} more sites"]
        kept = "to keep them for the next run, set JOBDIR; to wait longer, ROBOTS_GUARD_MAX_IDLE"
        if job_dir(self._crawler.settings):
            kept = "JOBDIR keeps them for the next run"
        total = sum(count for count, _ in left.values())
        return (
            f"The crawl ends with {counted(total, 'deferred request')} not made, because"
            f" nothing may be requested for {self._max_idle:.0f} s: {', '.join(named)}; {kept}"
        )


def is_for_one_page(crawler: Crawler) -> bool:
    """Whether the crawler belongs to `scrapy fetch`, `view`, `shell` or `parse`.

    The shell does not crawl; the others replace the spider's `start`.
    """
    start = getattr(crawler.spidercls, "start", None)
    return not crawler.crawling or getattr(start, "__module__", "") in _COMMANDS


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
