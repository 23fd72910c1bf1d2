"""Any other scheduler, asking the gate: scrapy-redis's, or a project's own.

It has no buckets to shut, so a request that comes out too early is parked here, in order, one queue per bucket; and so
is a request that the middlewares defer. The scheduler might refuse it if it were handed back: one that keeps its own
record of what it has seen may ignore `dont_filter`. Requests go back to it in two cases only:

    beyond `PARKED`    those still too early, behind all others of their priority, so that those that may go are found
    at the end         all that are parked, so that other processes, or the next crawl, have them

A request that the scheduler does not take stays here during the crawl, and is kept in JOBDIR at its end (`leftovers`).
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
from robots_guard.scrapy.deferral.leftovers import Leftovers
from robots_guard.scrapy.deferral.returning import ASIDE, demoted, is_returned, kept
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
REFUSALS = 3  # after which no more requests are handed back to the scheduler during the crawl
ITS_OWN = "scrapy.core.scheduler.Scheduler"


class GuardScheduler(BaseScheduler):
    """Wraps the scheduler named by ROBOTS_GUARD_FALLBACK_SCHEDULER. The add-on sets both where they are needed."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> GuardScheduler:
        """Ends the process if it is configured to wrap itself."""
        wrapped: Any = load_object(crawler.settings.get(FALLBACK_SCHEDULER) or ITS_OWN)
        if cls in getattr(wrapped, "__mro__", ()):  # to issubclass, Scrapy's schedulers all are of one family
            abort(SettingsError(f"{FALLBACK_SCHEDULER} names GuardScheduler itself: name the scheduler it is to wrap"))
        return cls(build_from_crawler(wrapped, crawler), Gate.of(crawler), Leftovers(crawler))

    def __init__(self, wrapped: Any, gate: Gate, leftovers: Leftovers) -> None:
        self._wrapped = wrapped
        self._gate = gate
        self._leftovers = leftovers
        self._gate.attached = True
        self._parked: dict[str, deque[Request]] = {}
        self._count = 0
        self._rests_until = 0.0
        self._has_grown = False  # by something handed back
        self._refusals = 0

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the scheduler beneath, and park what the job's last crawl has left beside it."""
        opened: Deferred[None] | None = self._wrapped.open(spider)
        for request in self._leftovers.take():
            self._park(self._gate.bucket(request), request)
        return opened

    def close(self, reason: str) -> Deferred[None] | None:
        """Put back all that is parked, and close the scheduler beneath."""
        parked = [kept(request) for line in self._parked.values() for request in line]
        lost = self._leftovers.keep([request for request in parked if not self._takes_back(request)])
        if lost:
            log.error(
                "robots_guard: requests lost because the scheduler did not take them back: %d (JOBDIR keeps them)",
                lost,
            )
        self._parked.clear()
        self._count = 0
        closed: Deferred[None] | None = self._wrapped.close(reason)
        return closed

    def _takes_back(self, request: Request) -> bool:
        """Hand a request back. Returns whether the scheduler beneath has it now.

        A scheduler that drops what it has seen may still return True. So that is trusted only after its length has
        grown by a request handed back. If other processes share its queue (Redis) they may have shortened it at the
        same time; the request may then be made twice.
        """
        before = self._length_beneath()
        try:
            taken = bool(self._wrapped.enqueue_request(request))
        except Exception:
            log.exception("robots_guard: %s could not be put back into the scheduler", shown_url(request.url))
            return False
        if not taken or self._has_grown:
            return taken
        self._has_grown = before is None or (self._length_beneath() or 0) > before
        return self._has_grown

    def _length_beneath(self) -> int | None:
        """The number of requests in the scheduler beneath; None if it has no length, which Scrapy does not require."""
        return len(self._wrapped) if hasattr(self._wrapped, "__len__") else None

    def has_pending_requests(self) -> bool:
        """Whether any are pending, parked ones included."""
        return self._count > 0 or bool(self._wrapped.has_pending_requests())

    def __len__(self) -> int:
        return self._count + len(self._wrapped)

    def enqueue_request(self, request: Request) -> bool:
        """Park a request that was deferred; hand any other to the scheduler beneath, which filters duplicates."""
        self._rests_until = 0.0  # a new one may be allowed to leave
        if not is_returned(request):
            return bool(self._wrapped.enqueue_request(request))
        # It left before those that are parked, so it goes in front; one that was set aside goes behind.
        self._park(self._gate.bucket(request), request, first=ASIDE not in request.meta)
        return True

    def next_request(self) -> Request | None:
        """A request that may leave; those that had to wait come first."""
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
        if self._count < PARKED or not self._takes_demoted(request):
            self._park(bucket, request)

    def _park(self, bucket: str, request: Request, *, first: bool = False) -> None:
        line = self._parked.setdefault(bucket, deque())
        if first:
            line.appendleft(request)
        else:
            line.append(request)
        self._count += 1

    def _takes_demoted(self, request: Request) -> bool:
        """Whether the scheduler beneath has taken the request back, behind all others of its priority."""
        if self._refusals >= REFUSALS:
            return False
        if self._takes_back(demoted(request)):
            return True
        self._refusals += 1
        if self._refusals == REFUSALS:
            log.warning(
                "%s does not take requests back: those that may not be made yet stay in memory, now %d",
                type(self._wrapped).__qualname__,
                self._count,
            )
        return False

    def _look_again(self) -> None:
        rest = REST if self._count >= PARKED else 0.0
        self._rests_until = time.monotonic() + rest
        call_later(rest, self._gate.wake)
