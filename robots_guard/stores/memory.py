"""Policies and turns in memory: least recently used first out, bounded by octets and not by count.

Also stands in front of every other store inside a guard: what is held here is answered without waiting.
"""

from __future__ import annotations

import threading

from cachetools import LRUCache

from robots_guard.core.policy import Policy
from robots_guard.origin import Origin
from robots_guard.stores.turns import MemoryTurns

DEFAULT_OCTETS = 64 * 1024 * 1024


class MemoryStore(MemoryTurns):
    """A bounded dictionary of policies, and whose turn it is."""

    def __init__(self, octets: int = DEFAULT_OCTETS) -> None:
        super().__init__()
        self._held: LRUCache[Origin, Policy] = LRUCache(octets, getsizeof=lambda policy: policy.size)
        self._using = threading.Lock()  # a get reorders, so readers exclude each other too

    def get(self, origin: Origin) -> Policy | None:
        """The policy held, or None."""
        with self._using:
            return self._held.get(origin)

    def put(self, policy: Policy, now: float) -> None:
        """Keep a policy, unless a later one is held."""
        with self._using:
            held = self._held.get(policy.origin)
            if held is None or held.gives_way_to(policy, now):
                self._held[policy.origin] = policy

    def forget(self, origin: Origin) -> bool:
        """Drop the policy held; whether there was one."""
        with self._using:
            return self._held.pop(origin, None) is not None

    def origins(self) -> list[Origin]:
        """All origins held."""
        with self._using:
            return list(self._held)

    def close(self) -> None:
        """Nothing to release."""
