"""Pacing: the turns of origins that require a delay between requests.

    scheduled requests      the gate admits one at a time, which takes its turn in the handler hook
                            or goes back
    requests that bypass    wait in the turn queue before the download slot, then take their turn
    the scheduler           in the handler hook

When a response begins, the turn is moved forward, here and in the store, so that no gap at the
origin is shorter than it appears to this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals

from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.freshness import asked_to_wait
from robots_guard.decisions.pacing import LONGEST_PAUSE, MAX_TURN_AGE
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.errors import NotYet
from robots_guard.scrapy.guarded_request import GuardedRequest
from robots_guard.scrapy.patches.handler_hook import Send
from robots_guard.scrapy.runtime import ScrapyRuntime

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

MAX_INLINE_WAIT = 0.1  # seconds that a request waits for its turn in the handler hook


class Pacing:
    """The turns of one crawl.

    `hold_max` is how many seconds a request that cannot be rescheduled waits for a turn.
    """

    def __init__(
        self,
        crawler: Crawler,
        guard: Guard,
        gate: OriginGate,
        runtime: ScrapyRuntime,
        *,
        hold_max: float,
    ) -> None:
        self._crawler = crawler
        self._guard = guard
        self._gate = gate
        self._runtime = runtime
        self._hold_max = hold_max
        self.is_hooked = False  # whether all requests are sent by `download`
        self._is_listening = False

    def note_pass(self, request: Request, guarded: GuardedRequest) -> None:
        """Note that a request has passed. It needs a turn if its decision requires one."""
        decision = guarded.decision
        if decision is not None and decision.verdict.delay is not None:
            guarded.turn_by = decision
            self._listen()
            if self._delay_of(decision):
                self._gate.deferrals.note_paced(str(decision.question.origin))
            return
        guarded.turn_by = None
        if self._gate.deferrals.is_quiet:  # as in most crawls
            return
        if (
            decision is not None
            and decision.policy is not None
            and decision.verdict.reason is not Reason.BYPASSED
        ):
            # its file may have changed
            self._gate.deferrals.note_unpaced(str(decision.question.origin))
        self._gate.release(request)

    def _listen(self) -> None:
        """Connect the signal handler when the first origin requires a delay: it slows down every
        response."""
        if not self._is_listening:
            self._is_listening = True
            self._crawler.signals.connect(self._on_headers_received, signals.headers_received)

    def must_wait(self, guarded: GuardedRequest) -> bool:
        """Whether the last middleware has to await `acquire_before_slot`."""
        if guarded.turn_by is None or guarded.turn_by.turn is not None:
            return False
        return not (self.is_hooked and guarded.is_scheduled)

    async def acquire_before_slot(self, request: Request, guarded: GuardedRequest) -> Decision:
        """Get the turn in the last middleware. Returns the decision that grants or refuses it.

        Raises NotYet.
        """
        if guarded.is_scheduled:  # this downloader has no handler hook
            return await self.acquire_turn(request, guarded)
        decision, guarded.turn_by = guarded.turn_by, None
        assert decision is not None
        with self._gate.outside_concurrency_limit(request):
            granted = await self._guard.turn(decision, self._remaining_wait(decision))
        if granted.verdict.action is Action.PASS and granted.turn is not None:
            guarded.turn_by = granted
        return granted

    def can_wait_again(self, decision: Decision) -> bool:
        """Whether a request that bypasses the scheduler, deferred by this decision, may wait
        again."""
        return self._remaining_wait(decision) > 0

    def _remaining_wait(self, decision: Decision) -> float:
        """Seconds of `hold_max` that remain since the request was first deferred."""
        deferral = decision.question.deferral
        if deferral is None:
            return self._hold_max
        return max(0.0, self._hold_max - (CLOCKS.now() - deferral.since))

    # -- in the handler hook -----------------------------------------------------------------------

    async def download(self, request: Request, guarded: GuardedRequest, send: Send) -> Response:
        """Send a request that has its turn, or needs none."""
        guarded.send()
        try:
            return await send(request)
        finally:
            self._mark_response_started(guarded)

    def needs_turn(self, guarded: GuardedRequest) -> bool:
        """Whether the request has to take its turn (`acquire_turn`) before it is sent: also if the
        origin has asked for a pause while it was in the slot's queue."""
        decision = guarded.decision
        if decision is not None and decision.verdict.delay is None:
            rechecked = self._guard.recheck_pause(decision)
            if rechecked is not decision:
                guarded.turn_by = rechecked
        return guarded.turn_by is not None

    async def acquire_turn(self, request: Request, guarded: GuardedRequest) -> Decision:
        """Take the turn now. Returns the decision that grants it, or refuses it by a robots.txt that
        was read meanwhile.

        Raises NotYet if that takes too long. A turn that was taken before a long wait in the slot's
        queue is moved to now, or replaced by another.
        """
        decision, guarded.turn_by = guarded.turn_by, None
        assert decision is not None
        granted = await self._guard.turn(decision, MAX_INLINE_WAIT)
        if granted.verdict.action is Action.DEFER:
            raise NotYet(granted)
        if granted.verdict.action is Action.DROP:
            return granted
        if granted.turn is not None:  # with `report_only`, a request is sent without a turn
            guarded.sent_by = self._guard.mark_sent(granted)
        self._gate.mark_sent(request, str(decision.question.origin), self._delay_of(decision))
        return granted

    def count_visit(self, decision: Decision) -> None:
        """Delay the next request to an origin that was visited without a turn, at least in this
        process."""
        if seconds := self._delay_of(decision):
            self._gate.shut(str(decision.question.origin), seconds)

    # -- responses ---------------------------------------------------------------------------------

    def _on_headers_received(self, request: Request) -> None:
        self._mark_response_started(self._gate.requests.of(request))

    def _mark_response_started(self, guarded: GuardedRequest) -> None:
        decision = guarded.answer()
        if decision is None:
            return
        late = CLOCKS.now() - decision.turn_taken_at - MAX_TURN_AGE
        self._gate.shut(str(decision.question.origin), self._delay_of(decision) - max(0.0, late))
        self._runtime.spawn(self._guard.mark_response_started(decision))

    async def note_pause(self, origin: Origin, response: Response) -> None:
        """Pause the origin for as long as the response requests, if it does."""
        retry_after = response.headers.get("Retry-After", b"")
        headers = {"retry-after": retry_after.decode("latin-1")} if retry_after else {}
        seconds = asked_to_wait(response.status, headers, CLOCKS.now())
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
