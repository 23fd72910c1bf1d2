"""Admission: asks the guard about requests, and keeps each permitted one until it has ended.

    admit           the decision on a request that can be sent at once, with the origin's turn
    judge           the decision, before anything is known about the connection
    wait_out        the decision after a short deferral
    take_turn       the origin's turn, immediately before sending
    track           the request is permitted; later calls identify it by its decision's id
    mark_sent       the request is being written
    mark_response_started
                    its response has started
    needs_page, judge_head, judge_response
                    what the site states in the response is judged
    release         the request has ended

In many proxies a request and its response are separate messages, which share no more than an id.

Deferred requests are remembered, for clients that repeat them. The memory is bounded: evicting an
entry loses a link in the log or restarts the `max_defer` period, but never causes a refusal.

Invariant: deny first. A request that is not, or no longer, tracked must not be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec
from cachetools import TTLCache

from robots_guard.decisions.freshness import asked_to_wait
from robots_guard.decisions.pacing import MAX_TURN_AGE
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Decision, Deferral, Question, Verdict
from robots_guard.gateway.destinations import NotLookedUp
from robots_guard.gateway.wire import Wire
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin
from robots_guard.ports import Clocks
from robots_guard.protocol.html.page import Page
from robots_guard.protocol.signals.headers import FIELDS

MAX_REMEMBERED = 50_000  # deferred requests; about 250 bytes each
REMEMBERED_FOR = 86_400.0  # seconds after the first deferral


class DeferralMemory:
    """Links a repeated request to its first deferral, so that `max_defer` counts from there.

    A request is a repetition if client address, method and URL are the same. `clock` is monotonic,
    in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._first: TTLCache[bytes, Deferral] = TTLCache(MAX_REMEMBERED, REMEMBERED_FOR, clock)
        # Every request comes to `link`, and the length of a TTLCache is not free.
        self._is_empty = True

    def link(self, question: Question) -> Question:
        """Return the question, with the earlier deferral if there was one."""
        if self._is_empty:  # as in most crawls
            return question
        deferral = self._first.get(_key(question))
        if deferral is None:
            self._is_empty = not self._first
            return question
        return msgspec.structs.replace(question, deferral=deferral)

    def remember(self, decision: Decision) -> None:
        """Remember a deferred request, and forget it when it is sent. One that is dropped expires by itself."""
        verdict, question = decision.verdict, decision.question
        if verdict.action is Action.DEFER and question.deferral is None:
            self._first[_key(question)] = Deferral(decision.id, decision.at)
            self._is_empty = False
        elif question.deferral is not None and decision.is_due:
            self._first.pop(_key(question), None)

    def __len__(self) -> int:
        """The number of deferrals that are remembered."""
        return len(self._first)


def _key(question: Question) -> bytes:
    """A key of 16 bytes, however long the URL is."""
    parts = (question.client, question.method, str(question.origin), question.target)
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


TRACKED = 100_000  # permitted requests that have not ended; the oldest is forgotten first
SHORTEST_WAIT = 0.25  # seconds between two judgements of a held request

#: The integration's own refusal of an origin, such as of its address, or None.
Refusal = Callable[[Origin], Awaitable[Verdict | None]]


class Admission:
    """Admits the requests of one integration by one guard.

    With `uses_placeholders`, a browser's request for a part of a page is refused with a placeholder.
    """

    def __init__(self, guard: Guard, clocks: Clocks, *, uses_placeholders: bool = False) -> None:
        self._guard = guard
        self._uses_placeholders = uses_placeholders
        self._clocks = clocks
        self._now = clocks.now
        self._deferrals = DeferralMemory(clocks.monotonic)
        self._tracked: dict[str, Decision] = {}

    # -- before the request is sent -----------------------------------------------------------------------

    async def admit(self, question: Question, patience: float = 0.0) -> Decision:
        """Return the decision to act on at once, after waiting for the origin's turn, at most
        `patience` seconds. A permitted request is tracked."""
        decision = self._remember(await self._ask(self._deferrals.link(question)))
        if decision.verdict.action is Action.PASS and not decision.is_due:
            decision = await self.take_turn(decision, patience)
        if decision.verdict.action is Action.PASS:
            self.track(decision)
        return decision

    async def judge(self, wire: Wire, agents: Iterable[str], refusal: Refusal) -> Decision:
        """Judge a request as several agents: return the first refusal, else the decision with the
        longest delay."""
        decisions = []
        for agent in agents:
            decision = await self._judge_as(agent, wire, refusal)
            if decision.verdict.action is not Action.PASS:
                return self._remember(decision)
            decisions.append(decision)
        return self._remember(max(decisions, key=_required_delay))

    def judge_at_once(
        self, wire: Wire, agents: Sequence[str], refusal: Callable[[Origin], Verdict | None]
    ) -> Decision | None:
        """Judge a request if it is judged as one agent, by a policy in memory. Returns None if it is
        not: the caller then awaits `judge`.

        `refusal` returns the operator's refusal of an origin, or None. It raises NotLookedUp if a
        look-up is needed. If this returns None or raises, nothing has been decided or recorded.
        """
        if len(agents) != 1:
            return None
        question, verdict = self._question(wire, agents[0])
        try:
            verdict = verdict or refusal(question.origin)
        except NotLookedUp:
            return None
        if verdict is not None:
            return self._remember(self._guard.decide(question, verdict))
        decision = self._guard.peek(question)
        return decision and self._remember(decision)

    def can_wait_out(self, decision: Decision, patience: float) -> bool:
        """Whether a decision is a deferral that ends within `patience` seconds."""
        return self._seconds_left(decision) <= patience

    async def wait_out(
        self, decision: Decision, patience: float, judge: Callable[[], Awaitable[Decision]]
    ) -> Decision:
        """Return the decision on a request that may be held for `patience` seconds in all.

        While the request is deferred until a moment in that time, such as the next try of an
        unreachable robots.txt, this waits and calls `judge` again. If that takes too long, the
        request stays deferred.
        """
        deadline = self._clocks.monotonic() + patience
        while (left := deadline - self._clocks.monotonic()) > 0 and self.can_wait_out(
            decision, left
        ):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.sleep(max(SHORTEST_WAIT, self._seconds_left(decision)))
                    decision = await judge()
        return decision

    def _seconds_left(self, decision: Decision) -> float:
        """Seconds until a deferral ends; infinite for another decision."""
        verdict = decision.verdict
        if verdict.action is not Action.DEFER or verdict.until is None:
            return math.inf
        return verdict.until - self._now()

    async def _judge_as(self, agent: str, wire: Wire, refusal: Refusal) -> Decision:
        question, verdict = self._question(wire, agent)
        verdict = verdict or await refusal(question.origin)
        if verdict is not None:
            return self._guard.decide(question, verdict)
        return await self._ask(question)

    def _question(self, wire: Wire, agent: str) -> tuple[Question, Verdict | None]:
        """The question about a request, and the verdict if it is malformed or ambiguous."""
        question, verdict = wire.question(agent)
        if self._uses_placeholders and (subresource := wire.subresource) is not None:
            question = msgspec.structs.replace(question, subresource=subresource)
        return self._deferrals.link(question), verdict

    async def _ask(self, question: Question) -> Decision:
        return self._guard.peek(question) or await self._guard.check(question)

    def recheck(self, decision: Decision) -> Decision:
        """Return a permitted request's decision, which now requires a turn if the origin has asked
        for a pause meanwhile."""
        return self._guard.recheck_pause(decision)

    async def take_turn(self, decision: Decision, patience: float) -> Decision:
        """Take the origin's turn for a permitted request; return the decision to act on at once."""
        return self._remember(await self._guard.turn(decision, patience))

    def _remember(self, decision: Decision) -> Decision:
        self._deferrals.remember(decision)
        return decision

    # -- a permitted request, by the id of its decision ---------------------------------------------------

    def track(self, decision: Decision) -> None:
        """Remember a permitted request until it is released."""
        self._tracked[decision.id] = decision
        if len(self._tracked) > TRACKED:
            del self._tracked[next(iter(self._tracked))]

    def tracked(self, decision_id: str) -> Decision:
        """The decision of a tracked request. Raises KeyError."""
        return self._tracked[decision_id]

    def refusal_of(self, decision_id: str) -> Decision | None:
        """Return the tracked decision if it is a DEFER or DROP, because a renewal of its turn has
        replaced it; None otherwise."""
        decision = self._tracked.get(decision_id)
        if decision is None or decision.verdict.action is Action.PASS:
            return None
        return decision

    async def renew_turns(self, decision_ids: Sequence[str], patience: float) -> None:
        """Renew the turns of a client's requests that grew old while a connection was made.

        Each turn is moved to now, or its request needs a new one. Only the first request waits for
        a new turn, for at most `patience` seconds. It is renewed last, and waits for a shorter time
        if another request has its turn, because that turn would lapse meanwhile.
        """
        for decision_id in decision_ids[1:]:
            await self._renew_turn(decision_id, 0.0)
        if any(self._has_turn(decision_id) for decision_id in decision_ids[1:]):
            patience = min(patience, MAX_TURN_AGE / 2)
        for decision_id in decision_ids[:1]:
            await self._renew_turn(decision_id, patience)

    def _has_turn(self, decision_id: str) -> bool:
        decision = self._tracked.get(decision_id)
        return decision is not None and decision.turn is not None

    async def _renew_turn(self, decision_id: str, patience: float) -> None:
        decision = self._tracked.get(decision_id)
        if decision is None or decision.turn is None:
            return
        renewed = await self.take_turn(decision, patience)
        if decision_id in self._tracked:  # not released meanwhile
            self._tracked[decision_id] = renewed

    def mark_sent(self, decision_id: str) -> bool:
        """Count the request's turn from now. Returns False if it must not be sent."""
        decision = self._tracked.get(decision_id)
        if decision is None:
            return False
        decision = self._tracked[decision_id] = self._guard.mark_sent(decision)
        return decision.is_due

    async def mark_response_started(
        self, decision_id: str, status: int, retry_after: str = ""
    ) -> None:
        """Count the request's turn from the start of its response, and apply a Retry-After field."""
        decision = self._tracked.get(decision_id)
        if decision is None:
            return
        if seconds := asked_to_wait(status, {"retry-after": retry_after}, self._now()):
            await self._guard.note_pause(decision.question.origin, seconds)
        await self._guard.mark_response_started(decision)  # last, because it may wait for the store

    def needs_response_mark(self, decision_id: str, retry_after: str) -> bool:
        """Whether `mark_response_started` must be awaited for a response with this Retry-After."""
        return bool(retry_after) or self._has_turn(decision_id)

    def needs_page(self, decision_id: str, head: ResponseHead) -> bool:
        """Whether the page of a tracked request's response is read before the client gets it: to
        enforce what it states, or because the operator has that recorded. Raises KeyError."""
        return self._guard.responses.needs_page(self._tracked[decision_id].question, head)

    def judge_head(self, decision_id: str, head: ResponseHead) -> Decision | None:
        """Return the refusal of a response by its head alone, recorded; None if its page must be
        read. Raises KeyError."""
        request = self._tracked[decision_id]
        responses = self._guard.responses
        verdict = responses.judge(
            request.question, head, policy=request.policy, is_final=False, client_pays=True
        )
        if verdict is None or verdict.action is Action.PASS:
            return None
        return responses.record(request.question, head, verdict, request.id)

    def judge_response(
        self, decision_id: str, head: ResponseHead, page: Page | None = None
    ) -> Decision | None:
        """Return the decision on a response of which nothing more will be read, recorded; None if
        nothing is stated in it and nothing refused. `page` is its page, if it was needed. A demand
        for payment passes: it is the client's to answer. Raises KeyError."""
        request = self._tracked[decision_id]
        responses = self._guard.responses
        verdict = responses.judge(
            request.question, head, page, policy=request.policy, client_pays=True
        )
        if verdict is None:
            return None
        return responses.record(request.question, head, verdict, request.id)

    def judge_fields(self, decision_id: str, head: ResponseHead) -> Decision | None:
        """Return the decision on a response of which only the fields are read, recorded; None if
        nothing is stated in them and nothing refused. Raises KeyError.

        If its page could deny a declared purpose, the record says that the response was judged
        incompletely.
        """
        page = None
        if self.needs_page(decision_id, head):
            page = Page(is_incomplete=True)
        elif not (self.must_judge_response(decision_id) or has_signals(head)):
            return None
        return self.judge_response(decision_id, head, page)

    def must_judge_response(self, decision_id: str) -> bool:
        """Whether the response to a tracked request may not be passed on unjudged: its signals are
        enforced, or the operator has them recorded. Raises KeyError."""
        terms = self._guard.terms(self._tracked[decision_id].question.origin)
        return terms.enforces_signals or terms.signals == "record"

    def release(self, decision_id: str) -> None:
        """Forget a request that has ended, or that is judged again."""
        self._tracked.pop(decision_id, None)

    def __contains__(self, decision_id: str) -> bool:
        """Whether a request is tracked."""
        return decision_id in self._tracked

    def __len__(self) -> int:
        """The number of tracked requests."""
        return len(self._tracked)


def has_signals(head: ResponseHead) -> bool:
    """Whether a response has a field in which a signal may be."""
    return any(name.strip().lower() in FIELDS for name, _ in head.headers)


def _required_delay(decision: Decision) -> float:
    if decision.verdict.delay:
        return decision.verdict.delay.seconds
    return 0.0
