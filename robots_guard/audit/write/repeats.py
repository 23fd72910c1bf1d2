"""Repeats: decisions like one that was just recorded are counted instead of written.

Invariant: a decision is counted only if a record of its kind has been written. The first of a kind
is therefore always written, even if several threads decide at once or a write fails. A count is
written when its window ends, at the latest when the audit log is closed; a killed process loses its
running counts, but never a first record.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.audit.record import SCHEMA, Repeats, moment, record_of
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Decision

MAX_RUNS = 10_000  # kinds counted at once


def _failure(decision: Decision) -> Any:
    """Why robots.txt could not be fetched."""
    if decision.policy is None or decision.policy.trouble is None:
        return None
    return decision.policy.trouble.failure


def _unexplained(decision: Decision) -> Any:
    """What a report shows for an unreachable robots.txt if no failure is known."""
    if decision.verdict.reason is not Reason.UNREACHABLE or _failure(decision) is not None:
        return None
    return decision.verdict.detail


#: The record fields, and their values, that decisions counted together have in common: all that reports group by.
ALIKE: Mapping[str, Callable[[Decision], Any]] = {
    "component": lambda decision: decision.component,
    "origin": lambda decision: decision.question.origin,
    "agent": lambda decision: decision.question.agent,
    "action": lambda decision: decision.verdict.action,
    "reason": lambda decision: decision.verdict.reason,
    "rule": lambda decision: decision.verdict.rule,
    "line": lambda decision: decision.verdict.rule and decision.verdict.rule.line,
    "relaxed": lambda decision: decision.verdict.relaxed,
    "would": lambda decision: decision.verdict.would,
    "escaped": lambda decision: decision.has_escaped,
    "failure": _failure,
    "detail": _unexplained,
    "override": lambda decision: decision.override and decision.override.id,
    "override_owner": lambda decision: decision.override and decision.override.owner,
    "override_reason": lambda decision: decision.override and decision.override.reason,
    "override_expires": lambda decision: decision.override and decision.override.expires,
}


@dataclass(slots=True)
class Run:
    """Decisions like a recorded one, `first`: their number, and the time of the last."""

    first: Decision
    count: int = 0
    last: float = 0.0


class RepeatCounter:
    """Counts decisions that agree in all fields of ALIKE, within `window` seconds of the first."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._runs: dict[tuple[Any, ...], Run] = {}  # oldest first
        self._ended: deque[Run] = deque()  # to be written
        self._next_attempt = -math.inf  # to write one, after a failure
        self._lock = threading.Lock()

    def counts(self, decision: Decision, weight: int) -> bool:
        """Whether the decision repeats a recorded one. If so, it is counted, as `weight` decisions."""
        with self._lock:
            self._end(decision.at)
            run = self._runs.get(_key(decision))
            if run is None:
                return False
            run.count += weight
            run.last = decision.at
            return True

    def begin(self, decision: Decision) -> None:
        """Count decisions like this one, which has been recorded, from now on."""
        with self._lock:
            self._runs.setdefault(_key(decision), Run(decision))

    def next_ended(self, now: float) -> Run | None:
        """Take the next run to be written; None if there is none, or until a postponed attempt is
        due.

        The caller gives it back with `postpone` if it cannot write it. `now` is a time of the
        monotonic clock.
        """
        if not self._ended or now < self._next_attempt:
            return None
        with self._lock:
            if self._ended:
                return self._ended.popleft()
            return None

    def postpone(self, run: Run, until: float) -> None:
        """Take back a run that could not be written. None is returned until then: the others would
        fail as well."""
        with self._lock:
            self._ended.appendleft(run)
            self._next_attempt = until

    def end(self, now: float) -> None:
        """End the runs whose window is over. `now` is in seconds since 1970."""
        with self._lock:
            self._end(now)

    def end_all(self) -> None:
        """End every run."""
        with self._lock:
            self._ended.extend(run for run in self._runs.values() if run.count)
            self._runs = {}

    def _end(self, now: float) -> None:
        while self._runs:
            key, run = next(iter(self._runs.items()))
            if abs(now - run.first.at) < self._window and len(self._runs) < MAX_RUNS:
                break
            del self._runs[key]
            if run.count:
                self._ended.append(run)


def _key(decision: Decision) -> tuple[Any, ...]:
    return tuple([value(decision) for value in ALIKE.values()])


def repeats_of(run: Run, now: float, head: dict[str, Any], privacy: Privacy = DEFAULT) -> Repeats:
    """The record of a run that has ended. `head` has the fields common to all records, except
    `schema` and `at`.

    Its time is `now` and not that of the run, because a file is in order of time and belongs to a
    day.
    """
    first = record_of(run.first, privacy=privacy)
    common = {
        name: getattr(first, name) for name, value in ALIKE.items() if value(run.first) is not None
    }
    return Repeats(
        **head | common,
        schema=SCHEMA,
        at=moment(now),
        id=run.first.id,
        count=run.count,
        since=moment(run.first.at),
        until=moment(run.last),
    )
