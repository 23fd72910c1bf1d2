"""Pacing: the turns of origins that require a delay between requests.

    scheduled requests      the gate admits one at a time, which takes its turn in the handler hook
                            or goes back
    requests that bypass    wait in the turn queue before the download slot, then take their turn
    the scheduler           in the handler hook

When a response begins, the turn is moved forward, here and in the store, so that no gap at the
origin is shorter than it appears to this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals

from robots_guard.decisions.freshness import asked_to_wait
from robots_guard.decisions.pacing import LONGEST_PAUSE, MAX_TURN_AGE
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.errors import NotYet, RobotsDeferred, RobotsDisallowed
from robots_guard.scrapy.passed_requests import PassedRequests
from robots_guard.scrapy.patches.handler_hook import Send
from robots_guard.scrapy.runtime import ScrapyRuntime

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

MAX_INLINE_WAIT = 0.1  # seconds that a request waits for its turn in the handler hook


class Pacing:
    """The turns of one crawl.

    `passed_requests` are those that may be sent. `hold_max` is how many seconds a request that
    cannot be rescheduled waits for a turn.
    """

    def __init__(
        self,
        crawler: Crawler,
        *,
        guard: Guard,
        gate: OriginGate,
        runtime: ScrapyRuntime,
        passed_requests: PassedRequests,
        hold_max: float,
        now: Callable[[], float],
    ) -> None:
        self._crawler = crawler
        self._guard = guard
        self._gate = gate
        self._runtime = runtime
        self._passed = passed_requests
        self._hold_max = hold_max
        self._now = now
        self._with_turn: WeakKeyDictionary[Request, Decision] = WeakKeyDictionary()
        self._sent: WeakKeyDictionary[Request, Decision] = WeakKeyDictionary()
        self.is_hooked = False  # whether all requests are sent by `download`
        self._is_listening = False

    def admit(self, request: Request, decision: Decision | None) -> None:
        """Record that a request has been allowed. It needs a turn if the decision requires one."""
        required = decision.verdict.delay if decision is not None else None
        if decision is None or required is None:
            if (
                self._gate.deferrals.has_paced
                and decision is not None
                and decision.policy is not None
                and decision.verdict.reason is not Reason.BYPASSED
            ):
                # its file has changed
                self._gate.deferrals.note_unpaced(str(decision.question.origin))
            self._gate.release(request)
            return
        self._listen()
        self._with_turn[request] = decision
        if self._delay_of(decision):
            self._gate.deferrals.note_paced(str(decision.question.origin))

    @property
    def has_paced(self) -> bool:
        """Whether any origin is known to require a delay."""
        return self._gate.deferrals.has_paced

    def _listen(self) -> None:
        """Connect the signal handler when the first origin requires a delay: it slows down every
        response."""
        if not self._is_listening:
            self._is_listening = True
            self._crawler.signals.connect(self._on_headers_received, signals.headers_received)

    def must_wait(self, request: Request) -> bool:
        """Whether the last middleware has to await `acquire_before_slot`."""
        decision = self._with_turn.get(request)
        if decision is None or decision.turn is not None:
            return False
        return not (self.is_hooked and self._gate.is_scheduled(request))

    async def acquire_before_slot(self, request: Request) -> None:
        """Get the turn in the last middleware.

        Raises RobotsDisallowed, RobotsDeferred or NotYet.
        """
        if self._gate.is_scheduled(request):
            return await self.acquire_turn(request)  # this downloader has no handler hook
        max_wait = self._remaining_wait(self._with_turn[request])
        with self._gate.outside_concurrency_limit(request):
            decision = await self._guard.turn(self._with_turn.pop(request), max_wait)
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        if decision.verdict.action is Action.DEFER:
            raise RobotsDeferred(decision)
        if decision.turn is not None:
            self._with_turn[request] = decision
        return None

    def can_wait_again(self, decision: Decision) -> bool:
        """Whether a request that bypasses the scheduler, deferred by this decision, may wait
        again."""
        return self._remaining_wait(decision) > 0

    def _remaining_wait(self, decision: Decision) -> float:
        """Seconds of `hold_max` that remain since the request was first deferred."""
        deferral = decision.question.deferral
        if deferral is None:
            return self._hold_max
        return max(0.0, self._hold_max - (self._now() - deferral.since))

    # -- in the handler hook -----------------------------------------------------------------------

    async def download(self, request: Request, send: Send) -> Response:
        """Send a request that needs no turn any more."""
        try:
            return await send(request)
        finally:
            self._mark_response_started(request)

    def needs_turn(self, request: Request) -> bool:
        """Whether the request has to take its turn (`acquire_turn`) before it is sent."""
        self._recheck_pause(request)
        return request in self._with_turn

    def _recheck_pause(self, request: Request) -> None:
        """Require a turn if the origin has asked for a pause while the request was in the slot's
        queue."""
        passed = self._passed.get(request)
        decision = passed.decision if passed is not None else None
        if decision is None or decision.verdict.delay is not None:
            return
        rechecked = self._guard.recheck_pause(decision)
        if rechecked is not decision:
            self._with_turn[request] = rechecked

    async def acquire_turn(self, request: Request) -> None:
        """Take the turn now.

        Raises NotYet if that takes too long, and RobotsDisallowed if a robots.txt that was read
        meanwhile forbids it.

        A turn that was taken before a long wait in the slot's queue is moved to now, or replaced by
        another.
        """
        decision = self._with_turn.pop(request)
        granted = await self._guard.turn(decision, MAX_INLINE_WAIT)
        if granted.verdict.action is Action.DROP:
            raise RobotsDisallowed(granted)
        if granted.verdict.action is Action.DEFER:
            raise NotYet(granted)
        if granted.turn is not None:  # with `report_only`, a request is sent without a turn
            self._sent[request] = self._guard.mark_sent(granted)
        self._gate.mark_sent(request, str(decision.question.origin), self._delay_of(decision))

    def count_visit(self, decision: Decision) -> None:
        """Delay the next request to an origin that was visited without a turn, at least in this
        process."""
        if seconds := self._delay_of(decision):
            self._gate.shut(str(decision.question.origin), seconds)

    # -- responses ---------------------------------------------------------------------------------

    def _on_headers_received(self, request: Request) -> None:
        self._mark_response_started(request)

    def _mark_response_started(self, request: Request) -> None:
        decision = self._sent.pop(request, None)
        if decision is None:
            return
        late = self._now() - decision.turn_taken_at - MAX_TURN_AGE
        self._gate.shut(str(decision.question.origin), self._delay_of(decision) - max(0.0, late))
        self._runtime.spawn(self._guard.mark_response_started(decision))

    async def note_pause(self, origin: Origin, response: Response) -> None:
        """Pause the origin for as long as the response requests, if it does."""
        retry_after = response.headers.get("Retry-After", b"")
        headers = {"retry-after": retry_after.decode("latin-1")} if retry_after else {}
        seconds = asked_to_wait(response.status, headers, self._now())
        if seconds:
            await self._guard.note_pause(origin, seconds)
            if self._guard.is_paused(origin) and not self._guard.report_only:
                self._gate.shut(str(origin), min(seconds, LONGEST_PAUSE))

    def _delay_of(self, decision: Decision) -> float:
        """Seconds that a decision requires between two requests; 0 in report-only mode, where no
        request waits."""
        required = decision.verdict.delay
        if required is None or self._guard.report_only:
            return 0.0
        return required.seconds
