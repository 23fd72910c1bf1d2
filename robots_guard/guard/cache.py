"""The policy cache: policies in this process's memory, in front of the store that processes share.

Invariant: the guard checks memory before the store, so a policy in memory is used without waiting.
A store that fails is a cache miss: it is counted and logged, and never an error for the caller. A
failure that is local to this process never replaces a document in the store: the stored document
may be newer, or trusted by processes with other CAs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from robots_guard.core.access import LOCAL_FAILURES
from robots_guard.core.lease import Taken
from robots_guard.core.policy import Policy
from robots_guard.errors import DamagedValue, OutOfTime, StoreError
from robots_guard.guard.calls import Calls
from robots_guard.guard.counters import Counters
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, PolicyStore


class PolicyCache:
    """The policies of one guard. `memory` never blocks; `store` is None where policies are in
    memory only.

    With `demands_verified`, an https policy fetched over unverified TLS counts as absent. `agent` is
    the guard's own.
    """

    def __init__(
        self,
        *,
        memory: PolicyStore,
        store: PolicyStore | None,
        calls: Calls,
        clocks: Clocks,
        counters: Counters,
        demands_verified: bool,
        agent: str,
    ) -> None:
        self.shared = store is not None
        self._memory = memory
        self._store = store
        self._calls = calls
        self._clocks = clocks
        self._counters = counters
        self._demands_verified = demands_verified
        self._agent = agent

    def get_local(self, origin: Origin) -> Policy | None:
        """Return the policy in memory."""
        return self._usable_part(self._memory.get(origin))

    def has_local(self, policy: Policy) -> bool:
        """Whether this very policy is the one in memory."""
        return self._memory.get(policy.origin) is policy

    async def get_shared(self, origin: Origin, within: float = math.inf) -> Policy | None:
        """Return the policy in the store, and copy it into memory unless memory has a later one.

        Raises OutOfTime if the store does not answer `within` this many seconds.
        """
        if self._store is None:
            return None
        try:
            stored = await self._calls.make(self._store.get, origin, within=within)
        except DamagedValue as error:
            self._note_damage(error)
            return None
        except OutOfTime as error:
            self._warn(
                "a question is deferred because the policy store is slow: %s", error, "reading"
            )
            raise
        except StoreError as error:
            self._warn(
                "the policy store cannot be read; continuing without it: %s", error, "reading"
            )
            return None
        self._counters.mark_working("store/error", "reading")
        return self._copy(stored)

    def copy_shared(self, taken: Taken) -> Policy | None:
        """Return the policy that the store returned with a lease, as `get_shared` does."""
        if taken.damage:
            self._note_damage(DamagedValue(taken.damage))
        return self._copy(taken.policy)

    def _copy(self, stored: Policy | None) -> Policy | None:
        """Return the usable part of a stored policy, and copy it into memory."""
        stored = self._usable_part(stored)
        if stored is not None:
            stored = stored.as_read_by(self._agent)
            self._memory.put(stored, self._clocks.now())
        return stored

    def _note_damage(self, error: DamagedValue) -> None:
        self._counters.warn("store/damaged", "a policy in the store cannot be used: %s", error)

    async def put(self, policy: Policy, after: Callable[[], None] | None = None) -> Policy:
        """Put a policy into memory and, unless its failure is local to this process, into the
        store.

        Returns what is now stored: after a failed fetch that may include a document which the store
        already had. `after`, if given, is called in the same thread after the policy has been
        stored, so that a further call to the store needs no change of threads. It must not raise.
        """
        now = self._clocks.now()
        self._memory.put(policy, now)
        if self._store is None or (
            policy.trouble is not None and policy.trouble.failure in LOCAL_FAILURES
        ):
            return policy
        try:
            kept = await self._calls.make(_put_with_document, self._store, policy, now, after)
        except StoreError as error:
            self._warn(
                "the policy store cannot be written; continuing without it: %s", error, "writing"
            )
            return policy
        self._counters.mark_working("store/error", "reading", "writing")
        stored = self._usable_part(kept) or policy
        self._memory.put(stored, now)
        return stored

    def put_local(self, policy: Policy) -> None:
        """Put a policy into memory only: an internal error of this process must not affect other
        processes."""
        self._memory.put(policy, self._clocks.now())

    def close(self) -> None:
        """Release the store."""
        if self._store is not None:
            self._store.close()

    def _warn(self, message: str, error: StoreError, part: str) -> None:
        self._counters.warn("store/error", message, error, part=part)

    def _usable_part(self, policy: Policy | None) -> Policy | None:
        """Return the part of a policy that may be used. A trusted failure counts even if the
        document does not."""
        if policy is None or policy.origin.scheme != "https" or not self._demands_verified:
            return policy
        document, trouble = policy.document, policy.trouble
        if trouble is not None and not trouble.tls_verified:
            return None
        if document is None or document.tls_verified:
            return policy
        if trouble is None:
            return None
        return Policy(origin=policy.origin, trouble=trouble)


def _put_with_document(
    store: PolicyStore, policy: Policy, now: float, after: Callable[[], None] | None
) -> Policy:
    """Store the policy, call `after`, and return the policy. A failure is stored together with the
    last good document."""
    if policy.trouble is not None:
        with contextlib.suppress(DamagedValue):
            policy = policy.with_last_good_document(store.get(policy.origin), now)
    store.put(policy, now)
    if after is not None:
        after()
    return policy
