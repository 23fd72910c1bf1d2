"""Origins in the store: their policies, how fresh these are, and when the next turn is.

Invariant: reading takes no turn, refreshes no policy and removes none.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import NamedTuple

import msgspec

from robots_guard.audit.show.policy import PolicyView
from robots_guard.console.sources import Sources
from robots_guard.core.check import compiled
from robots_guard.core.pacing import RequiredDelay, as_wait, next_turn, reopening, required_delay
from robots_guard.core.policy import Document
from robots_guard.core.verdict import Terms
from robots_guard.errors import StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.ports import SharedStore
from robots_guard.rep.dialect import Dialect

SIZE = 50  # rows per page
NAMES_LIFETIME = 10.0  # seconds for which the list of all origins is cached


class StoredPolicy(NamedTuple):
    """The stored policy of an origin, under its terms now. `trouble` says why it, or the overrides, cannot be read."""

    origin: Origin
    view: PolicyView | None
    trouble: str
    terms: Terms
    now: float

    def in_dialect(self, dialect: Dialect) -> StoredPolicy:
        """The same policy, read in another dialect."""
        view = self.view._replace(dialect=dialect) if self.view else None
        return self._replace(view=view, terms=msgspec.structs.replace(self.terms, dialect=dialect))

    @property
    def rules(self) -> Document | None:
        """The document whose rules apply, or None."""
        if self.view:
            return self.view.rules
        return None


class NextTurn(NamedTuple):
    """When the next request may be sent: seconds to wait, the required delay, and when a closed site opens again."""

    wait: float
    delay: RequiredDelay | None
    by_retry_after: bool
    closed_until: float | None


class Origins:
    """The origins of a store, sorted by name and divided into pages."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._until = 0.0

    def page(self, store: SharedStore, part: str, after: str) -> tuple[list[Origin], str, int]:
        """Return the origins after `after` whose name contains `part`, the name after which the next page begins (or
        an empty string), and the total number. Raises StoreError.
        """
        names = [name for name in self._all(store) if part in name] if part else self._all(store)
        first = bisect_right(names, after) if after else 0
        some = names[first : first + SIZE]
        return (
            [origin_of(name) for name in some],
            some[-1] if first + SIZE < len(names) else "",
            len(names),
        )

    def forget(self) -> None:
        """Read the list anew next time."""
        self._until = 0.0

    def _all(self, store: SharedStore) -> list[str]:
        now = self._sources.clocks.monotonic()
        with self._lock:
            if now >= self._until:
                self._names = sorted(set(map(str, store.origins())))
                self._until = now + NAMES_LIFETIME
            return self._names


def look_up(sources: Sources, *origins: Origin) -> list[StoredPolicy]:
    """Return the stored policies of origins."""
    terms, trouble = sources.terms_now()
    return [_look_up(sources, origin, terms(origin), trouble) for origin in origins]


def _look_up(sources: Sources, origin: Origin, terms: Terms, trouble: str) -> StoredPolicy:
    policy, now = None, sources.clocks.now()
    if sources.store is not None:
        try:
            policy = sources.store.get(origin)
        except StoreError as error:
            trouble = f"the store {error}"
    view = PolicyView(policy, terms.dialect, now) if policy else None
    return StoredPolicy(origin, view, trouble, terms, now)


def next_turn_of(sources: Sources, it: StoredPolicy, agent: str) -> NextTurn | None:
    """Return an agent's next turn at an origin; None without a shared store. Raises StoreError."""
    if sources.store is None:
        return None
    rules = compiled(it.rules, it.terms, agent) if it.rules else None
    pace = rules.pace if rules else None
    opening = reopening(pace, it.now) if it.terms.visit_time == "keep" else None
    delay = required_delay(pace, it.terms.min_delay, it.terms.max_delay, it.now)
    wait = as_wait(
        next_turn(*sources.store.last_turn(it.origin), delay.seconds if delay else 0.0, it.now)
    )
    return NextTurn(wait.seconds, delay, wait.by_retry_after, opening[1] if opening else None)
