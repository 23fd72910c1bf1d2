"""A wrapper that restricts any other scheduler by the gate: scrapy-redis's, or a project's own.

Such a scheduler has no buckets to close, so a request that comes out too early is parked here, in
order, one queue per bucket; and so is a request that the middlewares defer. The scheduler might
refuse it if it were handed back: one with its own record of seen requests may ignore `dont_filter`.
Requests are handed back in two cases only:

    beyond `MAX_PARKED`    requests still too early, behind all others of their priority, so that the
                           search reaches those that may leave
    at the end             all parked requests, so that other processes or the next crawl have them

A request that the scheduler does not take stays here during the crawl, and is stored in JOBDIR at
its end (`Leftovers`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import BaseScheduler
from scrapy.squeues import PickleFifoDiskQueue
from scrapy.utils.asyncio import call_later
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler, load_object

from robots_guard.audit.record import shown_url
from robots_guard.errors import SettingsError
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.errors import abort
from robots_guard.scrapy.guarded_request import GROUP, demote, is_returned, unpark
from robots_guard.scrapy.options import FALLBACK_SCHEDULER

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

log = logging.getLogger("robots_guard")

MAX_PARKED = 5000  # requests
# seconds of searching for a request that may leave, before the event loop runs again
MAX_SEARCH = 0.02
SEARCH_PAUSE = 0.1  # seconds until the next search, if MAX_PARKED are parked
MAX_REFUSALS = 3  # after these no more requests are handed back to the scheduler during the crawl
DEFAULT_SCHEDULER = "scrapy.core.scheduler.Scheduler"
FOLDER = "robots_guard.requests"  # of the leftovers, in JOBDIR


class GuardScheduler(BaseScheduler):
    """Wraps the scheduler named by ROBOTS_GUARD_FALLBACK_SCHEDULER.

    The add-on sets both where necessary. What this class does not define is that of the wrapped
    scheduler, which a project's extensions may use.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> GuardScheduler:
        """Create the scheduler and the one it wraps.

        Ends the process if it is configured to wrap itself.
        """
        named = crawler.settings.get(FALLBACK_SCHEDULER) or DEFAULT_SCHEDULER
        wrapped: Any = load_object(named)
        # issubclass accepts any class with these methods
        if cls in getattr(wrapped, "__mro__", ()):
            abort(
                SettingsError(
                    f"{FALLBACK_SCHEDULER} names GuardScheduler itself: name the scheduler it should wrap"
                )
            )
        return cls(build_from_crawler(wrapped, crawler), OriginGate.of(crawler), Leftovers(crawler))

    def __init__(self, wrapped: Any, gate: OriginGate, leftovers: Leftovers) -> None:
        self._gate = gate
        self._leftovers = leftovers
        self._parked: dict[str, deque[Request]] = {}
        self._buckets = gate.attach(lambda bucket: len(self._parked[bucket]))
        self._count = 0
        self._paused_until = 0.0
        # whether a request handed back has made the wrapped scheduler longer
        self._has_grown = False
        self._refusals = 0
        self._wrapped = wrapped  # set last: any attribute set later is the wrapped scheduler's

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self).get("_wrapped"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        is_own = name in vars(self) or "_wrapped" not in vars(self)
        if is_own:
            object.__setattr__(self, name, value)
        else:
            setattr(self._wrapped, name, value)

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the wrapped scheduler, and park the leftovers of the job's last crawl."""
        opened: Deferred[None] | None = None
        if hasattr(self._wrapped, "open"):  # Scrapy requires neither this nor `close`
            opened = self._wrapped.open(spider)
        for request in self._leftovers.take():
            self._park(self._gate.bucket(request), request)
        return opened

    def close(self, reason: str) -> Deferred[None] | None:
        """Hand back all parked requests, and close the wrapped scheduler."""
        parked = [unpark(request) for queue in self._parked.values() for request in queue]
        lost = self._leftovers.keep([request for request in parked if not self._hand_back(request)])
        if lost:
            log.error(
                "robots_guard: requests lost because the scheduler did not take them back: %d (set JOBDIR)",
                lost,
            )
        for bucket in list(self._parked):
            self._buckets.discard(bucket)
        self._parked.clear()
        self._count = 0
        closed: Deferred[None] | None = None
        if hasattr(self._wrapped, "close"):
            closed = self._wrapped.close(reason)
        return closed

    def _hand_back(self, request: Request) -> bool:
        """Hand a request back. Returns whether the wrapped scheduler has it now.

        A scheduler that drops requests it has seen may still return True. So True is trusted only
        after its length has grown by a request handed back. Other processes that share its queue
        (Redis) may shorten it at the same time; the request may then be made twice.
        """
        before = self._wrapped_length()
        try:
            was_taken = bool(self._wrapped.enqueue_request(request))
        except Exception:
            log.exception(
                "robots_guard: %s could not be handed back to the scheduler", shown_url(request.url)
            )
            return False
        if not was_taken or self._has_grown:
            return was_taken
        self._has_grown = before is None or (self._wrapped_length() or 0) > before
        return self._has_grown

    def _wrapped_length(self) -> int | None:
        """The number of requests in the wrapped scheduler; None if it has no length, which Scrapy
        does not require."""
        if hasattr(self._wrapped, "__len__"):
            return len(self._wrapped)
        return None

    def has_pending_requests(self) -> bool:
        """Whether requests are pending, parked ones included if they may leave within
        `max_idle`."""
        if self._count and self._gate.is_worth_waiting_for(self._buckets):
            return True
        return bool(self._wrapped.has_pending_requests())

    def __len__(self) -> int:
        return self._count + len(self._wrapped)

    def enqueue_request(self, request: Request) -> bool:
        """Park a deferred request; hand any other to the wrapped scheduler, which filters
        duplicates."""
        self._paused_until = 0.0  # a new one may be allowed to leave
        if not is_returned(request):
            return bool(self._wrapped.enqueue_request(request))
        # It left before the parked ones, so it goes to the front; one that a rule forbids for now
        # goes to the back.
        self._park(self._gate.bucket(request), request, first=GROUP not in request.meta)
        return True

    def next_request(self) -> Request | None:
        """The next request that may leave. Parked ones come first."""
        return self._next_parked() or self._next_wrapped()

    def _next_parked(self) -> Request | None:
        while (bucket := self._gate.next_bucket(self._buckets)) is not None:
            request = self._unpark(bucket)
            if self._gate.admit(request):
                return request
            # it belongs to another bucket by now, which is closed
            self._park(self._gate.bucket(request), request)
        return None

    def _unpark(self, bucket: str) -> Request:
        self._count -= 1
        self._buckets.mark_taken(bucket)
        queue = self._parked[bucket]
        request = queue.popleft()
        if not queue:
            del self._parked[bucket]
            self._buckets.discard(bucket)
        return request

    def _next_wrapped(self) -> Request | None:
        start = time.monotonic()
        if start < self._paused_until:
            return None
        while time.monotonic() < start + MAX_SEARCH:
            request: Request | None = self._wrapped.next_request()
            if request is None:
                return None
            bucket = self._gate.bucket(request)
            if bucket not in self._parked and self._gate.admit(request):
                return request
            self._park_or_demote(bucket, request)
        self._search_later()
        return None

    def _park_or_demote(self, bucket: str, request: Request) -> None:
        """Park the request, or hand it back if MAX_PARKED are parked."""
        if self._count < MAX_PARKED or not self._demote(request):
            self._park(bucket, request)

    def _park(self, bucket: str, request: Request, *, first: bool = False) -> None:
        queue = self._parked.setdefault(bucket, deque())
        self._buckets.add(bucket)
        if first:
            queue.appendleft(request)
        else:
            queue.append(request)
        self._count += 1

    def _demote(self, request: Request) -> bool:
        """Hand the request back behind all others of its priority.

        Returns whether the wrapped scheduler took it.
        """
        if self._refusals >= MAX_REFUSALS:
            return False
        if self._hand_back(demote(request)):
            return True
        self._refusals += 1
        if self._refusals == MAX_REFUSALS:
            log.warning(
                "%s does not take requests back: those that may not be made yet stay in memory, now %d",
                type(self._wrapped).__qualname__,
                self._count,
            )
        return False

    def _search_later(self) -> None:
        pause = SEARCH_PAUSE if self._count >= MAX_PARKED else 0.0
        self._paused_until = time.monotonic() + pause
        call_later(pause, self._gate.wake)


class Leftovers:
    """The requests of a stopped crawl that its scheduler does not take back.

    They are stored for the job's next crawl in a separate disk queue in JOBDIR, in Scrapy's own
    format. Without JOBDIR they are lost.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = Path(folder, FOLDER) if folder else None

    def take(self) -> list[Request]:
        """Remove the requests of the job's last crawl from the queue, and return them."""
        if self._path is None or not self._path.exists():
            return []
        queue = self._queue(self._path)
        try:
            return list(iter(queue.pop, None))
        finally:
            queue.close()

    def keep(self, requests: Iterable[Request]) -> int:
        """Write requests for the job's next crawl. Returns how many could not be written."""
        remaining = list(requests)
        if self._path is None or not remaining:
            return len(remaining)
        queue = self._queue(self._path)
        try:
            return sum(not _write(request, queue) for request in remaining)
        finally:
            queue.close()

    def _queue(self, path: Path) -> Any:
        # a generated class, whose type does not declare its methods
        queue_class: Any = PickleFifoDiskQueue
        return queue_class.from_crawler(self._crawler, str(path))


def _write(request: Request, queue: Any) -> bool:
    """Write one request. Returns False if it cannot be written, so that the caller can go on."""
    try:
        queue.push(request)
    except (ValueError, OSError) as error:
        log.error(
            "robots_guard: %s cannot be stored for the job's next crawl: %s",
            shown_url(request.url),
            error,
        )
        return False
    return True
