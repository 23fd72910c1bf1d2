"""The gate: drives `core.deferral` for one crawl.

No request sleeps in a middleware (measured: one hanging robots.txt then stalls the whole crawl, because requests
that wait there hold CONCURRENT_REQUESTS). A request that may not be made yet stays in the scheduler, or goes
back to it, and its origin stays shut. The machine decides which may leave; the gate sets a timer for its moments,
reads its keys from requests, and wakes the engine when something has opened.

A bucket is what the queue keeps together: the requests of one origin in one download slot. Requests that a rule
forbids for now (`on_disallowed = "defer"`) have their own buckets, so that the origin's other requests go on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

from robots_guard.core.deferral import REMEMBERED, Deferrals, group_due
from robots_guard.core.verdict import Decision, Reason
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.scrapy.deferral.returning import ASIDE, returned
from robots_guard.scrapy.deferral.timetable import Timetable

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class Gate:
    """Which origins of one crawl are shut. Shared by the memory queue, the disk queue and the middlewares.

    `unknown` is set by the middleware: whether a request's policy still has to be fetched. `attached`: whether a
    queue or scheduler consults this gate, as not all do. `deferrals` is the machine.
    """

    _gates: ClassVar[WeakKeyDictionary[Crawler, Gate]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self.attached = False
        self.unknown: Callable[[Request], bool] = _never
        self._crawler = crawler
        self.deferrals = Deferrals(REMEMBERED)
        self._timetable = Timetable(self._rang)
        self._scheduled: WeakSet[Request] = WeakSet()
        self._handed_out: Request | None = None  # by the queue, and not yet begun by the downloader
        self._standing = 0

    @classmethod
    def of(cls, crawler: Crawler) -> Gate:
        """The crawl's one gate."""
        return cls._gates.setdefault(crawler, cls(crawler))

    def bucket(self, request: Request) -> str:
        """The bucket a request belongs to: its slot, a space, and the key that shuts it."""
        slot: str = self._engine.downloader.get_slot_key(request)
        origin = _origin_of(request)
        if not origin:
            return slot
        aside = request.meta.get(ASIDE)
        return f"{slot} {origin}#{aside}" if aside else f"{slot} {origin}"

    def is_scheduled(self, request: Request) -> bool:
        """Whether the request came out of the queue, and so can go back to it."""
        return request in self._scheduled

    # -- the queue's side ---------------------------------------------------------------------------------

    def open_of(self, buckets: Iterable[str]) -> Iterable[str]:
        """The buckets that are not shut."""
        self._take_back_unbegun()
        if not self.deferrals:
            return buckets
        self.deferrals.settle(time.monotonic())
        return [bucket for bucket in buckets if self._is_open(bucket)]

    def admits(self, request: Request) -> bool:
        """Whether a request just popped may leave the queue; it may then have to go alone.

        This must be decided here: under asyncio many more are popped before the first of them reaches the middleware.
        """
        bucket = self.bucket(request)
        if not self.open_of((bucket,)):
            return False
        group, known = bucket.rpartition(" ")[2], not self.unknown(request)
        self.deferrals.admit(request, _origin_of(request), time.monotonic(), known=known, group=group)
        self._scheduled.add(request)
        self._handed_out = request
        return True

    def _is_open(self, bucket: str) -> bool:
        key = bucket.rpartition(" ")[2]
        return self.deferrals.is_open(key.partition("#")[0], key)

    # -- the downloader's side ----------------------------------------------------------------------------

    def begun(self, request: Request) -> None:
        """The downloader has the request, which it gets as soon as the queue hands it out."""
        if request is self._handed_out:
            self._handed_out = None

    def ended(self, request: Request) -> None:
        """The downloader is done with the request, whichever component ended it. The engine polls the queue again
        after each."""
        self.deferrals.free(request, time.monotonic())

    def _take_back_unbegun(self) -> None:
        """A request that the queue has handed out before, and that never got to the downloader, is lost."""
        if self._handed_out is not None:
            self.ended(self._handed_out)
            self._handed_out = None

    # -- the middlewares' side ----------------------------------------------------------------------------

    def send_back(self, request: Request, decision: Decision) -> Request:
        """Shut what the request waits for until it may be judged again. Returns the copy for the scheduler. One that a
        rule forbids goes into a bucket with all that are due at about the same time."""
        key, wait, aside = str(decision.question.origin), wait_of(decision), ""
        if decision.verdict.reason is Reason.DISALLOWED:
            due = group_due(decision.at, wait)
            aside, wait = f"{due:.6f}", due - decision.at
            key += f"#{aside}"
        self.deferrals.send_back(request, key, wait, time.monotonic())
        self._set_timer()
        return returned(request, decision, aside)

    def shut(self, origin: str, seconds: float) -> None:
        """Let no request go to an origin for so long, or longer if that was set before."""
        now = time.monotonic()
        self.deferrals.shut(origin, now + seconds, now)
        self._set_timer()

    def sent(self, request: Request, origin: str, delay: float) -> None:
        """A request of a paced origin is on the wire: the next may follow in `delay` seconds."""
        self.shut(origin, delay)
        self.release(request)

    def needs_learning(self, request: Request) -> bool:
        """Whether the request left the queue because its policy was unknown, and it still is."""
        return self.deferrals.is_probing(request) and self.unknown(request)

    def send_to_learn(self, request: Request) -> tuple[str, Request]:
        """Shut the request's origin until it is `learned`. Returns the origin, and the copy for the scheduler.

        So a robots.txt that hangs takes one of CONCURRENT_REQUESTS for its fetch, and none for a request.
        """
        return self.deferrals.fetch(request), returned(request)

    def learned(self, origin: str) -> None:
        """The origin's policy is known, or will not be for now."""
        self.deferrals.fetched(origin, time.monotonic())
        self.wake()

    def release(self, request: Request) -> None:
        """If the request was out alone, others may go now."""
        if self.deferrals.free(request, time.monotonic()):
            self.wake()

    @contextlib.contextmanager
    def standing_aside(self, request: Request) -> Iterator[None]:
        """Do not count a request among CONCURRENT_REQUESTS while it waits in a middleware and cannot be sent back: else
        sixteen images of a slow host would stop the crawl."""
        active = self._engine.downloader.active
        active.discard(request)
        self._standing += 1
        self.wake()
        try:
            yield
        finally:
            self._standing -= 1
            active.add(request)  # Scrapy takes it out when it has ended

    @property
    def anybody_stands_aside(self) -> bool:
        """Whether requests wait that Scrapy does not see: the crawl is not over."""
        return self._standing > 0

    def close(self) -> None:
        """The crawl is over."""
        self._timetable.stop()
        self.deferrals.clear()
        self._gates.pop(self._crawler, None)  # else the gate would keep its own key alive

    def _set_timer(self) -> None:
        self._timetable.ring_at(self.deferrals.due)

    def _rang(self) -> None:
        self.deferrals.settle(time.monotonic())
        self._set_timer()
        self.wake()

    def wake(self) -> None:
        """Have the engine poll the queue again. Private to Scrapy; without it, its heartbeat polls every 5 s."""
        slot = getattr(self._engine, "_slot", None)
        nextcall = getattr(slot, "nextcall", None)
        if nextcall is not None:
            nextcall.schedule()

    @property
    def _engine(self) -> Any:
        return self._crawler.engine


def wait_of(decision: Decision) -> float:
    """Seconds from the decision until the request may be judged again."""
    return max(0.0, (decision.verdict.until or decision.at) - decision.at)


def _origin_of(request: Request) -> str:
    """What the request is shut by; empty for what no robots.txt governs."""
    try:
        return str(split_url(request.url)[0])
    except (NotGoverned, MalformedURL):
        return ""


def _never(_request: Request) -> bool:
    return False
