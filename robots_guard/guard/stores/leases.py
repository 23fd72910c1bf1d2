"""Leases of stores that have a lease and a policy in separate calls."""

from __future__ import annotations

from typing import Protocol

from robots_guard.decisions.lease import Taken
from robots_guard.decisions.policy import Policy
from robots_guard.errors import DamagedValue
from robots_guard.origin import Origin


class _Separate(Protocol):
    def get(self, origin: Origin) -> Policy | None: ...

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool: ...


class LeaseThenPolicy:
    """Takes a lease and then reads the policy: for a store on this machine, where a call costs
    little."""

    def take_and_get(
        self: _Separate, origin: Origin, token: str, now: float, seconds: float
    ) -> Taken:
        """Take the origin's lease, and return also the policy that is stored then."""
        is_ours = self.take(origin, token, now, seconds)
        try:
            return Taken(is_ours, self.get(origin))
        except DamagedValue as error:
            return Taken(is_ours, damage=str(error))
