"""The gate: which requests may leave the scheduler.

Nobody sleeps in a middleware (measured: one hanging robots.txt then stalls the whole crawl, because requests
that wait there hold CONCURRENT_REQUESTS). A request that may not be made yet stays in the scheduler, or goes
back to it, and its origin stays shut. It is shut

    while one is out         a request on its way to the middleware because nobody knows the policy yet, or, where
                             the site wants time between requests, on its way to the wire
    while it is learned      the middleware has sent the first back and is having the policy fetched
    until a moment           its next turn, or when its unreachable robots.txt is to be tried again

A bucket is what the queue keeps together: the requests of one origin in one download slot. What a rule forbids
today (`on_disallowed = "defer"`) lies in buckets of its own, so that the origin's other requests go on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

from cachetools import LRUCache

from robots_guard.core.verdict import Decision, Reason
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.scrapy.deferral.returning import ASIDE, returned
from robots_guard.scrapy.deferral.timetable import Timetable

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

SHORTEST = 0.05  # seconds an origin stays shut at least, so that going back and forth never becomes a busy loop
REMEMBERED = 10_000  # origins; an evicted one is noted again by the next decision on it


class Gate:
    """Which origins of one crawl are shut. Shared by the memory queue, the disk queue and the middlewares.

    `unknown` is the middleware's answer to whether a request's policy still has to be fetched. `attached` is
    whether a queue or scheduler asks this gate at all: others do not.

    What is kept for an origin beyond its requests is bounded to the last `REMEMBERED` origins: those that want time
    between requests, and those whose policy has just been learned. Their requests leave one at a time, which saves the
    others the way to the wire and back; the turns keep the delay in any case.
    """

    _gates: ClassVar[WeakKeyDictionary[Crawler, Gate]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self.attached = False
        self.unknown: Callable[[Request], bool] = _never
        self._crawler = crawler
        self._timetable = Timetable(self.wake)
        self._out: dict[str, Request] = {}
        self._asking: WeakSet[Request] = WeakSet()  # those that are out for want of a policy
        self._learning: set[str] = set()
        self._paced: LRUCache[str, bool] = LRUCache(REMEMBERED)
        # The next request of an origin just learned goes alone: it may be the one to shut the origin.
        self._learned: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._scheduled: WeakSet[Request] = WeakSet()
        self._standing = 0

    @classmethod
    def of(cls, crawler: Crawler) -> Gate:
        """The crawl's one gate."""
        return cls._gates.setdefault(crawler, cls(crawler))

    def bucket(self, request: Request) -> str:
        """The bucket a request belongs to: its slot, a space, and what it is shut by."""
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
        """Those that are not shut."""
        if not self._any_shut():
            return buckets
        self._settle()
        return [bucket for bucket in buckets if self._is_open(bucket)]

    def admits(self, request: Request) -> bool:
        """Whether a request just popped may leave the queue; if so, it may be one that goes alone.

        Must be settled here: under asyncio many more are popped before the first of them reaches the middleware.
        """
        if self._any_shut() and not self.open_of((self.bucket(request),)):
            return False
        self._scheduled.add(request)
        origin = _origin_of(request)
        if self._learned.pop(origin, False):
            self._out[origin] = request
        elif self.unknown(request):
            self._out[origin] = request
            self._asking.add(request)
        elif self._paced.get(origin):
            self._out[origin] = request
        return True

    def _any_shut(self) -> bool:
        return bool(self._timetable or self._out or self._learning)

    def _is_open(self, bucket: str) -> bool:
        key = bucket.rpartition(" ")[2]
        if key in self._timetable or key in self._out or key in self._learning:
            return False
        return "#" not in key or self._is_open(key.partition("#")[0])

    def _settle(self) -> None:
        """Forget moments that have passed, and those out whom another middleware has ended."""
        self._timetable.settle()
        active = self._engine.downloader.active
        for origin in [origin for origin, request in self._out.items() if request not in active]:
            del self._out[origin]

    # -- the middlewares' side ----------------------------------------------------------------------------

    def send_back(self, request: Request, decision: Decision) -> Request:
        """Shut what the request waits for until it may be asked again; the copy to return to the scheduler."""
        if decision.verdict.reason is Reason.DISALLOWED:
            return self._set_aside(request, decision)
        self.shut(str(decision.question.origin), max(SHORTEST, wait_of(decision)))
        return returned(request, decision)

    def _set_aside(self, request: Request, decision: Decision) -> Request:
        """Into a bucket of all that is due at about the same time: what is to be looked at is then not covered up by
        what came later, and there are never more than some nine of them."""
        wait = wait_of(decision)
        grain = 2.0 ** math.floor(math.log2(max(wait, SHORTEST) / 8))
        due = math.ceil((decision.at + wait) / grain) * grain
        aside = f"{due:.6f}"
        self.shut(f"{decision.question.origin}#{aside}", max(SHORTEST, due - decision.at))
        return returned(request, decision, aside)

    def shut(self, origin: str, seconds: float) -> None:
        """Let nobody go to an origin for so long; never for less than was said before."""
        self._timetable.shut(origin, seconds)

    @property
    def has_paced(self) -> bool:
        """Whether any origin is known to want time between requests."""
        return bool(self._paced)

    def note_paced(self, origin: str) -> None:
        """Note that the origin wants time between requests."""
        self._paced[origin] = True

    def note_unpaced(self, origin: str) -> None:
        """Note that the origin wants no time between requests, or no longer."""
        self._paced.pop(origin, None)

    def sent(self, request: Request, origin: str, delay: float) -> None:
        """A request of a paced origin is on the wire: the next in `delay` seconds."""
        self.shut(origin, delay)
        self.release(request)

    def needs_learning(self, request: Request) -> bool:
        """Whether the request left the queue for want of a policy, and nobody has got it meanwhile."""
        return bool(self._out) and request in self._asking and self.unknown(request)

    def send_to_learn(self, request: Request) -> tuple[str, Request]:
        """Shut the request's origin until it is `learned`: the origin, and the copy to return to the scheduler.

        So a robots.txt that hangs costs one of CONCURRENT_REQUESTS, its own fetch, and not that of a request too.
        """
        origin = _origin_of(request)
        self._learning.add(origin)
        return origin, returned(request)

    def learned(self, origin: str) -> None:
        """The origin's policy is known, or will not be for now."""
        self._learning.discard(origin)
        self._learned[origin] = True
        self.wake()

    def release(self, request: Request) -> None:
        """If the request was out alone, others may go now."""
        for origin, out in self._out.items():
            if out is request:
                del self._out[origin]
                self.wake()
                return

    @contextlib.contextmanager
    def standing_aside(self, request: Request) -> Iterator[None]:
        """While a request that cannot be sent back waits in a middleware, it is none of CONCURRENT_REQUESTS: else
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
        """Whether the crawl is not over though Scrapy sees no request."""
        return self._standing > 0

    def close(self) -> None:
        """The crawl is over."""
        self._timetable.clear()
        self._learning.clear()
        self._learned.clear()
        self._paced.clear()
        self._gates.pop(self._crawler, None)  # else the gate would keep its own key alive

    def wake(self) -> None:
        """Have the engine ask the queue again. Private to Scrapy; without it, its heartbeat asks every 5 s."""
        slot = getattr(self._engine, "_slot", None)
        nextcall = getattr(slot, "nextcall", None)
        if nextcall is not None:
            nextcall.schedule()

    @property
    def _engine(self) -> Any:
        return self._crawler.engine


def wait_of(decision: Decision) -> float:
    """Seconds from the decision until it may be asked again."""
    return max(0.0, (decision.verdict.until or decision.at) - decision.at)


def _origin_of(request: Request) -> str:
    """What the request is shut by; empty for what no robots.txt governs."""
    try:
        return str(split_url(request.url)[0])
    except (NotGoverned, MalformedURL):
        return ""


def _never(_request: Request) -> bool:
    return False
