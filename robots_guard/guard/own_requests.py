"""The guard's own requests: for pages to which a robots.txt of another origin redirects, and for
tdmrep.json.

They are judged, because only a /robots.txt is open to all crawlers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from robots_guard.decisions.check import Decided
from robots_guard.decisions.renewal import JudgingReservations, Redirected
from robots_guard.decisions.verdict import Action, Decision, Question, Terms, Verdict
from robots_guard.guard.checks import Checks, Renew
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.recorder import Recorder, refuse_after_error
from robots_guard.guard.turn_check import TurnCheck
from robots_guard.ports import Clocks

log = logging.getLogger("robots_guard")


class OwnRequests:
    """Judges the requests that one guard makes itself.

    They are judged for the guard's own agent. A forbidden one is not made in report-only mode either.
    """

    def __init__(
        self,
        options: GuardOptions,
        *,
        checks: Checks,
        turn_check: TurnCheck,
        recorder: Recorder,
        clocks: Clocks,
    ) -> None:
        self._options = options
        self._checks = checks
        self._turn_check = turn_check
        self._recorder = recorder
        self._clocks = clocks

    async def judge_redirect(
        self, redirected: Redirected, deadline: float, renew: Renew
    ) -> Decision:
        """Decide on the target of a redirect by `deadline` on the monotonic clock; return the
        recorded decision with its turn.

        `renew` gets the policy of the target's origin. Does not raise.
        """
        following = redirected.following
        question = Question(
            origin=redirected.origin,
            target=redirected.target,
            agent=self._options.agent,
            robots_txt_of=following.origin,
            led_by=following.passed[-1] if redirected.was_followed else "",
            sent=redirected.was_followed,
        )

        async def check(terms: Terms) -> tuple[Decided, str]:
            return await self._checks.run(question, terms, deadline, renew)

        return await self._judge(question, deadline, check)

    async def judge_reservations(self, state: JudgingReservations, deadline: float) -> Decision:
        """Decide on a request for a tdmrep.json by `deadline` on the monotonic clock; return the
        recorded decision with its turn. Does not raise."""
        policy = state.policy
        question = Question(
            origin=policy.origin,
            target=state.target,
            agent=self._options.agent,
            robots_txt_of=policy.origin,
            led_by=state.passed[-1] if state.was_followed else "",
            sent=state.was_followed,
        )

        async def check(terms: Terms) -> tuple[Decided, str]:
            return await self._checks.run_under(policy, question, terms, deadline), "fetch"

        return await self._judge(question, deadline, check)

    async def _judge(
        self,
        question: Question,
        deadline: float,
        check: Callable[[Terms], Awaitable[tuple[Decided, str]]],
    ) -> Decision:
        """Decide by a check under the terms of the question's origin, record the decision, and take
        its turn."""
        began = self._clocks.monotonic()
        terms, source = self._options.terms, ""
        try:
            terms = self._checks.terms(question.origin)
            decided, source = await check(terms)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not permit a forbidden page
            decided = refuse_after_error()
        decision = self._recorder.issue(question, decided, terms, source, began)
        if decision.has_escaped:
            target = f"{question.origin}{question.target}"
            log.warning("%s redirected to %s, which is not allowed", question.led_by, target)
        return await self._take_turn(decision, deadline)

    async def _take_turn(self, decision: Decision, deadline: float) -> Decision:
        """Take the turn that the request needs, if any; return a DEFER if too little time to fetch
        would be left."""
        if decision.verdict.action is not Action.PASS:
            return decision
        limits = self._options.limits
        left = deadline - self._clocks.monotonic() - limits.connect - limits.first_byte
        return await self._turn_check.take_within(max(0.0, left), decision, _unchanged)


def _unchanged(verdict: Verdict) -> Verdict:
    return verdict
