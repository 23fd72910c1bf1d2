"""The gate: it drives the state machine of `decisions.deferral` for one crawl.

No request sleeps in a middleware (measured: one hanging robots.txt then stalls the whole crawl,
because requests that wait there count against CONCURRENT_REQUESTS). A request that may not be made
yet stays in the scheduler, or returns to it, and its origin stays closed. The state machine decides
which requests may leave; the gate sets a timer for its next event, derives its keys from requests,
and wakes the engine when a bucket has opened.

A bucket holds the requests of one origin in one download slot. Requests that a rule forbids for now
(`on_disallowed = "defer"`) have their own buckets, so that the origin's other requests go on.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from scrapy.utils.asyncio import call_later

from robots_guard.decisions.access import Scope
from robots_guard.decisions.deferral import REMEMBERED, Deferrals, group_due
from robots_guard.decisions.freshness import until_other_route
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Decision
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import ROBOTS_TXT, Origin, split_cached
from robots_guard.scrapy.deferral.buckets import Buckets
from robots_guard.scrapy.guarded_request import GROUP, GuardedRequests, give_back
from robots_guard.scrapy.patches.downloader_fetch import follow

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


LOOK_UP_EVERY = 1.0  # seconds
MAX_REMEMBERED = 10_000  # known origins; when there are more, all are forgotten
_SLOT = "download_slot"  # the key of a request's meta that names its slot, once it is in one


class OriginGate:
    """The closed origins of one crawl, and its requests. Shared by the memory queue, the disk queue
    and the middlewares.

    `CrawlGuard` sets two tests: `lacks_policy`, whether the policy of an origin still has to be
    fetched; and `is_exempt`, whether the operator has exempted a request from robots.txt. Nothing
    closes the bucket of an exempt request.
    `deferrals` is the state machine. `max_idle` is the most seconds that the crawl waits for a
    bucket to open, if it has nothing else to do.
    """

    _gates: ClassVar[WeakKeyDictionary[Crawler, OriginGate]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self.max_idle = math.inf
        self.requests = GuardedRequests()
        self.lacks_policy: Callable[[Origin], bool] = _never
        self.is_exempt: Callable[[Request], bool] = _never
        self._crawler = crawler
        self.deferrals = Deferrals(REMEMBERED, self._note_change)
        self._buckets: list[Buckets] = []
        self._timetable = _Timetable(self._reopen)
        self._handed_out: Request | None = None  # by the queue, and not yet begun by the downloader
        self._waiters = 0
        self._failed_routes: set[str] = set()  # two at most: more do not matter

    @classmethod
    def of(cls, crawler: Crawler) -> OriginGate:
        """The crawl's one gate."""
        return cls._gates.setdefault(crawler, cls(crawler))

    def bucket(self, request: Request) -> str:
        """The bucket a request belongs to: its slot, a space, and the key that closes it."""
        slot = str(self._engine.downloader.get_slot_key(request))
        key = self._key_of(request)
        if not key:
            return slot
        return f"{slot} {_group_of(request, key)}"

    # -- for the queues ----------------------------------------------------------------------------

    def attach(self, size: Callable[[str], int]) -> Buckets:
        """The buckets of one more queue or scheduler, which the gate keeps up to date.

        `size` returns the number of requests in a bucket.
        """
        buckets = Buckets(self.deferrals.is_open, size)
        self._buckets.append(buckets)
        return buckets

    @property
    def attached(self) -> bool:
        """Whether a queue or scheduler consults this gate, as not all do."""
        return bool(self._buckets)

    def next_bucket(self, buckets: Buckets) -> str | None:
        """The open bucket that is next; None if all are closed."""
        self._release_unbegun()
        self.deferrals.settle(time.monotonic())
        return buckets.next(self._downloads(buckets.open_slots))

    def is_worth_waiting_for(self, buckets: Buckets) -> bool:
        """Whether a bucket is open, or may open within `max_idle`."""
        moment = time.monotonic() + self.max_idle
        return any(
            self.deferrals.may_open_by(moment, bucket.origin, bucket.group)
            for _, bucket in buckets.items()
        )

    def left(self) -> dict[str, tuple[int, float]]:
        """By origin, how many requests are in the queues, and when it opens (monotonic seconds).

        Empty if one of them may leave within `max_idle`.
        """
        if any(map(self.is_worth_waiting_for, self._buckets)):
            return {}
        left: dict[str, tuple[int, float]] = {}
        for buckets in self._buckets:
            for name, bucket in buckets.items():
                count, opening = left.get(bucket.origin, (0, math.inf))
                opens = self.deferrals.opening(bucket.origin, bucket.group)
                left[bucket.origin] = count + buckets.size(name), min(opening, opens)
        return left

    def _downloads(self, slots: Collection[str]) -> dict[str, int]:
        """The number of requests in each slot of the downloader, without empty ones.

        Only these slots matter. All requests in a slot are among the downloader's active ones, and
        usually there are fewer of them than slots, here and in the downloader.
        """
        downloader = self._engine.downloader
        if len(downloader.active) < len(slots):
            slots = {request.meta.get(_SLOT) for request in downloader.active}
        found = ((slot, downloader.slots.get(slot)) for slot in slots)
        return {key: len(slot.active) for key, slot in found if slot is not None and slot.active}

    def admit(self, request: Request) -> bool:
        """Let a request just taken leave the queue, if its bucket is open; it may then be its
        origin's only one.

        This must be decided here: under asyncio many more are taken before the first of them
        reaches the middleware.
        """
        self._release_unbegun()
        key = self._key_of(request)
        has_left = self.deferrals.admit(
            request,
            key,
            time.monotonic(),
            known=not self._lacks_policy(request, key),
            group=_group_of(request, key),
        )
        if has_left:
            self.requests.of(request).is_scheduled = True
            self._handed_out = request
        return has_left

    def _origin_of(self, request: Request) -> Origin | None:
        """The origin that may close the request's bucket; None if no robots.txt governs it, or it is
        exempt.
        """
        if self.is_exempt(request):
            return None
        try:
            return split_cached(request.url)[0]
        except (NotGoverned, MalformedURL):
            return None

    def _key_of(self, request: Request) -> str:
        """The key of the origin that may close the request's bucket; "" if none may."""
        origin = self._origin_of(request)
        if origin is None:
            return ""
        key = _text_of(origin)
        if request.url.endswith(ROBOTS_TXT):
            return _closing_key(key, split_cached(request.url)[1])
        return key

    def _lacks_policy(self, request: Request, key: str) -> bool:
        """Whether the request will wait for a policy. One for a robots.txt needs none."""
        if not key or key.endswith(ROBOTS_TXT):
            return False
        return self.lacks_policy(split_cached(request.url)[0])

    def _note_change(self, key: str) -> None:
        for buckets in self._buckets:
            buckets.update(key)

    # -- for the downloader ------------------------------------------------------------------------

    def open(self) -> None:
        """Follow the requests in the downloader: the crawl has begun."""
        follow(self._crawler, self.mark_begun, self.mark_ended)

    def mark_begun(self, request: Request) -> None:
        """Record that the downloader has a request that the queue has handed out."""
        if request is self._handed_out:
            self._handed_out = None

    def mark_ended(self, request: Request) -> None:
        """Record that the downloader is done with the request, whichever component ended it.

        The engine polls the queue again after each.
        """
        self.deferrals.free(request, time.monotonic())

    def _release_unbegun(self) -> None:
        """Release the last request that the queue has handed out, if it never reached the
        downloader: it is lost."""
        if self._handed_out is not None:
            self.mark_ended(self._handed_out)
            self._handed_out = None

    # -- for the middlewares -----------------------------------------------------------------------

    def has_other_routes(self) -> bool:
        """Whether the project may choose another proxy for the next try, as it has before."""
        return len(self._failed_routes) > 1

    def send_back(self, request: Request, decision: Decision) -> Request:
        """Close the request's bucket until it may be judged again. Returns it, for the scheduler.

        A request that a rule forbids shares a bucket with those that are due at about the same
        time.
        """
        question = decision.question
        key = _closing_key(str(question.origin), question.target)
        wait = wait_of(decision)
        trouble = decision.policy.trouble if decision.policy is not None else None
        if trouble is not None and trouble.scope is Scope.ROUTE:
            if len(self._failed_routes) < 2:
                self._failed_routes.add(trouble.route)
            if self.has_other_routes():
                wait = min(wait, until_other_route(decision.at - trouble.since))
        group = ""
        if decision.verdict.reason is Reason.DISALLOWED:
            due = group_due(decision.at, wait)
            wait = due - decision.at
            group = f"{due:.6f}"
            key += f"#{group}"
        self.deferrals.send_back(request, key, wait, time.monotonic())
        self._set_timer()
        self.requests.of(request).wait()
        return give_back(request, decision, group)

    def shut(self, origin: str, seconds: float) -> None:
        """Close an origin for some seconds. An earlier call's end stays in force if it is later."""
        now = time.monotonic()
        self.deferrals.shut(origin, now + seconds, now)
        self._set_timer()

    def mark_sent(self, request: Request, origin: str, delay: float) -> None:
        """Record that a request to a paced origin is being sent: the next may follow in `delay`
        seconds."""
        self.shut(origin, delay)
        self.release(request)

    def needs_policy(self, request: Request) -> bool:
        """Whether the request left the queue because its policy was unknown, and it still is."""
        if not self.deferrals.is_probing(request):
            return False
        origin = self._origin_of(request)
        return origin is not None and self.lacks_policy(origin)

    def defer_for_policy(self, request: Request) -> tuple[str, Request]:
        """Close the request's origin until `policy_ready`. Returns the origin, and the request for
        the scheduler.

        So a robots.txt that hangs uses one of CONCURRENT_REQUESTS for its fetch, and none for a
        request.
        """
        self.requests.of(request).wait()
        return self.deferrals.fetch(request), give_back(request)

    def policy_ready(self, origin: str) -> None:
        """Reopen an origin whose policy is known, or cannot be fetched for now."""
        self.deferrals.fetched(origin, time.monotonic())
        self.wake()

    def release(self, request: Request) -> None:
        """Admit further requests to an origin if this was the only one admitted."""
        if self.deferrals.free(request, time.monotonic()):
            self.wake()

    @contextlib.contextmanager
    def outside_concurrency_limit(self, request: Request) -> Iterator[None]:
        """Do not count a request against CONCURRENT_REQUESTS while it waits in a middleware and
        cannot be rescheduled.

        Otherwise sixteen images of a slow host would stop the crawl.
        """
        active = self._engine.downloader.active
        active.discard(request)
        self._waiters += 1
        self.wake()
        try:
            yield
        finally:
            self._waiters -= 1
            active.add(request)  # Scrapy removes it when it has ended

    @property
    def has_waiters(self) -> bool:
        """Whether requests wait that Scrapy does not count as active, so that the crawl is not
        over."""
        return self._waiters > 0

    def close(self) -> None:
        """Stop the timer and forget all requests: the crawl is over."""
        self._timetable.stop()
        self.deferrals.clear()
        self._gates.pop(self._crawler, None)  # otherwise the gate would keep its own key alive

    def _set_timer(self) -> None:
        self._timetable.call_at(self.deferrals.due)

    def _reopen(self) -> None:
        self.deferrals.settle(time.monotonic())
        self._set_timer()
        self.wake()

    def wake(self) -> None:
        """Have the engine poll the queue again.

        This is private to Scrapy; without it, the engine's heartbeat polls every 5 s.
        """
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


_text_of = lru_cache(maxsize=8192)(str)


def _closing_key(origin: str, target: str) -> str:
    """The key that closes the bucket of a target's requests.

    Requests for robots.txt have a key of their own: what closes their origin, such as an unreachable
    robots.txt, need not close them. Such a request leaves the queue, is judged, and is sent back if
    it has to wait, too.
    """
    if target == ROBOTS_TXT:
        return origin + ROBOTS_TXT
    return origin


def _group_of(request: Request, origin: str) -> str:
    """The key of the request's group; that of its origin if it is in none."""
    group = request.meta.get(GROUP)
    if group and origin:
        return f"{origin}#{group}"
    return origin


def _never(*_: object) -> bool:
    return False


class _Timetable:
    """One timer, for the first moment at which something opens again.

    It calls `callback` at that moment (monotonic seconds), or slightly later.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._timer: Any = None
        self._due = 0.0

    def call_at(self, moment: float | None) -> None:
        """Call back at this moment, unless an earlier call is scheduled. None: do nothing."""
        if moment is None or (self._timer is not None and self._due <= moment):
            return
        self.stop()
        self._due = moment
        self._timer = call_later(max(0.0, moment - time.monotonic()), self._call)

    def stop(self) -> None:
        """Cancel the next call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        self._timer = None
        self._callback()


class KnownOrigins:
    """The origins whose policy can be used without waiting: it was fresh at the last look-up.

    For each request, the policy of its origin is needed twice: when the request leaves the queue,
    because the first request to an unknown origin leaves alone, and when it is judged. The second
    look-up determines the verdict, and is always made. The first only decides how requests leave
    the queue, so its result serves all requests of the origin for `LOOK_UP_EVERY` seconds, but no
    longer than the policy stays fresh. If memory loses the policy within that time, a request waits
    in the middleware instead of the queue.

    `fresh_for` returns the seconds for which an origin's policy stays fresh, or None if the origin
    has no usable policy. `clock` is monotonic, in seconds.
    """

    def __init__(
        self, fresh_for: Callable[[Origin], float | None], clock: Callable[[], float]
    ) -> None:
        self._fresh_for = fresh_for
        self._clock = clock
        self._known_until: dict[Origin, float] = {}

    def __contains__(self, origin: Origin) -> bool:
        now = self._clock()
        if now < self._known_until.get(origin, -math.inf):
            return True
        fresh_for = self._fresh_for(origin)
        if fresh_for is None:
            return False
        if len(self._known_until) >= MAX_REMEMBERED:
            self._known_until.clear()
        self._known_until[origin] = now + min(fresh_for, LOOK_UP_EVERY)
        return True
