"""The one builder of guards for tests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from robots_guard.decisions.verdict import Terms
from robots_guard.guard.guard import Guard
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.ports import AuditLog, Clocks, Fetcher, LocalStore, Runtime, Store
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.testing import CapturingAuditLog

CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


def make_guard(
    fetcher: Fetcher,
    *,
    memory: LocalStore | None = None,
    store: Store | None = None,
    audit_log: AuditLog | None = None,
    clocks: Clocks = CLOCKS,
    runtime: Runtime | None = None,
    tokens: Callable[[int], str] = secrets.token_hex,
    terms: Mapping[str, Any] | None = None,
    **options: Any,
) -> Guard:
    """Build a guard. It keeps its records in memory unless an `audit_log` is given; `terms` and
    `options` are those that differ from the defaults."""
    judged_by = Terms(
        **{"dialect": dialect("rfc9309"), "matching": matching("standard"), **(terms or {})}
    )
    return Guard(
        GuardOptions(**{"component": "test", "terms": judged_by, **options}),
        runtime=runtime or AsyncioRuntime(),
        clocks=clocks,
        memory=MemoryStore() if memory is None else memory,
        store=store,
        fetcher=fetcher,
        audit_log=CapturingAuditLog() if audit_log is None else audit_log,
        tokens=tokens,
    )
