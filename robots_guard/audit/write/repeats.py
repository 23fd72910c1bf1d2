"""Repeats: decisions like one that was just recorded are counted instead of written.

Invariant: a decision is counted only if a record of its kind has been written. The first of a kind
is therefore always written, even if several threads decide at once or a write fails. A killed
process loses its running counts (audit/write/runs.py), but never a first record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.audit.record import SCHEMA, Repeats, moment, record_of
from robots_guard.audit.write.runs import Run
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Decision


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
    "placeholder": lambda decision: decision.placeholder,
    "escaped": lambda decision: decision.has_escaped,
    "failure": _failure,
    "detail": _unexplained,
    "override": lambda decision: decision.override and decision.override.id,
    "override_owner": lambda decision: decision.override and decision.override.owner,
    "override_reason": lambda decision: decision.override and decision.override.reason,
    "override_expires": lambda decision: decision.override and decision.override.expires,
}


def repeat_key(decision: Decision) -> tuple[Any, ...]:
    """The values that decisions counted together have in common."""
    return tuple([value(decision) for value in ALIKE.values()])


def repeats_of(
    run: Run[Decision], now: float, head: dict[str, Any], privacy: Privacy = DEFAULT
) -> Repeats:
    """The record of a run that has ended. `head` has the fields common to all records, except
    `schema` and `at`.

    Its time is `now` and not that of the run, because a file is in order of time and belongs to a
    day.
    """
    first = record_of(run.like, privacy=privacy)
    common = {
        name: getattr(first, name) for name, value in ALIKE.items() if value(run.like) is not None
    }
    return Repeats(
        **head | common,
        schema=SCHEMA,
        at=moment(now),
        id=run.like.id,
        count=run.count,
        since=moment(run.since),
        until=moment(run.until),
    )
