"""The one builder of guards for tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from robots_guard.audit.write.log import CapturingAuditLog
from robots_guard.core.access import Limits
from robots_guard.core.verdict import Terms
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.ports import AuditLog, Clocks, Fetcher, Runtime
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.stores.memory import MemoryStore

CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


def make_guard(
    fetcher: Fetcher,
    *,
    store: Any = None,
    audit_log: AuditLog | None = None,
    clocks: Clocks = CLOCKS,
    runtime: Runtime | None = None,
    terms: Mapping[str, Any] | None = None,
    **options: Any,
) -> Guard:
    """Build a guard. It keeps its records in memory unless an `audit_log` is given; `terms` are
    those that differ from the defaults."""
    judged_by = Terms(dialect=dialect("rfc9309"), matching=matching("standard"), **(terms or {}))
    defaults: dict[str, Any] = {"component": "test", "terms": judged_by, "limits": Limits(), "leases": store}
    return Guard(
        **{**defaults, **options},
        runtime=runtime or AsyncioRuntime(),
        memory=MemoryStore(),
        store=store,
        fetcher=fetcher,
        audit_log=CapturingAuditLog() if audit_log is None else audit_log,
        clocks=clocks,
    )
