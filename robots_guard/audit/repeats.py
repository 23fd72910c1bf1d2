"""Repeats: decisions like one that was just recorded, counted instead of written.

The law of this file: the first of a kind is always written. What is only counted is told when its window ends,
at the latest when the journal is closed; a killed process takes its running counts with it, never a first.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from robots_guard.audit.record import SCHEMA, Repeats, moment
from robots_guard.core.verdict import Decision

KEPT = 10_000  # kinds counted at once


@dataclass(slots=True)
class Run:
    first: Decision
    count: int = 0
    last: float = 0.0


class Counter:
    """Counts repeats of one (door, origin, agent, action, reason, rule, relaxation, escape) within `window` seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._runs: dict[tuple[Any, ...], Run] = {}  # oldest first
        self._lock = threading.Lock()

    def counted(self, decision: Decision) -> tuple[bool, list[Run]]:
        """Whether this is a repeat, which is now counted; and the runs that have ended, to be told."""
        key = _key(decision)
        with self._lock:
            ended = self._ended(decision.at)
            run = self._runs.get(key)
            if run is None:
                self._runs[key] = Run(decision)
                return False, ended
            run.count += 1
            run.last = decision.at
            return True, ended

    def forget(self, decision: Decision) -> None:
        """The first of a kind could not be written: the next one is the first."""
        with self._lock:
            self._runs.pop(_key(decision), None)

    def all(self) -> list[Run]:
        """Every run, now ended."""
        with self._lock:
            runs, self._runs = self._runs, {}
        return [run for run in runs.values() if run.count]

    def _ended(self, now: float) -> list[Run]:
        ended = []
        for key, run in list(self._runs.items()):
            if abs(now - run.first.at) < self._window and len(self._runs) < KEPT:
                break
            del self._runs[key]
            if run.count:
                ended.append(run)
        return ended


def _key(decision: Decision) -> tuple[Any, ...]:
    question, verdict = decision.question, decision.verdict
    return (
        decision.door,
        question.origin,
        question.agent,
        verdict.action,
        verdict.reason,
        verdict.rule,
        verdict.relaxed,
        verdict.would,
        decision.has_escaped,
    )


def repeats_of(run: Run, head: dict[str, Any]) -> Repeats:
    """The record of a run that has ended. `head` has what every record has, but for `schema` and `at`."""
    question, verdict = run.first.question, run.first.verdict
    return Repeats(
        **head | {"door": run.first.door},
        schema=SCHEMA,
        at=moment(run.last),
        id=run.first.id,
        count=run.count,
        since=moment(run.first.at),
        until=moment(run.last),
        agent=question.agent,
        origin=str(question.origin),
        action=verdict.action.value,
        reason=verdict.reason.value,
        rule=verdict.rule.text if verdict.rule else None,
        line=verdict.rule.line if verdict.rule else None,
        would=verdict.would.value if verdict.would else None,
    )
