"""Policies and turns in memory, in an LRU cache bounded by bytes rather than by count.

Every guard also keeps one as its local cache in front of the shared store: reading it never blocks.
"""

from __future__ import annotations

import threading

from cachetools import LRUCache

from robots_guard.core.policy import Policy
from robots_guard.origin import Origin
from robots_guard.stores.turns import MemoryTurns

DEFAULT_SIZE = 64 * 1024 * 1024  # bytes


class MemoryStore(MemoryTurns):
    """A bounded LRU cache of policies, and the turns of each origin."""

    def __init__(self, max_bytes: int = DEFAULT_SIZE) -> None:
        super().__init__()
        self._policies: LRUCache[Origin, Policy] = LRUCache(
            max_bytes, getsizeof=lambda policy: policy.size
        )

    def reset_after_fork(self) -> None:
        """Create unlocked locks, as MemoryTurns does after a fork."""
        super().reset_after_fork()
        # an LRU get reorders entries, so readers need it too
        self._policies_lock = threading.Lock()

    def get(self, origin: Origin) -> Policy | None:
        """Return the cached policy, or None."""
        with self._policies_lock:
            try:  # cachetools' `get` looks a key up twice
                return self._policies[origin]
            except KeyError:
                return None

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy, unless the cached one is newer (`Policy.may_be_replaced_by`)."""
        with self._policies_lock:
            cached = self._policies.get(policy.origin)
            if cached is None or cached.may_be_replaced_by(policy, now):
                self._policies[policy.origin] = policy

    def forget(self, origin: Origin) -> bool:
        """Remove the cached policy. Returns whether there was one."""
        with self._policies_lock:
            return self._policies.pop(origin, None) is not None

    def origins(self) -> list[Origin]:
        """Return every origin that has a cached policy."""
        with self._policies_lock:
            return list(self._policies)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
