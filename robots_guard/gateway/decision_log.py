"""The decision log: a line for each kind of refusal on standard error, for journald and
`docker logs`. The audit log has every single one.

Invariant: the number of lines is bounded in time, whatever clients request. The first decision of a
kind has a line of its own; those like it within a minute are counted in a second one. Beyond
`MAX_LINES` first lines a minute, decisions are only counted, all in one line.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable
from typing import Literal

import msgspec

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.write.runs import Run, RunCounter
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Verdict
from robots_guard.gateway.errors import log_line_of
from robots_guard.invocation import BARE, Invocation

#: The logger of these lines; a program shows it apart from its own messages.
LOGGER = "robots_guard.decisions"
WINDOW = 60.0  # seconds within which repeats are counted
MAX_LINES = 300  # first lines within one window

log = logging.getLogger(LOGGER)

Level = Literal["drops", "all", "none"]


class DecisionLog:
    """Logs the decisions of one guard. `level` says which: refusals and deferrals, all, or none.
    `invocation` says what a command must name that searches the audit log."""

    def __init__(self, level: Level, privacy: Privacy, invocation: Invocation = BARE) -> None:
        self._level = level
        self._search = invocation.command("audit", "query")
        # The key of hashed values belongs to the audit log, and hashes without a key can be tried out.
        self._privacy = privacy
        if privacy.query == "hash":
            self._privacy = msgspec.structs.replace(privacy, query="drop")
        self._repeats: RunCounter[Decision] = RunCounter(WINDOW)
        self._began: float | None = None  # of the window that bounds the first lines
        self._lines = 0
        self._beyond = 0

    def add(self, decision: Decision) -> None:
        """Log a decision, or count it."""
        if not self._is_logged(decision):
            return
        self.end_windows(decision.at)
        key = _kind_of(decision)
        if self._repeats.count(key, decision.at):
            return
        if self._began is None:
            self._began = decision.at
        if self._lines >= MAX_LINES:
            self._beyond += 1
            return
        self._lines += 1
        self._repeats.begin(key, decision.at, decision)
        log.info("%s", log_line_of(decision, self._privacy))

    def end_windows(self, now: float) -> None:
        """Log the counts of the windows that have ended. `now` is in seconds since 1970; this is
        also called while no decision is made."""
        self._repeats.end(now)
        self._log_ended()
        if self._began is not None and not 0 <= now - self._began < WINDOW:
            self._log_beyond()

    def close(self) -> None:
        """Log all counts."""
        self._repeats.end_all()
        self._log_ended()
        self._log_beyond()

    def _is_logged(self, decision: Decision) -> bool:
        if self._level == "drops":
            return _is_refused(decision.verdict)
        return self._level == "all"

    def _log_ended(self) -> None:
        while (run := self._repeats.next_ended(0.0)) is not None:
            log.info("%s", self._count_of(run))

    def _count_of(self, run: Run[Decision]) -> str:
        seconds = max(1, math.ceil(run.until - run.since))
        return f"{run.count} more within {seconds} s like: {log_line_of(run.like, self._privacy)}"

    def _log_beyond(self) -> None:
        if self._beyond:
            log.info(
                "%d more have no lines of their own, because there are %d a minute at most: see %s",
                self._beyond,
                MAX_LINES,
                self._search,
            )
        self._began, self._lines, self._beyond = None, 0, 0


def _kind_of(decision: Decision) -> Hashable:
    """The values that decisions counted together have in common."""
    question, verdict, override = decision.question, decision.verdict, decision.override
    trouble = decision.policy.trouble if decision.policy is not None else None
    failure = trouble.failure if trouble is not None else None
    is_unexplained = verdict.reason is Reason.UNREACHABLE and failure is None
    return (
        decision.component,
        question.origin,
        question.agent,
        verdict.action,
        verdict.reason,
        verdict.rule,
        verdict.relaxed,
        verdict.would,
        decision.placeholder,
        decision.has_escaped,
        failure,
        verdict.detail if is_unexplained else None,
        override,
    )


def _is_refused(verdict: Verdict) -> bool:
    """Whether a request is refused or deferred, or would be if the guard did not only report.

    What an override lets pass is not refused, whatever the site's rules say.
    """
    if verdict.action is not Action.PASS:
        return True
    return verdict.is_only_reported
