"""The recorder numbers decisions, writes them to the audit log and counts them.

Invariant: a decision is recorded before it is returned. If that fails, it is counted, and a PASS
that has to be recorded becomes a refusal.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import msgspec

from robots_guard.decisions.check import Decided
from robots_guard.decisions.events import FailedOpen
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Question,
    ResponseRef,
    Terms,
    Verdict,
)
from robots_guard.errors import AuditLogError, UnconfirmedRecord
from robots_guard.guard.counters import Counters
from robots_guard.guard.options import GuardOptions
from robots_guard.origin import UNREADABLE
from robots_guard.ports import AuditLog, Clocks

log = logging.getLogger("robots_guard")

UNRECORDED = Verdict(
    action=Action.DROP,
    reason=Reason.UNRECORDED,
    detail="the audit log cannot be written",
)
INTERNAL_ERROR = Verdict(action=Action.DROP, reason=Reason.INTERNAL_ERROR)
_UNREADABLE = Question(origin=UNREADABLE, target="/", agent="unreadable", method="")


def refuse_after_error() -> Decided:
    """Log the current exception; return the refusal for it."""
    log.exception("robots_guard failed; the request is refused")
    return Decided(INTERNAL_ERROR)


def check_types(value: object, expected: type[msgspec.Struct]) -> None:
    """Raise an exception if a value from an integration is not of the type, or one of its fields
    is not."""
    msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), expected)


def recordable(question: Question) -> Question:
    """Return the question, or a placeholder if values of wrong types keep it from being recorded."""
    try:
        check_types(question, Question)
        question.origin.authority  # noqa: B018  raises for a scheme that has no default port
    except Exception:  # noqa: BLE001  an integration may have passed any object
        return _UNREADABLE
    return question


#: The keys of `Counters.counts` for verdicts, by action and reason: formatting enums is slow.
_COUNT_KEYS = {action: {reason: f"{action}/{reason}" for reason in Reason} for action in Action}


class Recorder:
    """The recorder of one guard. `tokens` returns random hexadecimal text of the given number of
    bytes. `on_decision` is called with each decision after it was recorded."""

    def __init__(
        self,
        options: GuardOptions,
        *,
        audit_log: AuditLog,
        clocks: Clocks,
        counters: Counters,
        tokens: Callable[[int], str],
        on_decision: Callable[[Decision], None] | None = None,
    ) -> None:
        self._options = options
        self._audit_log = audit_log
        self._clocks = clocks
        self._counters = counters
        self._tokens = tokens
        self._on_decision = on_decision
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start numbering decisions; their ids begin with a name unique to this process.

        The parent of a forked child itself records how many requests it let pass unrecorded.
        """
        self._writer = self._tokens(5)
        self._sequence = itertools.count(1)
        self._unrecorded_passes = 0  # PASSes returned since the audit log was last writable

    def issue(
        self,
        question: Question,
        decided: Decided,
        terms: Terms,
        source: str,
        began: float,
    ) -> Decision:
        """Return a new decision, recorded. `terms` are those it was judged under, even if others
        are in force by now."""
        decision = Decision(
            id=self._next_id(),
            at=self._clocks.now(),
            component=self._options.component,
            question=question,
            verdict=decided.verdict,
            policy=decided.policy,
            dialect=terms.dialect.name,
            matching=terms.matching.name,
            override=terms.override,
            source=source if decided.policy else "",
            elapsed=self._clocks.monotonic() - began,
        )
        return self._publish(decision)

    def issue_response(
        self, question: Question, verdict: Verdict, terms: Terms, response: ResponseRef
    ) -> Decision:
        """Issue a decision on a response: record, count and return it."""
        decision = Decision(
            id=self._next_id(),
            at=self._clocks.now(),
            component=self._options.component,
            question=question,
            verdict=verdict,
            dialect=terms.page_dialect,
            override=terms.override,
            response=response,
            purposes=terms.declared,
        )
        decision = self._record(decision)
        self._count_response(decision.verdict)
        self._announce(decision)
        return decision

    def _count_response(self, verdict: Verdict) -> None:
        """Count a response by the uses that its site denies. Its request was counted before."""
        counts = self._counters.counts
        counts["signals/read"] += 1
        if verdict.action is not Action.PASS or verdict.would is not None:
            counts[_COUNT_KEYS[verdict.action][verdict.reason]] += 1
        if verdict.uses is not None:
            for use, signal in verdict.uses.denials:
                counts[f"signals/{use}/{signal}"] += 1

    def reissue(self, decision: Decision, verdict: Verdict, waited: float) -> Decision:
        """Return the decision with another verdict and without a turn, recorded as a new one."""
        changed = {
            "id": self._next_id(),
            "at": self._clocks.now(),
            "verdict": verdict,
            "elapsed": waited,
            "turn": None,
        }
        return self._publish(msgspec.structs.replace(decision, **changed))

    def _next_id(self) -> str:
        return f"{self._writer}-{next(self._sequence)}"

    def _publish(self, decision: Decision) -> Decision:
        """Record the decision, count it and return it."""
        decision = self._record(decision)
        verdict = decision.verdict
        counts = self._counters.counts
        counts[_COUNT_KEYS[verdict.action][verdict.reason]] += 1
        if decision.question.sent and decision.has_escaped:
            counts["escaped"] += 1
        self._announce(decision)
        return decision

    def _announce(self, decision: Decision) -> None:
        """Pass the decision to the integration's callback. A fault of it changes no decision."""
        if self._on_decision is None:
            return
        try:
            self._on_decision(decision)
        except Exception:
            log.exception("a decision could not be logged; it remains valid")

    def _record(self, decision: Decision) -> Decision:
        """Write the decision to the audit log. If that fails and records are required, return a
        refusal instead."""
        try:
            self._audit_log.write(decision)
        except AuditLogError as error:
            return self._handle_unrecorded(decision, error)
        except Exception:
            log.exception(
                "robots_guard cannot make the record of a decision; the request is refused"
            )
            return self._refuse_unrecorded(decision)
        if self._counters.broken:
            self._counters.mark_working("audit_log/error", "records")
        if self._unrecorded_passes:
            self._record_gap(decision.at)
        return decision

    def _handle_unrecorded(self, decision: Decision, error: Exception) -> Decision:
        self._counters.warn(
            "audit_log/error", "a decision could not be recorded: %s", error, part="records"
        )
        if decision.verdict.action is not Action.PASS:
            return decision
        if self._options.audit_required:
            return msgspec.structs.replace(decision, verdict=UNRECORDED)
        self._unrecorded_passes += 1
        return decision

    def _refuse_unrecorded(self, decision: Decision) -> Decision:
        """Return the refusal that replaces a decision whose record cannot be encoded.

        It carries none of the data that could be at fault, and is recorded if possible. In
        report-only mode a PASS remains a PASS.
        """
        self._counters.counts["audit_log/error"] += 1
        passed = decision.verdict.action is Action.PASS
        verdict = self._options.apply_report_only(INTERNAL_ERROR) if passed else INTERNAL_ERROR
        refused = msgspec.structs.replace(
            decision,
            question=recordable(decision.question),
            verdict=verdict,
            policy=None,
            source="",
        )
        try:
            self._audit_log.write(refused)
        except Exception as error:  # noqa: BLE001  the fault may be in data that all records need
            return self._handle_unrecorded(refused, error)
        return refused

    def _record_gap(self, at: float) -> None:
        """Record how many requests passed unrecorded, now that the audit log is writable again."""
        count = self._unrecorded_passes
        try:
            event = FailedOpen(
                at=at, setting="audit_required", count=count, detail="allowed unrecorded"
            )
            self._audit_log.note(event, is_tried_again=True)
        except UnconfirmedRecord:
            pass  # it is written; a second record would count the requests twice
        except AuditLogError:
            return  # not writable yet: the decision that led here needed no record
        except Exception as error:  # noqa: BLE001  the decision itself is recorded and remains valid
            self._counters.warn(
                "audit_log/error",
                "the number of unrecorded requests could not be recorded: %s",
                error,
            )
            return
        self._unrecorded_passes -= count
