"""Refusals of a crawl, logged and counted.

WARNING   the first drop of a crawl, because `scrapy fetch` and `scrapy shell` show nothing else
          of it; and each request that reached its site before it was judged
INFO      the first drop and the first deferral of each origin; at the end, what was dropped
DEBUG     all others: Scrapy logs what it filters at DEBUG, and the audit log has each of them
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.gateway.errors import log_line_of
from robots_guard.text import counted

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

COUNTED_ORIGINS = 10_000  # drops of further origins are counted together, and logged at DEBUG
SHOWN_ORIGINS = 20  # in the summary: those with the most drops


class RefusalLog:
    """Logs and counts the refusals of one crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._has_dropped = False
        self._dropped: dict[str, Counter[str]] = {}  # reasons, by origin
        self._dropped_elsewhere: Counter[str] = Counter()
        self._deferred: set[str] = set()  # origins

    def report(self, decision: Decision) -> None:
        """Log a refusal, and count it also under the built-in's name if robots.txt forbids the
        request."""
        verdict = decision.verdict
        log.log(self._level(decision), "%s", log_line_of(decision))
        stats = self._crawler.stats
        stats.inc_value(f"robots_guard/{verdict.action}/{verdict.reason}")
        if verdict.action is Action.DROP and not _is_of_page(decision):
            stats.inc_value("robotstxt/forbidden")

    def summarise(self) -> None:
        """Log how many requests of which origins were dropped, and why."""
        totals = {origin: reasons.total() for origin, reasons in self._dropped.items()}
        elsewhere = self._dropped_elsewhere.total()
        total = sum(totals.values()) + elsewhere
        if not total:
            return
        most = sorted(totals, key=lambda origin: (-totals[origin], origin))
        lines = [f"  {origin}: {_listed(self._dropped[origin])}" for origin in most[:SHOWN_ORIGINS]]
        rest = Counter(self._dropped_elsewhere)
        for origin in most[SHOWN_ORIGINS:]:
            rest.update(self._dropped[origin])
        if rest:
            lines.append(f"  other origins: {_listed(rest)}")
        log.info("dropped %s:\n%s", counted(total, "request"), "\n".join(lines))

    def _level(self, decision: Decision) -> int:
        is_drop = decision.verdict.action is Action.DROP
        is_first = is_drop and not self._has_dropped
        self._has_dropped = self._has_dropped or is_first
        is_first_of_origin = self._count(decision)
        if is_first or decision.has_escaped:
            return logging.WARNING
        if is_first_of_origin and decision.verdict.reason is not Reason.LINK_NOFOLLOW:
            return logging.INFO
        return logging.DEBUG

    def _count(self, decision: Decision) -> bool:
        """Count a refusal. Returns whether it is the first of its kind for its origin."""
        origin, reason = str(decision.question.origin), str(decision.verdict.reason)
        if decision.verdict.action is not Action.DROP:
            is_first = origin not in self._deferred and len(self._deferred) < COUNTED_ORIGINS
            if is_first:
                self._deferred.add(origin)
            return is_first
        reasons = self._dropped.get(origin)
        if reasons is not None:
            reasons[reason] += 1
            return False
        if len(self._dropped) >= COUNTED_ORIGINS:
            self._dropped_elsewhere[reason] += 1
            return False
        self._dropped[origin] = Counter((reason,))
        return True


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())


def _is_of_page(decision: Decision) -> bool:
    """Whether a page, and not a robots.txt, is the cause of a refusal."""
    return decision.response is not None or decision.verdict.reason is Reason.LINK_NOFOLLOW
