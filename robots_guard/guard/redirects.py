"""Redirects: whether a cross-origin redirect of a robots.txt may be followed."""

from __future__ import annotations

import logging

from robots_guard.core.renewal import Redirected
from robots_guard.core.verdict import Action, Decision, Question, Verdict
from robots_guard.guard.checks import Checks, Renew
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.recorder import Recorder, refuse_after_error
from robots_guard.guard.turn_check import TurnCheck
from robots_guard.ports import Clocks

log = logging.getLogger("robots_guard")


class Redirects:
    """The redirects of the robots.txt that one guard fetches.

    Such a request is the guard's own, so it is judged for the guard's own agent, and is refused in
    report-only mode too.
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

    async def judge(self, redirected: Redirected, deadline: float, renew: Renew) -> Decision:
        """Decide on the target by `deadline` on the monotonic clock; return the recorded decision
        with its turn.

        `renew` gets the policy of the target's origin. Does not raise.
        """
        began = self._clocks.monotonic()
        question = self._question(redirected)
        terms, source = self._options.terms, ""
        try:
            terms = self._checks.terms(question.origin)
            decided, source = await self._checks.run(question, terms, deadline, renew)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not permit a forbidden page
            decided = refuse_after_error()
        decision = self._recorder.issue(question, decided, terms, source, began)
        if decision.has_escaped:
            target = f"{question.origin}{question.target}"
            log.warning("%s redirected to %s, which is not allowed", question.led_by, target)
        return await self._take_turn(decision, deadline)

    def _question(self, redirected: Redirected) -> Question:
        following = redirected.following
        return Question(
            origin=redirected.origin,
            target=redirected.target,
            agent=self._options.agent,
            robots_txt_of=following.origin,
            led_by=following.passed[-1] if redirected.was_followed else "",
            sent=redirected.was_followed,
        )

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
