"""The turn check: the last check before a permitted request is sent.

It takes the origin's turn, and judges the request again against the policy cached at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from robots_guard.decisions.pacing import RequiredDelay, Turn, Wait, has_lapsed, is_old
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Action, Decision, Verdict, not_yet
from robots_guard.guard.checks import Checks
from robots_guard.guard.recorder import Recorder, refuse_after_error
from robots_guard.guard.turns import NO_LONGER_ALLOWED, Turns
from robots_guard.ports import Clocks

FRESH_FOR = 0.005  # seconds for which a decision or a turn is not checked again


class TurnCheck:
    """The turn check of one guard."""

    def __init__(self, *, checks: Checks, turns: Turns, recorder: Recorder, clocks: Clocks) -> None:
        self._checks = checks
        self._turns = turns
        self._recorder = recorder
        self._clocks = clocks

    async def take_within(
        self, patience: float, decision: Decision, enforced: Callable[[Verdict], Verdict]
    ) -> Decision:
        """Take the decision's turn, if it needs one, and return the decision to act on.

        That is a DEFER if no turn is free within `patience` seconds, and another decision if the
        policy now in memory forbids the request.
        """
        if decision.verdict.delay is None or (
            decision.turn is not None and not is_old(decision.turn, self._clocks.now())
        ):
            return decision
        began, current = self._clocks.monotonic(), decision
        try:
            turn = await self._acquire(patience, decision)
            current = self._rejudge(decision)
            verdict = current.verdict
            if verdict.action is Action.PASS:
                current = max(current, decision, key=_delay_of)
                verdict = current.verdict
                if isinstance(turn, Turn):
                    if decision.turn is not None:  # moved: it was taken with the delay of that time
                        return _with_turn(decision, turn, decision.verdict.delay)
                    return _with_turn(decision, turn, verdict.delay)
                verdict = not_yet(verdict, turn, self._clocks.now())
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            verdict = refuse_after_error().verdict
        waited = self._clocks.monotonic() - began
        return self._recorder.reissue(current, enforced(verdict), waited)

    async def _acquire(self, patience: float, decision: Decision) -> Turn | Wait:
        """Acquire the origin's turn, or move the decision's own turn to now if it is still valid.

        No turn is taken for a request that is no longer allowed.
        """
        origin, delay = decision.question.origin, self._required_delay(decision)
        if delay is None:
            return NO_LONGER_ALLOWED
        if decision.turn is not None:
            moved = await self._turns.renew(origin, decision.turn)
            if moved is not None:
                return moved
        delay_now = partial(self._required_delay, decision)
        return await self._turns.take_within(patience, origin, delay, delay_now)

    def _required_delay(self, decision: Decision) -> float | None:
        """Return the seconds required between two requests; None if the request is no longer
        allowed.

        The value follows the policy in memory now, but is never less than in the recorded decision.
        """
        current = self._rejudge(decision)
        if current.verdict.action is not Action.PASS:
            return None
        return max(_delay_of(current), _delay_of(decision))

    def _rejudge(self, decision: Decision) -> Decision:
        """Return the decision as it would be made now from memory, without recording it.

        A decision that was just made, or whose question cannot be answered from memory, or only by
        an earlier policy than the decision's, is returned unchanged.
        """
        if 0.0 <= self._clocks.now() - decision.at < FRESH_FOR:
            return decision
        terms = self._checks.terms(decision.question.origin)
        decided = self._checks.run_from_memory(decision.question, terms)
        if decided is None or _is_earlier(decided.policy, decision.policy):
            return decision
        return replace(
            decision,
            verdict=decided.verdict,
            policy=decided.policy,
            dialect=terms.dialect.name,
            matching=terms.matching.name,
            override=terms.override,
            source="memory" if decided.policy else "",
        )

    def mark_sent(self, decision: Decision) -> Decision:
        """Return the decision with its turn re-stamped to now, unless that was just taken; without
        it if it is too old.

        The store is updated in the background.
        """
        since = self._clocks.now() - decision.turn_taken_at
        if decision.turn is None or since < FRESH_FOR:
            return decision
        if has_lapsed(decision.turn, self._clocks.now()):
            return replace(decision, turn=None)
        turn = self._turns.move_in_background(decision.question.origin, decision.turn, since)
        taken_at = decision.turn_taken_at + since
        return replace(decision, turn=turn, turn_taken_at=taken_at)


def _is_earlier(policy: Policy | None, other: Policy | None) -> bool:
    """Whether a policy was fetched before another, as the policy in memory was before one that is
    not cached yet. A pinned one is not fetched: it applies from when it was read until it is removed."""
    if policy is None or other is None or policy.is_pinned or other.is_pinned:
        return False
    return policy.settled_at < other.settled_at


def _with_turn(decision: Decision, turn: Turn, delay: RequiredDelay | None) -> Decision:
    """Return the decision with a turn that was taken with delay `delay`."""
    verdict = replace(decision.verdict, delay=delay)
    return replace(decision, verdict=verdict, turn=turn, turn_taken_at=turn.asked)


def _delay_of(decision: Decision) -> float:
    """Return the seconds that a decision requires between two requests; -inf if it needs no
    turn."""
    delay = decision.verdict.delay
    if delay is None:
        return -math.inf
    return delay.seconds
