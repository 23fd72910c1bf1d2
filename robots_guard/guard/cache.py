"""The policy cache: policies in this process's memory, in front of the store that processes share.

Invariant: the guard checks memory before the store, so a policy in memory is used without waiting.
A store that fails is a cache miss: it is counted and logged, and never an error for the caller.
Invariant: only what is about the site is put into memory and store as its policy. A failure of a
route or of this process is kept apart, and shown to those requests only that it is about.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import msgspec

from robots_guard.decisions.access import Scope
from robots_guard.decisions.lease import Taken
from robots_guard.decisions.policy import FetchTrouble, Policy
from robots_guard.errors import DamagedValue, OutOfTime, StoreError
from robots_guard.guard.calls import Calls
from robots_guard.guard.counters import Counters
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, PolicyStore

MAX_LOCAL_FAILURES = 10_000  # failures of routes and of this fetcher that are remembered


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
        # By origin and route, which is None for a failure of the fetcher: that concerns all routes.
        # Each operation of a dict is atomic among threads.
        self._local_failures: dict[tuple[Origin, str | None], FetchTrouble] = {}

    def get_local(self, origin: Origin, route: str = "") -> Policy | None:
        """Return the policy in memory that holds for requests by a route."""
        policy = self._usable_part(self._memory.get(origin))
        if not self._local_failures:  # the usual case
            return policy
        for key in ((origin, route), (origin, None)):
            trouble = self._local_failures.get(key)
            if trouble is not None:
                policy = _with_trouble(policy, origin, trouble)
        return policy

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

    async def put(
        self, policy: Policy, route: str = "", after: Callable[[], None] | None = None
    ) -> Policy:
        """Put a policy that was fetched by a route into memory and store, unless its failure is not
        the site's.

        Returns what is now stored: after a failed fetch that may include a document which the store
        already had. `after`, if given, is called in the same thread after the policy has been
        stored, so that a further call to the store needs no change of threads. It must not raise.
        """
        if policy.trouble is not None and policy.trouble.scope is not Scope.SITE:
            self.put_local_failure(policy.origin, policy.trouble, route)
            return policy
        for key in ((policy.origin, route), (policy.origin, None)):  # both work
            self._local_failures.pop(key, None)
        now = self._clocks.now()
        self._memory.put(policy, now)
        if self._store is None:
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

    def put_local_failure(self, origin: Origin, trouble: FetchTrouble, route: str) -> None:
        """Remember a failure of a route or of the fetcher, for the requests that it concerns."""
        key = (origin, route if trouble.scope is Scope.ROUTE else None)
        self._local_failures.pop(key, None)  # to become the newest
        self._local_failures[key] = trouble
        for oldest in list(self._local_failures)[: len(self._local_failures) - MAX_LOCAL_FAILURES]:
            self._local_failures.pop(oldest, None)

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


def _with_trouble(policy: Policy | None, origin: Origin, trouble: FetchTrouble) -> Policy:
    """The policy together with a failure that is not the site's, unless the policy is newer or its own
    trouble lasts longer."""
    if policy is None:
        return Policy(origin=origin, trouble=trouble)
    before = policy.trouble
    if before is None:
        is_past = policy.settled_at > trouble.at
        return policy if is_past else msgspec.structs.replace(policy, trouble=trouble)
    shown, hidden = trouble, before
    if policy.settled_at > trouble.at or before.next_try > trouble.next_try:
        shown, hidden = before, trouble
    return msgspec.structs.replace(policy, trouble=shown, others=(*policy.others, hidden))


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
