"""Deferral: a priority queue whose buckets can be shut, and the gate that shuts them.

Nobody sleeps in a middleware (measured: one hanging robots.txt then stalls the whole crawl, because requests
that wait there hold CONCURRENT_REQUESTS). A request that may not be made yet stays in the scheduler, or goes
back to it, and its bucket stays shut. Scrapy's engine expects just this: a scheduler that has pending requests
and returns none. So pending requests are counted, the spider stays open, JOBDIR keeps them, and the format on
disk is that of DownloaderAwarePriorityQueue.

A bucket is what one robots.txt governs inside one download slot. It is shut

    while a probe is out     one request, on its way to the middleware because nobody knows the policy yet
    while it is learned      the middleware has sent the probe back and is having the policy fetched
    until a moment           when the origin's unreachable robots.txt is to be tried again

Knows Scrapy's slots and queues, and is the only file here that does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface
from scrapy.utils.asyncio import call_later

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

#: Meta key of a request that went back: its own `dont_filter`, restored when it comes round again.
RETURNED = "_robots_guard_df"
SHORTEST = 0.05  # seconds a bucket stays shut at least, so that going back and forth never becomes a busy loop


class Gate:
    """Which buckets of one crawl are shut. Shared by the memory queue, the disk queue and the middleware.

    `unknown` is the middleware's answer to whether a request's policy still has to be fetched. `attached` is
    whether a queue asks this gate at all: other schedulers and queues do not.
    """

    _gates: ClassVar[WeakKeyDictionary[Crawler, Gate]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self.attached = False
        self.unknown: Callable[[Request], bool] = _never
        self._crawler = crawler
        self._opens: dict[str, float] = {}
        self._first = math.inf  # the earliest of them
        self._probes: dict[str, Request] = {}
        self._learning: set[str] = set()
        self._learned: set[str] = set()  # their next request goes alone: it may be the one to shut the bucket
        self._scheduled: WeakSet[Request] = WeakSet()
        self._timer: Any = None

    @classmethod
    def of(cls, crawler: Crawler) -> Gate:
        """The crawl's one gate."""
        return cls._gates.setdefault(crawler, cls(crawler))

    def bucket(self, request: Request) -> str:
        """The bucket a request belongs to."""
        slot: str = self._engine.downloader.get_slot_key(request)
        try:
            return f"{slot} {split_url(request.url)[0]}"
        except (NotGoverned, MalformedURL):
            return slot

    def is_scheduled(self, request: Request) -> bool:
        """Whether the request came out of the queue, and so can go back to it."""
        return request in self._scheduled

    # -- the queue's side ---------------------------------------------------------------------------------

    def open_of(self, buckets: Iterable[str]) -> Iterable[str]:
        """Those that are not shut."""
        if not self._shut_buckets:
            return buckets
        self._settle()
        return [bucket for bucket in buckets if not any(bucket in shut for shut in self._shut_buckets)]

    def admits(self, request: Request) -> bool:
        """Whether a request just popped may leave the queue. If its policy is unknown, or new, it is the probe.

        Must be settled here: under asyncio many more are popped before the first of them reaches the middleware.
        """
        if self._shut_buckets and not self.open_of((self.bucket(request),)):
            return False
        self._scheduled.add(request)
        bucket = self.bucket(request)
        if bucket in self._learned or self.unknown(request):
            self._learned.discard(bucket)
            self._probes[bucket] = request
        return True

    def _settle(self) -> None:
        """Forget moments that have passed, and probes that another middleware has ended."""
        now = time.monotonic()
        if now >= self._first:
            self._opens = {bucket: moment for bucket, moment in self._opens.items() if moment > now}
            self._first = min(self._opens.values(), default=math.inf)
            self._set_timer()
        active = self._engine.downloader.active
        for bucket in [bucket for bucket, probe in self._probes.items() if probe not in active]:
            del self._probes[bucket]

    @property
    def _shut_buckets(self) -> list[Container[str]]:
        """Why buckets are shut, as far as any is."""
        return [shut for shut in (self._opens, self._probes, self._learning) if shut]

    # -- the middleware's side ----------------------------------------------------------------------------

    def send_back(self, request: Request, wait: float) -> Request:
        """Shut the request's bucket for `wait` seconds; the copy to return to the scheduler."""
        self._shut(self.bucket(request), time.monotonic() + max(wait, SHORTEST))
        return _returned(request)

    def needs_learning(self, request: Request) -> bool:
        """Whether the request left the queue for want of a policy, and nobody has got it meanwhile."""
        return any(probe is request for probe in self._probes.values()) and self.unknown(request)

    def send_to_learn(self, request: Request) -> tuple[str, Request]:
        """Shut a probe's bucket until it is `learned`: the bucket, and the copy to return to the scheduler.

        So a robots.txt that hangs costs one of CONCURRENT_REQUESTS, its own fetch, and not that of a request too.
        """
        bucket = self.bucket(request)
        self._learning.add(bucket)
        return bucket, _returned(request)

    def learned(self, bucket: str) -> None:
        """The bucket's policy is known, or will not be for now."""
        self._learning.discard(bucket)
        self._learned.add(bucket)
        self._wake()

    def release(self, request: Request) -> None:
        """The request's policy is known, or will not be by this request: if it was a probe, it is none now."""
        for bucket, probe in self._probes.items():
            if probe is request:
                del self._probes[bucket]
                self._wake()
                return

    def close(self) -> None:
        """The crawl is over."""
        self._opens, self._first = {}, math.inf
        self._learning.clear()
        self._learned.clear()
        self._set_timer()
        self._gates.pop(self._crawler, None)  # else the gate would keep its own key alive

    def _shut(self, bucket: str, moment: float) -> None:
        self._opens[bucket] = max(moment, self._opens.get(bucket, 0.0))
        if moment < self._first:
            self._first = moment
            self._set_timer()

    def _set_timer(self) -> None:
        """One timer, for the bucket that opens first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._first < math.inf:
            self._timer = call_later(max(0.0, self._first - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._settle()
        if self._timer is None:
            self._set_timer()
        self._wake()

    def _wake(self) -> None:
        """Have the engine ask the queue again. Private to Scrapy; without it, its heartbeat asks every 5 s."""
        slot = getattr(self._engine, "_slot", None)
        nextcall = getattr(slot, "nextcall", None)
        if nextcall is not None:
            nextcall.schedule()

    @property
    def _engine(self) -> Any:
        return self._crawler.engine


def _never(_request: Request) -> bool:
    return False


def _returned(request: Request) -> Request:
    """The request as it goes back to the scheduler."""
    copy = request.copy()
    copy.meta[RETURNED] = request.dont_filter
    copy.dont_filter = True  # the dupefilter has seen it
    return copy


def restore(request: Request) -> bool:
    """Undo what `_returned` did to a request that has come round again; whether it has."""
    if RETURNED not in request.meta:
        return False
    request.dont_filter = request.meta.pop(RETURNED)
    return True


class _Buckets(DownloaderInterface):
    """What the queue sees of the downloader: open buckets only."""

    def __init__(self, crawler: Crawler, gate: Gate) -> None:
        super().__init__(crawler)
        self._gate = gate

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        busy = {slot: len(use.active) for slot, use in self.downloader.slots.items() if use.active}
        buckets = self._gate.open_of(possible_slots)
        # Of a job begun without us, a bucket bears the name of its slot.
        return [(busy.get(bucket.rpartition(" ")[0] or bucket, 0), bucket) for bucket in buckets]

    def get_slot_key(self, request: Request) -> str:
        return self._gate.bucket(request)


class GuardPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, with buckets that can be shut.

    A job begun with DownloaderAwarePriorityQueue can be resumed with this one, and the other way round.
    """

    def __init__(self, crawler: Crawler, *args: Any, **kwargs: Any) -> None:
        super().__init__(crawler, *args, **kwargs)
        self._gate = Gate.of(crawler)
        if hasattr(self, "_downloader_interface"):
            self._downloader_interface = _Buckets(crawler, self._gate)
            self._gate.attached = True

    def pop(self) -> Request | None:
        """The next request of an open bucket."""
        while (request := super().pop()) is not None:
            if self._gate.admits(request):
                return request
            self.push(request)  # from a bucket of a job begun without us: into its own, which is shut
        return None
