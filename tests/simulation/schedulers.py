"""A crawler with a scheduler, like Scrapy: deferred requests are requeued, and the guard's own
machine (`decisions.deferral`) decides which requests may be sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from robots_guard.decisions.deferral import Deferrals
from robots_guard.decisions.verdict import Action, Decision, Deferral, Question
from robots_guard.origin import origin_of
from simulation.kernel import Cancelled
from simulation.plan import Request

if TYPE_CHECKING:
    from simulation.fleet import Worker

PATIENCE = 0.1  # seconds that a request may wait for its turn in the download slot
ROUNDING = 1e-3  # seconds by which a timer fires late


class Scheduler:
    """The queued requests of one process, and the machine that decides which may be sent."""

    def __init__(self, worker: Worker) -> None:
        self.deferrals = Deferrals()
        self.waiting: list[tuple[Request, Question]] = []
        self._worker = worker
        self._kernel = worker.history.kernel
        self._tickets = count()

    def add(self, request: Request) -> None:
        """Queue a request of the spider."""
        site = self._worker.history.plan.sites[request.site]
        question = Question(origin=origin_of(site.url), target=request.target, agent="simbot")
        self._put(request, question)

    def _put(self, request: Request, question: Question) -> None:
        self.waiting.append((request, question))
        self.wake()

    def wake(self) -> None:
        """Send the requests that may leave, now and again when the next origin opens."""
        if not self._worker.process.is_alive or self._worker.is_closed:
            return
        now = self._worker.process.monotonic()
        for entry in list(self.waiting):
            request, question = entry
            ticket = next(self._tickets)
            known = self._worker.guard.fresh_for(question.origin) is not None
            if self.deferrals.admit(ticket, str(question.origin), now, known=known):
                self.waiting.remove(entry)
                self._leave(ticket, request, question)
        self.deferrals.settle(now)
        if self.deferrals.due is not None:
            later = (self.deferrals.due - now) / self._worker.process.rate + ROUNDING
            self._kernel.call_at(self._kernel.time + later, self._on_timer)

    def _on_timer(self) -> None:
        due = self.deferrals.due
        if due is not None and due <= self._worker.process.monotonic():
            self.wake()

    def _leave(self, ticket: Hashable, request: Request, question: Question) -> None:
        work = self._download(ticket, request, question)
        task = self._kernel.start(self._worker.process, work, f"download {request.target}")
        if request.is_cancelled_after is not None:
            self._kernel.call_at(
                self._kernel.time + request.is_cancelled_after, lambda: self._kernel.cancel(task)
            )

    # -- one request that has left -----------------------------------------------------------------

    async def _download(self, ticket: Hashable, request: Request, question: Question) -> None:
        try:
            with suppress(Cancelled):
                await self._process(ticket, request, question)
        finally:
            self.deferrals.free(ticket, self._worker.process.monotonic())
            self.wake()

    async def _process(self, ticket: Hashable, request: Request, question: Question) -> None:
        worker = self._worker
        await worker.runtime.sleep(worker.history.random.random() * 0.01)
        if self.deferrals.is_probing(ticket) and worker.guard.fresh_for(question.origin) is None:
            origin = self.deferrals.fetch(ticket)
            worker.runtime.spawn(self._prepare(origin, question))
            self._put(request, question)
            return
        decision = await worker.check(question)
        if decision.verdict.action is Action.PASS:
            decision = await self._send(ticket, decision)
        if decision.verdict.action is Action.DEFER and not worker.is_closed:
            self._send_back(ticket, request, decision)

    async def _prepare(self, origin: str, question: Question) -> None:
        try:
            await self._worker.guard.prefetch(question)
        finally:
            self.deferrals.fetched(origin, self._worker.process.monotonic())
            self.wake()

    async def _send(self, ticket: Hashable, decision: Decision) -> Decision:
        """Send a request, if its turn comes. Returns the decision that permitted or deferred it."""
        worker, origin = self._worker, str(decision.question.origin)
        pace = decision.verdict.delay
        if pace is None:
            self.deferrals.note_unpaced(origin)
            self.deferrals.free(ticket, worker.process.monotonic())
            self.wake()
        else:
            self.deferrals.note_paced(origin)
        # in the download slot
        await worker.runtime.sleep(worker.history.random.choice(worker.history.plan.wire))
        decision = await worker.turn(worker.guard.recheck_pause(decision), PATIENCE)
        if decision.verdict.action is not Action.PASS or worker.is_closed:
            return decision
        decision = worker.guard.mark_sent(decision)
        response = worker.visit(decision)
        now = worker.process.monotonic()
        if pace is not None:
            self.deferrals.shut(origin, now + pace.seconds, now)
        self.deferrals.free(ticket, now)
        self.wake()
        await worker.process_response(decision, response)
        return decision

    def _send_back(self, ticket: Hashable, request: Request, decision: Decision) -> None:
        question = decision.question
        wait = (decision.verdict.until or decision.at) - decision.at
        self.deferrals.send_back(
            ticket, str(question.origin), wait, self._worker.process.monotonic()
        )
        first = question.deferral or Deferral(decision.id, decision.at)
        if decision.at - first.since < MAX_DEFERRAL:
            self._put(request, msgspec.structs.replace(question, deferral=first))


MAX_DEFERRAL = 3600.0  # seconds after which the spider gives up a deferred request
