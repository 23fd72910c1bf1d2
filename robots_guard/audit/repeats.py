"""Repeats: decisions like one that was just recorded, counted instead of written.

Invariant: a decision is counted only while a record of its kind stands in the log. The first of a kind is therefore
always written, also when several threads ask at once and when a write fails. What is counted is told when its window
ends, at the latest when the journal is closed; a killed process takes its running counts with it, never a first.
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
from robots_guard.core.verdict import Decision, Reason

KEPT = 10_000  # kinds counted at once


def _failure(decision: Decision) -> Any:
    """Why robots.txt could not be had."""
    trouble = decision.policy.trouble if decision.policy else None
    return trouble.failure if trouble else None


def _unexplained(decision: Decision) -> Any:
    """What a report shows where a robots.txt could not be had and no failure says why."""
    is_explained = decision.verdict.reason is not Reason.UNREACHABLE or _failure(decision) is not None
    return None if is_explained else decision.verdict.detail


#: What decisions that are counted together have in common, by the fields of their record: all that reports group by.
ALIKE: Mapping[str, Callable[[Decision], Any]] = {
    "door": lambda decision: decision.door,
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
    first: Decision
    count: int = 0
    last: float = 0.0


class Counter:
    """Counts decisions that have all of ALIKE in common, within `window` seconds of the first."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._runs: dict[tuple[Any, ...], Run] = {}  # oldest first
        self._ended: deque[Run] = deque()  # to be told
        self._next_attempt = -math.inf  # to tell one, after a failure
        self._lock = threading.Lock()

    def counts(self, decision: Decision, weight: int) -> bool:
        """Whether this repeats a decision that was written, and is counted with it, as so many."""
        with self._lock:
            self._end(decision.at)
            run = self._runs.get(_key(decision))
            if run is None:
                return False
            run.count += weight
            run.last = decision.at
            return True

    def begin(self, decision: Decision) -> None:
        """This one was written: from now on its like are counted."""
        with self._lock:
            self._runs.setdefault(_key(decision), Run(decision))

    def next_ended(self, now: float) -> Run | None:
        """The next run to be told, which the caller gives back if it cannot; None also until then. `now` is by the
        monotonic clock."""
        if not self._ended or now < self._next_attempt:
            return None
        with self._lock:
            return self._ended.popleft() if self._ended else None

    def put_off(self, run: Run, until: float) -> None:
        """This one could not be told: no other is tried until then, for they would fail alike."""
        with self._lock:
            self._ended.appendleft(run)
            self._next_attempt = until

    def end_all(self) -> None:
        """Every run has ended."""
        with self._lock:
            self._ended.extend(run for run in self._runs.values() if run.count)
            self._runs = {}

    def _end(self, now: float) -> None:
        while self._runs:
            key, run = next(iter(self._runs.items()))
            if abs(now - run.first.at) < self._window and len(self._runs) < KEPT:
                break
            del self._runs[key]
            if run.count:
                self._ended.append(run)


def _key(decision: Decision) -> tuple[Any, ...]:
    return tuple([value(decision) for value in ALIKE.values()])


def repeats_of(run: Run, now: float, head: dict[str, Any], privacy: Privacy = DEFAULT) -> Repeats:
    """The record of a run that has ended, told now: a file is in order of time, and holds what its day can hold.
    `head` has what every record has, but for `schema` and `at`."""
    first = record_of(run.first, privacy=privacy)
    common = {name: getattr(first, name) for name, value in ALIKE.items() if value(run.first) is not None}
    return Repeats(
        **head | common,
        schema=SCHEMA,
        at=moment(now),
        id=run.first.id,
        count=run.count,
        since=moment(run.first.at),
        until=moment(run.last),
    )
