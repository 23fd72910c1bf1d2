"""A cache of compiled rules, by document, agent and terms.

Reservations are compiled here too, but keep the result themselves.
"""

from __future__ import annotations

from cachetools import LRUCache

from robots_guard.decisions.check import TimedOut, compiled
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import StoreError
from robots_guard.guard.calls import Calls
from robots_guard.guard.counters import Counters
from robots_guard.ports import Clocks
from robots_guard.protocol.ruleset import Ruleset

#: Bytes of a robots.txt: compiling a longer one would block the event loop for too long.
COMPILE_IN_THREAD_ABOVE = 64 * 1024
#: Bytes of a tdmrep.json, which takes longer to compile than a robots.txt of the same length.
COMPILE_RESERVATIONS_IN_THREAD_ABOVE = 16 * 1024
RULES_CACHE_BYTES = 64 * 1024 * 1024

RulesKey = tuple[str, str, str, str, str]


class RulesCache:
    """The compiled rules of one guard, in an LRU cache bounded by bytes."""

    def __init__(self, *, calls: Calls, clocks: Clocks, counters: Counters) -> None:
        self._calls = calls
        self._clocks = clocks
        self._counters = counters
        self._rules: LRUCache[RulesKey, Ruleset] = LRUCache(RULES_CACHE_BYTES, getsizeof=_size)

    def get(self, document: Document, agent: str, terms: Terms) -> Ruleset | None:
        """Return a document's rules for an agent; None if they must be compiled in a thread."""
        key = _key(document, agent, terms)
        rules: Ruleset | None = self._rules.get(key)
        if rules is None and len(document.body) <= COMPILE_IN_THREAD_ABOVE:
            rules = self._keep(key, compiled(document, terms, agent))
        return rules

    async def get_in_time(
        self,
        document: Document,
        agent: str,
        terms: Terms,
        deadline: float,
    ) -> Ruleset | TimedOut:
        """Return a document's rules for an agent, unless that takes longer than until `deadline` on
        the monotonic clock."""
        ready = self.get(document, agent, terms)
        if ready is not None:
            return ready
        within = max(0.0, deadline - self._clocks.monotonic())
        try:
            rules = await self._calls.make(compiled, document, terms, agent, within=within)
        except StoreError as error:
            message = "a question is deferred because a large robots.txt could not be parsed: %s"
            self._counters.warn("rules/error", message, error)
            return TimedOut(str(error))
        return self._keep(_key(document, agent, terms), rules)

    def can_use_reservations(self, policy: Policy) -> bool:
        """Whether the policy's reservations can be used at once; False if they must be compiled in a
        thread."""
        reservations = policy.reservations
        if reservations is None or len(reservations.body) <= COMPILE_RESERVATIONS_IN_THREAD_ABOVE:
            return True
        return reservations.is_compiled

    async def compile_reservations_in_time(
        self, policy: Policy, deadline: float
    ) -> TimedOut | None:
        """Compile the policy's reservations if necessary. Return a TimedOut if that takes longer than
        until `deadline` on the monotonic clock."""
        if self.can_use_reservations(policy):
            return None
        within = max(0.0, deadline - self._clocks.monotonic())
        try:
            await self._calls.make(getattr, policy.reservations, "file", within=within)
        except StoreError as error:
            message = "a question is deferred because a large tdmrep.json could not be read: %s"
            self._counters.warn("rules/error", message, error)
            return TimedOut(str(error))
        return None

    def _keep(self, key: RulesKey, rules: Ruleset) -> Ruleset:
        if rules.size < RULES_CACHE_BYTES:
            self._rules[key] = rules
        return rules


def _size(rules: Ruleset) -> int:
    return rules.size


def _key(document: Document, agent: str, terms: Terms) -> RulesKey:
    return (
        document.sha256,
        agent,
        terms.dialect.name,
        terms.matching.name,
        terms.purpose_tokens,
    )
