"""Policies and turns in memory, in an LRU cache bounded by bytes rather than by count.

Every guard also keeps one as its local cache in front of the shared store: reading it never blocks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from robots_guard.decisions.policy import Policy
from robots_guard.guard.stores.turns import MemoryTurns
from robots_guard.origin import Origin

DEFAULT_SIZE = 64 * 1024 * 1024  # bytes


class MemoryStore(MemoryTurns):
    """A bounded LRU cache of policies, and the turns of each origin.

    `get` takes no lock, because every question comes there: each of its steps is one operation of
    the dict. Methods that change the policies hold the lock.
    """

    def __init__(self, max_bytes: int = DEFAULT_SIZE) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._policies: OrderedDict[Origin, Policy] = OrderedDict()  # the last used last

    def reset_after_fork(self) -> None:
        """Create unlocked locks, as MemoryTurns does after a fork."""
        super().reset_after_fork()
        self._policies_lock = threading.Lock()

    def get(self, origin: Origin) -> Policy | None:
        """Return the cached policy, or None."""
        policy = self._policies.get(origin)
        if policy is None:
            return None
        try:
            self._policies.move_to_end(origin)
        except KeyError:  # another thread has removed it meanwhile
            return None
        return policy

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy, unless the cached one is newer (`Policy.may_be_replaced_by`)."""
        origin = policy.origin
        with self._policies_lock:
            cached = self._policies.get(origin)
            if cached is not None:
                if not cached.may_be_replaced_by(policy, now):
                    return
                self._bytes -= cached.size
            self._policies[origin] = policy
            self._policies.move_to_end(origin)
            self._bytes += policy.size
            while self._bytes > self._max_bytes:
                _, removed = self._policies.popitem(last=False)
                self._bytes -= removed.size

    def forget(self, origin: Origin) -> bool:
        """Remove the cached policy. Returns whether there was one."""
        with self._policies_lock:
            cached = self._policies.pop(origin, None)
            if cached is None:
                return False
            self._bytes -= cached.size
            return True

    def origins(self) -> list[Origin]:
        """Return every origin that has a cached policy."""
        with self._policies_lock:
            return list(self._policies)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
