"""Runs: decisions that are alike are counted, and each count becomes one record.

A run ends some seconds after its first decision, or earlier if there are too many runs. The audit
log writes the runs that have ended with its next record, in an idle process soon after they have
ended, and all of them when it is closed. A killed process loses its running counts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

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

    def count(self, key: Hashable, at: float, weight: int = 1) -> bool:
        """Count `weight` decisions in their run. False if no run of this key has begun."""
        with self._lock:
            if not self._after < at < self._before:
                self._end(at)
            run = self._runs.get(key)
            if run is None:
                return False
            run.count += weight
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
