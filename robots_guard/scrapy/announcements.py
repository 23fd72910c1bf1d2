"""Announcements: handlers of Scrapy's signal `robots_parsed` learn what a site's robots.txt says.

From 2.18 on, Scrapy sends the signal when its own middleware has read the robots.txt of a host. The
guard sends it before the first request that a policy lets pass, and again when the site has sent
another file. No request to the site goes on until the handlers are done, or until `PATIENCE` is
over, so that they can, for example, set a delay. A file that came from the store is announced, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import signals

from robots_guard.decisions.access import Access
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.verdict import Terms
from robots_guard.origin import Origin
from robots_guard.ports import Handle
from robots_guard.scrapy.robot_parser import RobotParser
from robots_guard.scrapy.runtime import ScrapyRuntime

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

PATIENCE = 30.0  # seconds: a handler that waits for a page of the same site would never end
REMEMBERED = 10_000  # origins; when there are more, their files are announced again
_OPEN = b""
_CLOSED = b"User-agent: *\nDisallow: /\n"


class Announcements:
    """The signals `robots_parsed` of one crawl."""

    def __init__(self, crawler: Crawler, runtime: ScrapyRuntime) -> None:
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._runtime = runtime
        self._signal = getattr(signals, "robots_parsed", None)  # since Scrapy 2.18
        self._announced: dict[Origin, tuple[int, str]] = {}  # status and digest of the file
        self._running: dict[Origin, Handle[None]] = {}

    def is_due(self, policy: Policy) -> bool:
        """Whether the file of a policy has not been announced yet: a fast check."""
        if self._signal is None or policy.document is None:
            return False
        return self._announced.get(policy.origin) != _key(policy.document)

    async def send(self, request: Request, policy: Policy, terms: Terms, now: float) -> None:
        """Send the signal, and wait until its handlers are done. Requests that come meanwhile wait
        for the same signal."""
        access, document = policy.access(now, terms.dialect)
        if document is None:
            return
        running = self._running.get(policy.origin)
        if running is None:
            body = _body(access, document, terms)
            running = self._runtime.spawn(self._send(request, policy.origin, document, body, terms))
            if not running.done():
                self._running[policy.origin] = running
        if not await self._runtime.wait_at_most(running, PATIENCE):
            log.warning(
                "a handler of robots_parsed has not ended within %g s: requests to %s go on without it",
                PATIENCE,
                policy.origin,
            )
            self._remember(policy.origin, document)

    async def _send(
        self, request: Request, origin: Origin, document: Document, body: bytes, terms: Terms
    ) -> None:
        parser = RobotParser(
            body,
            dialect=terms.dialect.name,
            matching=terms.matching.name,
            max_delay=terms.max_delay,
        )
        try:
            await self._crawler.signals.send_catch_log_async(
                signal=self._signal, robotparser=parser, request=request
            )
        finally:
            self._running.pop(origin, None)
            self._remember(origin, document)

    def _remember(self, origin: Origin, document: Document) -> None:
        if len(self._announced) >= REMEMBERED:
            self._announced.clear()
        self._announced[origin] = _key(document)


def _key(document: Document) -> tuple[int, str]:
    return document.status, document.sha256


def _body(access: Access, document: Document, terms: Terms) -> bytes:
    """The rules that a document stands for: its own, none, or that everything is forbidden."""
    if access is Access.RULES:
        return document.body
    if access is Access.RESTRICTED and terms.on_restricted == "drop":
        return _CLOSED
    return _OPEN
