"""Origins: what is held for each, how fresh it is, and whose turn is next.

The law of this file: looking takes no turn, renews nothing, and drops nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import NamedTuple

from robots_guard.console.sources import Sources
from robots_guard.core.access import Access
from robots_guard.core.freshness import Freshness
from robots_guard.core.pacing import Demand, closed, demand, next_turn
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Terms
from robots_guard.errors import StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.plain import span
from robots_guard.ports import SharedStore
from robots_guard.rep.ruleset import compile_rules

SIZE = 50  # rows of a page
KNOWN = 10.0  # seconds for which a list of all origins is kept


class Held(NamedTuple):
    """What is held for an origin, as it is to be read now. `trouble` is why there is nothing to be read."""

    origin: Origin
    policy: Policy | None
    trouble: str
    terms: Terms
    now: float

    @property
    def access(self) -> str:
        """What it means."""
        return self.policy.access(self.now, self.terms.dialect)[0].value if self.policy else ""

    @property
    def rules(self) -> Document | None:
        """The document whose rules hold."""
        if self.policy is None:
            return None
        access, document = self.policy.access(self.now, self.terms.dialect)
        return document if access is Access.RULES else None

    @property
    def freshness(self) -> str:
        """Fresh, stale or expired."""
        return self.policy.freshness(self.now, self.terms.dialect).value if self.policy else ""

    @property
    def age(self) -> str:
        """Since the origin was last asked."""
        return span(self.now - self.policy.settled_at) if self.policy else ""

    @property
    def fresh_for(self) -> str:
        """For how long still."""
        fresh = self.policy is not None and self.freshness == Freshness.FRESH.value
        return span(self.policy.expires_at(self.terms.dialect) - self.now) if self.policy and fresh else ""

    @property
    def status(self) -> str:
        """Of HTTP, or why there was none."""
        if self.policy is None:
            return ""
        trouble, document = self.policy.trouble, self.policy.document
        if trouble is not None:
            return str(trouble.status or trouble.failure.value)
        return str(document.status) if document else ""


class Turn(NamedTuple):
    """When the next request may go. `asked` is what binds it, `shut` until when the site wants no visits."""

    wait: float
    asked: Demand | None
    by_retry_after: bool
    shut: float | None


class Origins:
    """All origins of a store, a page at a time, in order of their names."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._until = 0.0

    def page(self, store: SharedStore, part: str, after: str) -> tuple[list[Origin], str, int]:
        """Those behind `after` whose name has this part, the name to go on behind, and how many there are in all.

        Raises StoreError.
        """
        names = [name for name in self._all(store) if part in name] if part else self._all(store)
        first = bisect_right(names, after) if after else 0
        some = names[first : first + SIZE]
        return [origin_of(name) for name in some], some[-1] if first + SIZE < len(names) else "", len(names)

    def forget(self) -> None:
        """The list is to be read anew."""
        self._until = 0.0

    def _all(self, store: SharedStore) -> list[str]:
        now = self._sources.clocks.monotonic()
        with self._lock:
            if now >= self._until:
                self._names = sorted(set(map(str, store.origins())))
                self._until = now + KNOWN
            return self._names


def held(sources: Sources, *origins: Origin) -> list[Held]:
    """What is held for origins."""
    terms, trouble = sources.terms_now()
    return [_held(sources, origin, terms(origin), trouble) for origin in origins]


def _held(sources: Sources, origin: Origin, terms: Terms, trouble: str) -> Held:
    policy = None
    if sources.store is not None:
        try:
            policy = sources.store.get(origin)
        except StoreError as error:
            trouble = f"the store {error}"
    return Held(origin, policy, trouble, terms, sources.clocks.now())


def turn(sources: Sources, it: Held, agent: str) -> Turn | None:
    """The next turn of an agent at an origin; None where no store tells. Raises StoreError."""
    if sources.store is None:
        return None
    rules = compile_rules(it.rules.body, it.terms.dialect, agent, it.terms.matching.name) if it.rules else None
    pace = rules.pace if rules else None
    shut = closed(pace, it.now) if it.terms.visit_time == "keep" else None
    asked = demand(pace, it.terms.min_delay, it.terms.max_delay, it.now)
    found = next_turn(*sources.store.last_turn(it.origin), asked.seconds if asked else 0.0, it.now)
    return Turn(found.wait, asked, found.by_retry_after, shut[1] if shut else None)
