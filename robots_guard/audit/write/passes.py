"""Passes: ordinary PASSes are counted, and a `passes` record states how many there were of a kind.

No PASS depends on its count: it is returned whether the count can be written or not
(audit/write/runs.py).
"""

from __future__ import annotations

from typing import Any

from robots_guard.audit.privacy import cut
from robots_guard.audit.record import LONGEST_USER_AGENT, SCHEMA, Passes, moment
from robots_guard.audit.write.runs import Run
from robots_guard.core.verdict import Decision

WINDOW = 60.0  # seconds that a record counts

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
    `schema` and `at`; its time is `now`, as that of `repeats`."""
    return Passes(
        **head | run.like,
        schema=SCHEMA,
        at=moment(now),
        count=run.count,
        since=moment(run.since),
        until=moment(run.until),
    )
