"""The options of a guard, which `configuration` builds from the settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from robots_guard.decisions.access import Limits
from robots_guard.decisions.verdict import Terms, Verdict, as_report_only
from robots_guard.guard.calls import STORE_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """What distinguishes one guard from another. Times are in seconds."""

    #: The integration that the guard works for, as its records name it.
    component: str
    #: How questions are judged, except where an override changes that.
    terms: Terms
    #: The product token of the guard's own requests to pages of other origins that a robots.txt
    #: redirects to; empty: they are judged by the rules for all crawlers.
    agent: str = ""
    #: A file of overrides.
    overrides: Path | None = None
    #: The limits of one fetch of a robots.txt.
    limits: Limits = field(default_factory=Limits)
    #: Whether a policy fetched over unverified TLS counts as absent.
    demands_verified: bool = True
    #: Seconds after which a check is deferred.
    decision_timeout: float = 35.0
    #: The calls to the store that may be in progress at once, each in a thread.
    store_threads: int = STORE_WIDTH
    #: Whether a pause that an origin asks for is kept.
    respect_retry_after: bool = True
    #: Whether nothing is refused, and the records say what would be.
    report_only: bool = False
    #: Whether a PASS that has to be recorded and cannot be becomes a refusal.
    audit_required: bool = False
    #: Whether a fetch is recorded in the event loop, as decisions are, and not in a thread. Only if
    #: that is as quick as a line of a decision: without evidence, and without a sync to the disk.
    records_fetches_at_once: bool = False

    def apply_report_only(self, verdict: Verdict) -> Verdict:
        """Return the verdict to act on: with `report_only` one that refuses nothing."""
        if self.report_only:
            return as_report_only(verdict)
        return verdict
