"""Deliberate faults, planted one at a time. Each changes one line of the guard, and the simulation
must find it.

A fault is planted while its module is imported, so a process has at most one fault, for its whole
life.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A replacement of `old`, which occurs once in the source of `module`, by `new`."""

    name: str
    module: str
    old: str
    new: str


FAULTS = (
    # -- pacing
    Fault(
        name="half-delay",
        module="robots_guard.decisions.pacing",
        old="paced = last + delay\n",
        new="paced = last + delay / 2\n",
    ),
    Fault(
        name="no-hold-off",
        module="robots_guard.decisions.pacing",
        old="max(pause, paced - now)",
        new="max(0.0, paced - now)",
    ),
    Fault(
        name="turn-not-kept",
        module="robots_guard.guard.stores.memory",
        old="self._last[origin] = turn.stamp",
        new="pass",
    ),
    Fault(
        name="turn-not-noted",
        module="robots_guard.guard.turns",
        old="self._local.reserve(origin, 0.0, lambda: turn.asked)",
        new="pass",
    ),
    Fault(
        name="turn-not-moved",
        module="robots_guard.guard.turn_check",
        old="turn = self._turns.move_in_background(decision.question.origin, decision.turn, since)",
        new="return decision",
    ),
    Fault(
        name="late-turn-used",
        module="robots_guard.guard.turn_check",
        old="if has_lapsed(decision.turn, self._clocks.now()):\n            return",
        new="if False:\n            return",
    ),
    Fault(
        name="any-turn-moved",
        module="robots_guard.guard.stores.memory",
        old="is_last = self._last.get(origin) == stamp",
        new="is_last = origin in self._last",
    ),
    Fault(
        name="no-queue",
        module="robots_guard.decisions.pacing",
        old="for place in others[:at])",
        new="for place in others[:0])",
    ),
    Fault(
        name="slots-not-agreed",
        module="robots_guard.decisions.pacing",
        old="(earliest + self.skew) / delay)",
        new="(earliest - self.since) / delay)",
    ),
    Fault(
        name="no-patience",
        module="robots_guard.guard.turns",
        old="if not await queue.head.acquire_within(patience):",
        new="if not await queue.head.acquire_within(1e9):",
    ),
    # -- the lease and the renewal
    Fault(
        name="no-lease",
        module="robots_guard.decisions.lease",
        old="if not self.leased and self.patience > 0:",
        new="if False:",
    ),
    Fault(
        name="no-second-look",
        module="robots_guard.decisions.lease",
        old="if found is not None and self._is_renewal",
        new="if False and self._is_renewal",
    ),
    Fault(
        name="lease-kept",
        module="robots_guard.guard.single_flight",
        old="token = self._tokens.pop(job, None)",
        new="token = None",
    ),
    Fault(
        name="short-lease",
        module="robots_guard.guard.single_flight",
        old="self._lease = limits.total + MARGIN",
        new="self._lease = 0.2",
    ),
    Fault(
        name="no-back-off",
        module="robots_guard.decisions.renewal",
        old="retry_at=now + max(",
        new="retry_at=now + 0 * max(",
    ),
    Fault(
        name="renewal-kept",
        module="robots_guard.guard.single_flight",
        old="self._running.pop(job.origin, None)",
        new="pass",
    ),
    Fault(
        name="policy-not-shared",
        module="robots_guard.guard.cache",
        old="    store.put(policy, now)\n",
        new="",
    ),
    # -- reservations
    Fault(
        name="never-lacking",
        module="robots_guard.decisions.policy",
        old="if needs_reservations and self.lacks_reservations:",
        new="if False:",
    ),
    Fault(
        name="reservations-forbidden",
        module="robots_guard.decisions.renewal",
        old="            return fetching\n        why",
        new="            return fetching\n        return fetching\n        why",
    ),
    Fault(
        name="reservations-without-turn",
        module="robots_guard.guard.own_requests",
        old="if decision.verdict.action is not Action.PASS:",
        new="if True:",
    ),
    Fault(
        name="reservations-forgotten",
        module="robots_guard.decisions.codec",
        old="        reservations=reservations,\n    )\n\n\ndef _to_stored",
        new="    )\n\n\ndef _to_stored",
    ),
    # -- freshness
    Fault(
        name="always-stale",
        module="robots_guard.decisions.freshness",
        old="if age < usable_for:",
        new="if True:",
    ),
    Fault(
        name="long-fresh",
        module="robots_guard.decisions.freshness",
        old="if age < fresh_for:",
        new="if age < 3 * fresh_for:",
    ),
    Fault(
        name="last-good-for-ever",
        module="robots_guard.decisions.policy",
        old="<= STALE_IF_ERROR:",
        new="<= 100 * STALE_IF_ERROR:",
    ),
    Fault(
        name="older-wins",
        module="robots_guard.guard.stores.memory",
        old="if not cached.may_be_replaced_by(policy, now):",
        new="if cached.may_be_replaced_by(policy, now):",
    ),
    # -- verdicts
    Fault(
        name="unreachable-passes",
        module="robots_guard.decisions.verdict",
        old="return Verdict(action=Action.DROP, reason=reason, detail=detail)",
        new="return Verdict(action=Action.PASS, reason=reason, detail=detail)",
    ),
    Fault(
        name="restricted-passes",
        module="robots_guard.decisions.verdict",
        old="return Verdict(action=Action.DROP, reason=Reason.RESTRICTED",
        new="return Verdict(action=Action.PASS, reason=Reason.RESTRICTED",
    ),
    # -- the audit log
    Fault(
        name="unrecorded-turn",
        module="robots_guard.guard.recorder",
        old="return self._publish(msgspec.structs.replace(decision, **changed))",
        new="return msgspec.structs.replace(decision, **changed)",
    ),
    Fault(
        name="unrecorded-passes",
        module="robots_guard.guard.recorder",
        old="if self._options.audit_required:",
        new="if False:",
    ),
    Fault(
        name="not-locked",
        module="robots_guard.audit.write.log_file",
        old="if lock(descriptor, files) and files.fstat(descriptor).st_nlink:",
        new="if True:",
    ),
    Fault(
        name="removal-not-seen",
        module="robots_guard.audit.write.log_file",
        old="state = self._stat_following_rename()",
        new="return",
    ),
    Fault(
        name="torn-line-not-ended",
        module="robots_guard.audit.write.log_file",
        old='rest = b"\\n" + line if self._is_torn else line',
        new="rest = line",
    ),
    # -- time
    Fault(
        name="endless-call",
        module="robots_guard.guard.calls",
        old="seconds = max(0.0, min(CALL_TIMEOUT, deadline - call.began))",
        new="seconds = 1e9",
    ),
    Fault(
        name="endless-renewal",
        module="robots_guard.guard.single_flight",
        old="handle = self.begin(origin, cached, fetcher)\n",
        new="handle, seconds = self.begin(origin, cached, fetcher), 1e9\n",
    ),
)


class NotPlanted(Exception):
    """The line to change does not occur exactly once in the source."""


class _Loader(SourceFileLoader):
    """A loader of one module with its fault."""

    fault: Fault

    def source_to_code(self, data, path, *, _optimization=-1):
        text = bytes(data).decode()
        if text.count(self.fault.old) != 1:
            raise NotPlanted(
                f"{self.fault.name}: {self.fault.old!r} occurs {text.count(self.fault.old)} times in {path}"
            )
        return super().source_to_code(text.replace(self.fault.old, self.fault.new).encode(), path)

    def get_code(self, fullname: str):  # bypasses compiled files, for reading and writing
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
    """Plant a fault in this process, before any module of robots_guard is imported.

    If the fault does not apply, importing its module raises NotPlanted.
    """
    fault = next(each for each in FAULTS if each.name == name)
    assert not any(module.startswith("robots_guard") for module in sys.modules)
    sys.meta_path.insert(0, _Finder(fault))
    return fault
