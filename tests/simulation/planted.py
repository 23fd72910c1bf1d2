"""Faults planted on purpose, one at a time: each is a change of one line of the guard that the simulation has to find.

A fault is planted while its module is imported, so a process has one fault at most, for its whole life.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


@dataclass(frozen=True)
class Fault:
    """`old` stands once in the source of `module`, and becomes `new`. `broken` are the invariants that may show it."""

    name: str
    module: str
    old: str
    new: str
    broken: tuple[str, ...]


FAULTS = (
    # -- pacing
    Fault("half-delay", "robots_guard.core.pacing", "paced = last + delay if", "paced = last + delay / 2 if", ("gap",)),
    Fault("no-hold-off", "robots_guard.core.pacing", "paced - now, held_off - now)", "paced - now)", ("held-off",)),
    Fault("turn-not-kept", "robots_guard.stores.turns", "self._last[origin] = turn.stamp", "pass", ("gap", "own-gap")),
    Fault(
        "turn-not-noted",
        "robots_guard.turns",
        "self._near.reserve(origin, 0.0, lambda: turn.asked)",
        "pass",
        ("own-gap",),
    ),
    Fault("turn-not-moved", "robots_guard.core.pacing", "return stamp + min(", "return stamp + 0 * min(", ("gap",)),
    Fault(
        "any-turn-moved",
        "robots_guard.stores.turns",
        "XX",
        "XX",
        ("gap", "own-gap"),
    ),
    Fault(
        "no-queue",
        "robots_guard.core.pacing",
        "ahead = sum(place.due <= due for place in others[:at])",
        "ahead = 0",
        ("starvation",),
    ),
    Fault(
        "no-patience",
        "robots_guard.turns",
        "if not await line.head.acquire_within(patience):",
        "if not await line.head.acquire_within(1e9):",
        ("patience",),
    ),
    # -- the lease and the renewal
    Fault(
        "no-lease", "robots_guard.core.flight", "if not self.leased and self.patience > 0:", "if False:", ("fetches",)
    ),
    Fault(
        "no-second-look",
        "robots_guard.core.flight",
        "if found is not None and self._renews",
        "if False and self._renews",
        ("fetches",),
    ),
    Fault("lease-kept", "robots_guard.renewing", "token = self._tokens.pop(job, None)", "token = None", ("leftovers",)),
    Fault(
        "short-lease", "robots_guard.renewing", "self._lease = limits.total + MARGIN", "self._lease = 0.2", ("fetches",)
    ),
    Fault("no-back-off", "robots_guard.core.renewal", "retry_at=now + max(", "retry_at=now + 0 * max(", ("fetches",)),
    Fault(
        "renewal-kept",
        "robots_guard.renewing",
        "self._running.pop(job.origin, None)",
        "pass",
        ("outdated", "leftovers"),
    ),
    Fault(
        "not-shared",
        "robots_guard.holding",
        "def _put(store: PolicyStore, policy: Policy, now: float) -> Policy:",
        "def _put(store: PolicyStore, policy: Policy, now: float) -> Policy:\n    return policy\n\n\ndef _unused(store: PolicyStore, policy: Policy, now: float) -> Policy:",
        ("fetches",),
    ),
    # -- freshness
    Fault(
        "always-stale",
        "robots_guard.core.freshness",
        "return Freshness.STALE if age < usable_for else",
        "return Freshness.STALE if True else",
        ("outdated",),
    ),
    Fault("long-fresh", "robots_guard.core.freshness", "if age < fresh_for:", "if age < 3 * fresh_for:", ("outdated",)),
    Fault(
        "last-good-for-ever",
        "robots_guard.core.policy",
        "<= STALE_IF_ERROR:",
        "<= 100 * STALE_IF_ERROR:",
        ("outdated",),
    ),
    Fault(
        "older-wins",
        "robots_guard.stores.memory",
        "if held is None or held.gives_way_to(policy, now):",
        "if held is None or not held.gives_way_to(policy, now):",
        ("outdated", "fetches", "forbidden"),
    ),
    # -- verdicts, and their records
    Fault(
        "unreachable-passes",
        "robots_guard.core.verdict",
        "return Verdict(action=Action.DROP, reason=Reason.UNREACHABLE, detail=detail)",
        "return Verdict(action=Action.PASS, reason=Reason.UNREACHABLE, detail=detail)",
        ("forbidden",),
    ),
    Fault(
        "restricted-passes",
        "robots_guard.core.verdict",
        "return Verdict(action=Action.DROP, reason=Reason.RESTRICTED, detail=detail, stale=stale)",
        "return Verdict(action=Action.PASS, reason=Reason.RESTRICTED, detail=detail, stale=stale)",
        ("forbidden",),
    ),
    Fault(
        "unrecorded-turn",
        "robots_guard.guard",
        "return self._released(msgspec.structs.replace(decision, **changed))",
        "return msgspec.structs.replace(decision, **changed)",
        ("recorded",),
    ),
    Fault("unrecorded-passes", "robots_guard.guard", "if self._audit_required:", "if False:", ("recorded",)),
    # -- time
    Fault(
        "endless-call",
        "robots_guard.calls",
        "seconds = min(within, LONGEST)",
        "seconds = 1e9",
        ("decision-timeout", "patience", "closing"),
    ),
    Fault(
        "endless-renewal",
        "robots_guard.renewing",
        "if handle.done() or await self._runtime.wait_at_most(handle, seconds):\n                return await self._runtime.wait(handle)\n        finally:",
        "if True:\n                return await self._runtime.wait(handle)\n        finally:",
        ("decision-timeout",),
    ),
)


class NotPlanted(Exception):
    """The line that is to be changed does not stand in the source, or more than once."""


class _Loader(SourceFileLoader):
    """Loads one module with its fault."""

    fault: Fault

    def source_to_code(self, data, path, *, _optimization: int = -1):  # type: ignore[no-untyped-def, override]
        text = bytes(data).decode()
        if text.count(self.fault.old) != 1:
            raise NotPlanted(
                f"{self.fault.name}: {self.fault.old!r} stands {text.count(self.fault.old)} times in {path}"
            )
        return super().source_to_code(text.replace(self.fault.old, self.fault.new).encode(), path)

    def get_code(self, fullname: str):  # never from a compiled file, never into one
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin)
        spec.loader.fault = self._fault
        return spec


def plant(name: str) -> Fault:
    """Plant a fault in this process, before any module of robots_guard is imported. Raises NotPlanted when it is."""
    fault = next(each for each in FAULTS if each.name == name)
    assert not any(module.startswith("robots_guard") for module in sys.modules)
    sys.meta_path.insert(0, _Finder(fault))
    return fault
