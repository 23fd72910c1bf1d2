"""Runs: decisions that are alike are counted, and each count of ordinary PASSes becomes one record.

A run ends some seconds after its first decision, or earlier if there are too many runs. The audit
log writes the runs that have ended with its next record, in an idle process soon after they have
ended, and all of them when it is closed. A killed process loses its running counts.

Invariant: no PASS depends on its count: it is returned whether the count can be written or not.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from robots_guard.audit.privacy import cut
from robots_guard.audit.record import LONGEST_USER_AGENT, SCHEMA, Passes, moment
from robots_guard.decisions.verdict import Decision

T = TypeVar("T")

MAX_RUNS = 10_000  # that are counted at once; and again as many that are to be written


@dataclass(slots=True)
class Run(Generic[T]):
    """Decisions that are alike: their number, and the times of the first and of the last.

    `like` says what they have in common.
    """

    key: Hashable
    like: T
    since: float  # seconds since 1970
    until: float
    count: int

    def merge(self, other: Run[T]) -> None:
        """Add the decisions of a run of the same key."""
        self.count += other.count
        self.since = min(self.since, other.since)
        self.until = max(self.until, other.until)


class RunCounter(Generic[T]):
    """Counts decisions that have the same key, within `window` seconds of the first.

    It may be called from any thread. `ended` are the runs to be written, by key; `lost` is the
    number of those that were given up, because too many could not be written.
    """

    def __init__(self, window: float) -> None:
        self.lost = 0
        self._window = window
        self._runs: dict[Hashable, Run[T]] = {}  # oldest first
        self.ended: dict[Hashable, Run[T]] = {}
        self._next_attempt = -math.inf  # to write one, after a failure
        self._lock = threading.Lock()
        # Decisions between these times end no run.
        self._after, self._before = -math.inf, math.inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted or to be written."""
        return not (self._runs or self.ended)

    def count(self, key: Hashable, at: float) -> bool:
        """Count a decision in its run. False if no run of this key has begun."""
        with self._lock:
            if not self._after < at < self._before:
                self._end(at)
            run = self._runs.get(key)
            if run is None:
                return False
            run.count += 1
            run.until = at
            return True

    def begin(self, key: Hashable, at: float, like: T, count: int = 0) -> None:
        """Begin a run with `count` decisions, or add them if it has begun."""
        with self._lock:
            self._runs.setdefault(key, Run(key, like, at, at, 0)).count += count
            self._end(at)

    def end(self, now: float) -> None:
        """End the runs whose window is over."""
        with self._lock:
            self._end(now)

    def end_all(self) -> None:
        """End every run."""
        with self._lock:
            for run in self._runs.values():
                self._enqueue(run)
            self._runs = {}
            self._after, self._before = -math.inf, math.inf

    def next_ended(self, now: float) -> Run[T] | None:
        """Take the next run to be written; None if there is none, or until a postponed attempt is
        due.

        The caller gives it back with `postpone` if it cannot write it. `now` is a time of the
        monotonic clock.
        """
        if not self.ended or now < self._next_attempt:
            return None
        with self._lock:
            if self.ended:
                return self.ended.pop(next(iter(self.ended)))
            return None

    def postpone(self, run: Run[T], until: float) -> None:
        """Take back a run that could not be written. None is returned until then: the others would
        fail as well."""
        with self._lock:
            self._enqueue(run)
            self._next_attempt = until

    def _end(self, now: float) -> None:
        """End the runs whose window is over, or begins later because the clock was set back; and
        the oldest if there are too many."""
        while self._runs:
            key, run = next(iter(self._runs.items()))
            self._after, self._before = run.since - self._window, run.since + self._window
            if self._after < now < self._before and len(self._runs) < MAX_RUNS:
                return
            del self._runs[key]
            self._enqueue(run)
        self._after, self._before = -math.inf, math.inf

    def _enqueue(self, run: Run[T]) -> None:
        """Have a run written. While none can be, those of one key become one."""
        if not run.count:
            return
        waiting = self.ended.get(run.key)
        if waiting is not None:
            waiting.merge(run)
        elif len(self.ended) < MAX_RUNS:
            self.ended[run.key] = run
        else:
            self.lost += 1


# -- passes ----------------------------------------------------------------------------------------

WINDOW = 60.0  # seconds that a record of passes counts

PassFields = dict[str, Any]


def pass_key(decision: Decision) -> tuple[Any, ...]:
    """The values that PASSes counted together have in common, besides the component."""
    question, policy = decision.question, decision.policy
    document = policy.document if policy is not None else None
    sha256 = document.sha256 if document is not None else None
    return question.origin, question.agent, decision.verdict.reason, sha256


def pass_fields(decision: Decision) -> PassFields:
    """The same values as fields of a record. The decision itself is not kept, because its policy
    may be large."""
    return {
        "origin": str(decision.question.origin),
        "agent": cut(decision.question.agent, LONGEST_USER_AGENT),
        "action": decision.verdict.action.value,
        "reason": decision.verdict.reason.value,
        "sha256": _sha256(decision),
    }


def _sha256(decision: Decision) -> str | None:
    """The digest of the document on which a decision is based."""
    policy = decision.policy
    if policy is None or policy.document is None:
        return None
    return policy.document.sha256


def passes_record_of(run: Run[PassFields], now: float, head: dict[str, Any]) -> Passes:
    """The record of a run that has ended. `head` has the fields common to all records, except
    `schema` and `at`.

    Its time is `now` and not that of the run, because a file is in order of time and belongs to a
    day.
    """
    return Passes(
        **head | run.like,
        schema=SCHEMA,
        at=moment(now),
        count=run.count,
        since=moment(run.since),
        until=moment(run.until),
    )


# -- writing them in an idle process ---------------------------------------------------------------


class Alarm:
    """Calls a method some seconds after `set`, unless it is disabled. It does not keep the method's
    object alive. The call is made in a daemon thread of its own."""

    def __init__(self, call: Callable[[], None], *, is_enabled: bool) -> None:
        self._call = weakref.WeakMethod(call)
        self._is_enabled = is_enabled
        self._timer: threading.Timer | None = None

    def set(self, seconds: float) -> None:
        """Set the alarm, unless it is set."""
        if not self._is_enabled or self._timer is not None:
            return
        timer = threading.Timer(seconds, self._ring)
        timer.name, timer.daemon = "robots_guard-counts", True
        self._timer = timer
        try:
            timer.start()
        except RuntimeError:  # no thread can be started, as at exit
            self._timer = None

    def cancel(self) -> None:
        """Stop the alarm, if it is set; it cannot be set again."""
        self._is_enabled = False
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        call = self._call()
        if call is not None:
            call()
