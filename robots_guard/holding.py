"""The policies a guard holds: near, in its own memory, and far, in the store it shares with others.

The law of this file: the memory is in front of every store, so that what is near is answered without waiting;
and a store that fails is a miss, counted and spoken of, never an error for whoever asks. Trouble of ours takes no
document from the others: it may be later than the one we know, or one that only we do not trust.
"""

from __future__ import annotations

import contextlib
import math

from robots_guard.calls import Calls
from robots_guard.core.access import OURS
from robots_guard.core.policy import Policy
from robots_guard.errors import DamagedValue, OutOfTime, StoreError
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, PolicyStore
from robots_guard.tally import Tally


class Holding:
    """`memory` never blocks; `store` is None where policies live in memory only.

    With `demands_verified`, an https policy that came over unverified TLS counts as not held.
    """

    def __init__(
        self,
        *,
        memory: PolicyStore,
        store: PolicyStore | None,
        calls: Calls,
        clocks: Clocks,
        tally: Tally,
        demands_verified: bool,
    ) -> None:
        self.shared = store is not None
        self._memory = memory
        self._store = store
        self._calls = calls
        self._clocks = clocks
        self._tally = tally
        self._demands_verified = demands_verified

    def near(self, origin: Origin) -> Policy | None:
        """The policy in memory."""
        return self._trusted(self._memory.get(origin))

    async def far(self, origin: Origin, within: float = math.inf) -> Policy | None:
        """The policy in the store, which is then in memory, too, unless a later one is there. Raises OutOfTime
        if the store does not answer `within` so many seconds."""
        if self._store is None:
            return None
        try:
            held = self._trusted(await self._calls.make(self._store.get, origin, within=within))
        except DamagedValue as error:
            self._tally.warn("store/damaged", "a policy in the store cannot be used: %s", error)
            return None
        except OutOfTime as error:
            self._warn("a question is deferred, the policy store may still answer: %s", error, "reading")
            raise
        except StoreError as error:
            self._warn("the policy store cannot be read, going on without it: %s", error, "reading")
            return None
        self._tally.works("store/error", "reading")
        if held is not None:
            self._memory.put(held, self._clocks.now())
        return held

    async def keep(self, policy: Policy) -> Policy:
        """Put a policy into memory and, unless it tells of a trouble that is only ours, into the store; what is now
        held: trouble may have found a document there."""
        now = self._clocks.now()
        self._memory.put(policy, now)
        if self._store is None or (policy.trouble is not None and policy.trouble.failure in OURS):
            return policy
        try:
            kept = await self._calls.make(_put, self._store, policy, now)
        except StoreError as error:
            self._warn("the policy store cannot be written, going on without it: %s", error, "writing")
            return policy
        self._tally.works("store/error", "reading", "writing")
        held = self._trusted(kept) or policy
        self._memory.put(held, now)
        return held

    def keep_near(self, policy: Policy) -> None:
        """Put a policy into memory only: what our own fault made is nobody else's."""
        self._memory.put(policy, self._clocks.now())

    def close(self) -> None:
        """Release the store."""
        if self._store is not None:
            self._store.close()

    def _warn(self, message: str, error: StoreError, part: str) -> None:
        self._tally.warn("store/error", message, error, part=part)

    def _trusted(self, policy: Policy | None) -> Policy | None:
        """What may be used of a policy: trouble is believed without a document that is not."""
        if policy is None or policy.origin.scheme != "https" or not self._demands_verified:
            return policy
        document, trouble = policy.document, policy.trouble
        if trouble is not None and not trouble.tls_verified:
            return None
        if document is None or document.tls_verified:
            return policy
        return None if trouble is None else Policy(origin=policy.origin, trouble=trouble)


def _put(store: PolicyStore, policy: Policy, now: float) -> Policy:
    """Put it, trouble beside the document that is held; what was put."""
    if policy.trouble is not None:
        with contextlib.suppress(DamagedValue):
            policy = policy.beside(store.get(policy.origin), now)
    store.put(policy, now)
    return policy
