"""The turns of an origin that wants time between requests.

    from the scheduler     the gate lets one out at a time; it takes the turn on the wire, or goes back
    past the scheduler     waits in line before the download slot, then the same

When an answer begins, the turn is moved on, here and in the store, so that no gap at the origin is shorter than it
looks from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals

from robots_guard.core.freshness import asked_to_wait
from robots_guard.core.pacing import LONGEST_HOLD_OFF, SLACK
from robots_guard.core.verdict import Action, Decision
from robots_guard.guard import Guard
from robots_guard.origin import Origin
from robots_guard.scrapy.deferral.gate import Gate
from robots_guard.scrapy.deferral.wire import Send
from robots_guard.scrapy.errors import NotYet, RobotsDeferred, RobotsDisallowed
from robots_guard.scrapy.runtime import HostRuntime

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

NAP = 0.1  # seconds of a wait that is waited for on the wire


class Pacing:
    """The turns of one crawl. `hold_max` is how many seconds a request that cannot go back waits for one."""

    def __init__(
        self,
        crawler: Crawler,
        *,
        guard: Guard,
        gate: Gate,
        runtime: HostRuntime,
        hold_max: float,
        now: Callable[[], float],
    ) -> None:
        self._crawler = crawler
        self._guard = guard
        self._gate = gate
        self._runtime = runtime
        self._hold_max = hold_max
        self._now = now
        self._free: WeakKeyDictionary[Request, Decision] = WeakKeyDictionary()  # for all that was known then
        self._expected: WeakKeyDictionary[Request, Decision] = WeakKeyDictionary()
        self._sent: WeakKeyDictionary[Request, Decision] = WeakKeyDictionary()
        self.is_on_wire = False  # whether all requests come by `travel`
        self._is_listening = False

    def expect(self, request: Request, decision: Decision | None) -> None:
        """A request has been allowed; it needs a turn if the decision says so."""
        pace = decision.verdict.pace if decision is not None else None
        if decision is None or pace is None:
            if self._gate.deferrals.has_paced and decision is not None and decision.policy is not None:
                self._gate.deferrals.note_unpaced(str(decision.question.origin))  # its file has changed
            if decision is not None:
                self._free[request] = decision
            self._gate.release(request)
            return
        self._listen()
        self._expected[request] = decision
        if self._seconds(decision):
            self._gate.deferrals.note_paced(str(decision.question.origin))

    def _listen(self) -> None:
        """Connect the receiver when the first origin wants time: it costs every response of the crawl something."""
        if not self._is_listening:
            self._is_listening = True
            self._crawler.signals.connect(self._headers_received, signals.headers_received)

    def must_wait(self, request: Request) -> bool:
        """Whether the last middleware has to await `before_slot`."""
        decision = self._expected.get(request)
        if decision is None or decision.turn is not None:
            return False
        return not (self.is_on_wire and self._gate.is_scheduled(request))

    async def before_slot(self, request: Request) -> None:
        """Get the turn in the last middleware. Raises RobotsDisallowed, RobotsDeferred or NotYet."""
        if self._gate.is_scheduled(request):
            return await self._take(request)  # this downloader has no wire that we know
        patience = self._patience(self._expected[request])
        with self._gate.standing_aside(request):
            decision = await self._guard.turn(self._expected.pop(request), patience)
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        if decision.verdict.action is Action.DEFER:
            raise RobotsDeferred(decision)
        if decision.turn is not None:
            self._expected[request] = decision
        return None

    def has_patience(self, decision: Decision) -> bool:
        """Whether a request that bypasses the scheduler, deferred by this decision, may wait again."""
        return self._patience(decision) > 0

    def _patience(self, decision: Decision) -> float:
        """Seconds that are left of it, since the request was put off first."""
        deferral = decision.question.deferral
        return self._hold_max if deferral is None else max(0.0, self._hold_max - (self._now() - deferral.since))

    # -- on the wire --------------------------------------------------------------------------------------

    async def travel(self, request: Request, send: Send) -> Response:
        """Send a request when it is its turn. Raises NotYet when it is not, and RobotsDisallowed when a robots.txt
        that was read meanwhile forbids it."""
        self._recall(request)
        if request in self._expected:
            await self._take(request)
        try:
            return await send(request)
        finally:
            self._answered(request)

    def _recall(self, request: Request) -> None:
        """While it lay in the slot's queue, its origin may have asked for a pause."""
        decision = self._free.pop(request, None)
        if decision is None:
            return
        recalled = self._guard.recalled(decision)
        if recalled is not decision:
            self._expected[request] = recalled

    async def _take(self, request: Request) -> None:
        """The turn, now; raises NotYet or RobotsDisallowed. One that has lain long in the slot's queue is moved to now,
        or is given up for another."""
        decision = self._expected.pop(request)
        taken = await self._guard.turn(decision, NAP)
        if taken.verdict.action is Action.DROP:
            raise RobotsDisallowed(taken)
        if taken.verdict.action is Action.DEFER:
            raise NotYet(taken)
        if taken.turn is not None:  # where nothing is refused (`mode = "report"`), one goes without
            self._sent[request] = self._guard.leaves(taken)
        self._gate.sent(request, str(decision.question.origin), self._seconds(decision))

    def count(self, decision: Decision) -> None:
        """Delay the next request to an origin that was visited without a turn, at least in this process."""
        if seconds := self._seconds(decision):
            self._gate.shut(str(decision.question.origin), seconds)

    # -- what the answer tells ----------------------------------------------------------------------------

    def _headers_received(self, request: Request) -> None:
        self._answered(request)

    def _answered(self, request: Request) -> None:
        decision = self._sent.pop(request, None)
        if decision is None:
            return
        late = self._now() - decision.turn_taken_at - SLACK
        self._gate.shut(str(decision.question.origin), self._seconds(decision) - max(0.0, late))
        self._runtime.spawn(self._guard.answered(decision))

    async def hold_off(self, origin: Origin, response: Response) -> None:
        """Pause the origin for as long as the answer asks for, if it does."""
        retry_after = response.headers.get("Retry-After", b"")
        headers = {"retry-after": retry_after.decode("latin-1")} if retry_after else {}
        seconds = asked_to_wait(response.status, headers, self._now())
        if seconds:
            await self._guard.hold_off(origin, seconds)
            if self._guard.is_held_off(origin) and not self._guard.reports_only:
                self._gate.shut(str(origin), min(seconds, LONGEST_HOLD_OFF))

    def _seconds(self, decision: Decision) -> float:
        """What a decision asks for between two requests; where nothing is refused, nothing waits."""
        pace = decision.verdict.pace
        return pace.seconds if pace is not None and not self._guard.reports_only else 0.0
