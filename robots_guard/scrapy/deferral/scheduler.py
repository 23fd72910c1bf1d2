"""Any other scheduler, asking the gate: scrapy-redis's, or a project's own.

It has no buckets to shut, so what comes out too early is parked here, in order, one line a bucket; and when the crawl
ends it goes back in. No more than `PARKED` are: what is then still too early goes back at once, behind all others
of its priority, so that what may go is found.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.asyncio import call_later
from scrapy.utils.misc import build_from_crawler, load_object

from robots_guard.audit.record import shown_url
from robots_guard.errors import SettingsError
from robots_guard.scrapy.deferral.gate import Gate
from robots_guard.scrapy.deferral.returning import demoted, kept
from robots_guard.scrapy.errors import abort
from robots_guard.scrapy.options import FALLBACK_SCHEDULER

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

log = logging.getLogger("robots_guard")

PARKED = 5000  # requests held here at once
LOOK = 0.02  # seconds of looking for a request that may leave, before others have the event loop
REST = 0.1  # seconds until the next look, if all places are taken
ITS_OWN = "scrapy.core.scheduler.Scheduler"


class GuardScheduler(BaseScheduler):
    """Wraps the scheduler named by ROBOTS_GUARD_FALLBACK_SCHEDULER. The add-on sets both where they are needed."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> GuardScheduler:
        """Ends the process if it is told to wrap itself."""
        wrapped: Any = load_object(crawler.settings.get(FALLBACK_SCHEDULER) or ITS_OWN)
        if cls in getattr(wrapped, "__mro__", ()):  # to issubclass, Scrapy's schedulers all are of one family
            abort(SettingsError(f"{FALLBACK_SCHEDULER} names GuardScheduler itself: name the scheduler it is to wrap"))
        return cls(build_from_crawler(wrapped, crawler), Gate.of(crawler))

    def __init__(self, wrapped: Any, gate: Gate) -> None:
        self._wrapped = wrapped
        self._gate = gate
        self._gate.attached = True
        self._parked: dict[str, deque[Request]] = {}
        self._count = 0
        self._rests_until = 0.0

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the scheduler beneath."""
        opened: Deferred[None] | None = self._wrapped.open(spider)
        return opened

    def close(self, reason: str) -> Deferred[None] | None:
        """Put back all that is parked, and close the scheduler beneath."""
        lost = sum(not self._puts_back(request) for line in self._parked.values() for request in line)
        if lost:
            log.error("robots_guard: requests lost, for the scheduler did not take them back: %d", lost)
        self._parked.clear()
        self._count = 0
        closed: Deferred[None] | None = self._wrapped.close(reason)
        return closed

    def _puts_back(self, request: Request) -> bool:
        """One that cannot be written down does not take the others along."""
        try:
            self._wrapped.enqueue_request(kept(request))
        except Exception:
            log.exception("robots_guard: %s could not be put back into the scheduler", shown_url(request.url))
            return False
        return True

    def has_pending_requests(self) -> bool:
        """Also what is parked."""
        return self._count > 0 or bool(self._wrapped.has_pending_requests())

    def __len__(self) -> int:
        return self._count + len(self._wrapped)

    def enqueue_request(self, request: Request) -> bool:
        """The scheduler beneath knows which were seen before."""
        self._rests_until = 0.0  # a new one may be allowed to leave
        return bool(self._wrapped.enqueue_request(request))

    def next_request(self) -> Request | None:
        """One that may leave: first of those that had to wait."""
        return self._next_parked() or self._next_of_wrapped()

    def _next_parked(self) -> Request | None:
        for bucket in self._gate.open_of(list(self._parked)):
            line = self._parked[bucket]
            if self._gate.admits(line[0]):
                return self._leave(bucket, line)
        return None

    def _leave(self, bucket: str, line: deque[Request]) -> Request:
        self._count -= 1
        request = line.popleft()
        if not line:
            del self._parked[bucket]
        return request

    def _next_of_wrapped(self) -> Request | None:
        began = time.monotonic()
        if began < self._rests_until:
            return None
        while time.monotonic() < began + LOOK:
            request: Request | None = self._wrapped.next_request()
            if request is None:
                return None
            bucket = self._gate.bucket(request)
            if bucket not in self._parked and self._gate.admits(request):
                return request
            self._put_by(bucket, request)
        self._look_again()
        return None

    def _put_by(self, bucket: str, request: Request) -> None:
        """Park it, or, if all places are taken, back with it."""
        if self._count >= PARKED:
            self._wrapped.enqueue_request(demoted(request))
            return
        self._parked.setdefault(bucket, deque()).append(request)
        self._count += 1

    def _look_again(self) -> None:
        rest = REST if self._count >= PARKED else 0.0
        self._rests_until = time.monotonic() + rest
        call_later(rest, self._gate.wake)
