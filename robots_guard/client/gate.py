"""The gate: admits the requests of one client library or program.

    ask      the decision on a request, without a turn
    admit    the permission to send a request at once: judged, and with the origin's turn if it
             needs one. A deferral is waited for, for at most `hold_max` seconds
    Passage  one admitted request, from its permission to its response

Invariant: each attempt to write a request has a PASS of its own that is due when the first byte is
written. A passage that is used a second time is admitted again, and a turn that has grown old is
moved to now, or replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from robots_guard.configuration import read_configuration, settings_from
from robots_guard.configuration.settings import CLOCKS, Settings, direct_fetcher, open_guard
from robots_guard.decisions.component import Component
from robots_guard.decisions.freshness import asked_to_wait
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Decision, Question, Verdict
from robots_guard.errors import ClosedGuard
from robots_guard.gateway.admission import SHORTEST_WAIT, DeferralMemory, has_signals
from robots_guard.gateway.errors import (
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
    refusal_of,
)
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.ports import Clocks
from robots_guard.protocol.html.page import Page

T = TypeVar("T")

MAX_ROUNDS = 3  # of taking a turn that lapses before its request is written
CLOSED = "the guard is closed: open another one"
ELSEWHERE = (
    "the guard is in use in another event loop that is running: open one guard for each loop, or one"
    " with robots_guard.open_sync for all of them"
)
UNUSED = (
    "its response came without the judged request, from a component behind the guard that answers"
    " or sends requests by itself: put that component in front of the guard"
)


class Passage:
    """An admitted request, from its permission to its response.

    `use` is awaited immediately before the first byte is written, and again before each further
    attempt; `respond` when the response has begun.
    """

    def __init__(self, gate: Gate, question: Question, decision: Decision) -> None:
        self._gate = gate
        self._question = question
        self._is_used = False
        self._is_written = False
        self._has_response = False
        self.decision = decision

    async def use(self) -> None:
        """Count the turn from now. Raises RequestRefused if the request may not be sent."""
        if self._is_written:
            # The response to the earlier attempt has begun by now, if there was one.
            await self._gate.note_response(self.decision, ResponseHead(status=0))
            self.decision = await self._gate.take(self._question)
        self._is_written = True
        await self.use_ahead()

    async def use_ahead(self) -> None:
        """Count the turn of a request whose write may not be seen. `use` then moves it to the first
        write that is."""
        self._is_used = True
        self.decision = await self._gate.use(self.decision)

    async def respond(self, status: int, retry_after: str = "") -> None:
        """Note that the response has begun: the site's delay counts from here. With a 402, 429
        or 503, `retry_after` (the field of that name) pauses the origin."""
        self._has_response = True
        head = ResponseHead(status=status, headers=[("retry-after", retry_after)])
        await self._gate.note_response(self.decision, head)

    async def end(self) -> None:
        """Note that the request has ended, if `respond` has not noted its response."""
        if not self._has_response:
            await self.respond(0)

    async def judge_response(self, head: ResponseHead) -> None:
        """Note that the response has begun, and judge what the site states in its fields. Raises
        ResponseRefused if that denies a declared purpose; and RequestDisallowed if the permission
        was never used, so that the response belongs to a request that was not judged."""
        if not self._is_used:
            raise RequestDisallowed(self._gate.refuse_unjudged(self._question, UNUSED))
        await self._gate.note_response(self.decision, head)
        self._gate.judge_response(self.decision, head)


class Gate:
    """Admits requests by one guard, which `close` closes, too."""

    def __init__(self, guard: Guard, settings: Settings, clocks: Clocks) -> None:
        self.settings = settings
        self._guard = guard
        self._clocks = clocks
        self._deferrals = DeferralMemory(clocks.monotonic)
        self._is_off = settings.signals == "off" and not settings.overrides
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # the last that used the guard
        self._held: set[asyncio.Task[Any]] = set()

    async def ask(self, question: Question, verdict: Verdict | None = None) -> Decision:
        """Return the decision on a request. With `verdict`, the caller has refused it already, and
        that is recorded. Raises ClosedGuard."""
        self._check_open()
        question = self._deferrals.link(question)
        if verdict is not None:
            return self._guard.decide(question, verdict)
        decision = self._guard.peek(question)
        if decision is None:
            decision = await self._hold(self._guard.check(question))
        self._deferrals.remember(decision)
        return decision

    async def admit(self, question: Question, verdict: Verdict | None = None) -> Passage:
        """Admit a request. Raises RequestDisallowed, RequestDeferred or ClosedGuard."""
        return Passage(self, question, await self.take(question, verdict))

    async def take(self, question: Question, verdict: Verdict | None = None) -> Decision:
        """Return the decision by which a request may be sent at once. Raises as `admit` does."""
        deadline = self._clocks.monotonic() + self.settings.hold_max
        while True:
            decision = await self.ask(question, verdict)
            try:
                return await self._take_turn(decision, deadline)
            except RequestDeferred as refusal:
                wait = max(SHORTEST_WAIT, refusal.retry_after)
                if self._clocks.monotonic() + wait > deadline:
                    raise
            await self._hold(asyncio.sleep(wait))

    async def use(self, decision: Decision) -> Decision:
        """Return the decision of a request whose first byte is written next. Raises RequestRefused
        or ClosedGuard."""
        self._check_open()
        deadline = self._clocks.monotonic() + self.settings.hold_max
        decision = self._guard.recheck_pause(decision)
        for _ in range(MAX_ROUNDS):
            if decision.verdict.delay is not None:
                # The turn has grown old while a connection was made: it is moved to now.
                decision = await self._renew_turn(decision, deadline)
            decision = self._guard.mark_sent(decision)
            if decision.is_due:
                return decision
        why = "its turns lapsed before it could be written"
        raise RequestDisallowed(self.refuse_unjudged(decision.question, why))

    async def note_response(self, decision: Decision, head: ResponseHead) -> None:
        """Count the turn of a request from the start of its response, and apply a Retry-After."""
        fields = {name.lower(): value for name, value in reversed(head.headers)}
        if seconds := asked_to_wait(head.status, fields, self._clocks.now()):
            await self._guard.note_pause(decision.question.origin, seconds)
        await self._guard.mark_response_started(decision)

    def judge_response(self, decision: Decision, head: ResponseHead) -> None:
        """Judge a response by its fields. Raises ResponseRefused.

        Its page is not read. If the page could deny a declared purpose, the record says that the
        response was judged incompletely.
        """
        if self._is_off:
            return
        responses = self._guard.responses
        page = None
        if responses.needs_page(decision.question, head):
            page = Page(is_incomplete=True)
        elif not self.settings.enforces_signals and not has_signals(head):
            return
        verdict = responses.judge(
            decision.question, head, page, policy=decision.policy, client_pays=True
        )
        if verdict is None:
            return
        judged = responses.record(decision.question, head, verdict, decision.id)
        if judged.verdict.action is not Action.PASS:
            raise ResponseRefused(judged)

    def refuse_unjudged(self, question: Question, why: str) -> Decision:
        """Record that a request was stopped at the write, because it is not the judged one."""
        verdict = Verdict(action=Action.DROP, reason=Reason.NOT_JUDGED, detail=why)
        return self._guard.decide(question, verdict)

    @property
    def waiting(self) -> int:
        """The number of requests that wait, for a decision or for a turn."""
        return len(self._held)

    def end_waits(self) -> None:
        """Admit nothing more. Requests that are held end with ClosedGuard."""
        self._is_closed = True
        for task in self._held:
            task.cancel()

    async def close(self) -> None:
        """Close the guard. Calls after the first do nothing."""
        if not self._is_closed:
            self.end_waits()
            await self._guard.drain()
            self._guard.close()

    def close_guard(self) -> None:
        """Close the guard of a program that ends without `close`: nothing is waited for."""
        if not self._is_closed:
            self._is_closed = True
            self._guard.close()

    async def _take_turn(self, decision: Decision, deadline: float) -> Decision:
        """Take the origin's turn, if the request needs one. Raises RequestRefused."""
        if decision.verdict.action is not Action.PASS:
            raise refusal_of(decision)
        if decision.is_due:
            return decision
        return await self._renew_turn(decision, deadline)

    async def _renew_turn(self, decision: Decision, deadline: float) -> Decision:
        """Take the origin's turn, or move the one that the decision has to now. Raises
        RequestRefused."""
        patience = max(0.0, deadline - self._clocks.monotonic())
        decision = await self._hold(self._guard.turn(decision, patience))
        self._deferrals.remember(decision)
        if decision.verdict.action is not Action.PASS:
            raise refusal_of(decision)
        return decision

    async def _hold(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that may take long. Raises ClosedGuard if the guard is closed meanwhile."""
        task = asyncio.ensure_future(work)
        self._held.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closed and not _is_cancelling():
                raise ClosedGuard(CLOSED) from None
            raise
        finally:
            self._held.discard(task)

    def _check_open(self) -> None:
        """Raise ClosedGuard if the guard is closed, or in use in another loop: what several requests
        wait for together, such as a fetch, belongs to one."""
        if self._is_closed:
            raise ClosedGuard(CLOSED)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._loop.is_running():
                raise ClosedGuard(ELSEWHERE)
            self._loop = loop


def _is_cancelling() -> bool:
    """Whether the current task itself is to be cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def open_gate(
    component: Component, agent: str | None, config: str | None, given: Mapping[str, Any]
) -> Gate:
    """Open the guard of one component. `given` are settings, which win over the configuration.

    The caller is trusted with its addresses, as on the command line. Raises SettingsError.
    """
    settings = _settings(component, agent, config, given)
    guard = open_guard(
        settings,
        component=component,
        runtime=AsyncioRuntime(),
        fetcher=direct_fetcher(settings, trusts_caller=True),
    )
    return Gate(guard, settings, CLOCKS)


def _settings(
    component: Component, agent: str | None, config: str | None, given: Mapping[str, Any]
) -> Settings:
    values = dict(given)
    if agent is not None:
        values["agent"] = agent
    return settings_from(read_configuration(component, config=config), values)
