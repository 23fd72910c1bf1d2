"""Refusals of a crawl, logged and counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from robots_guard.audit.log_line import log_line_of
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Decision

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")


class RefusalLog:
    """Logs and counts the refusals of one crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._has_refused = False

    def report(self, decision: Decision) -> None:
        """Log a refusal, and count it also under the built-in's name if robots.txt forbids the
        request.

        The first refusal of a crawl is a warning: `scrapy fetch` and `scrapy shell` show nothing
        else of it.
        """
        verdict = decision.verdict
        log.log(self._level(decision), "%s", log_line_of(decision))
        stats = self._crawler.stats
        stats.inc_value(f"robots_guard/{verdict.action}/{verdict.reason}")
        if verdict.action is Action.DROP and not _is_of_page(decision):
            stats.inc_value("robotstxt/forbidden")

    def _level(self, decision: Decision) -> int:
        is_first = decision.verdict.action is Action.DROP and not self._has_refused
        self._has_refused = self._has_refused or is_first
        if is_first or decision.has_escaped:
            return logging.WARNING
        if decision.verdict.reason is Reason.LINK_NOFOLLOW:  # pages have many such links
            return logging.DEBUG
        return logging.INFO


def _is_of_page(decision: Decision) -> bool:
    """Whether a page, and not a robots.txt, is the cause of a refusal."""
    return decision.response is not None or decision.verdict.reason is Reason.LINK_NOFOLLOW
