"""The checks of a guard: they drive the state machine `decisions.check` over its policies, rules and
pauses."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import assert_never

from cachetools import TTLCache

from robots_guard.decisions import check
from robots_guard.decisions.check import (
    Comparing,
    Decided,
    Judging,
    Lookup,
    Opened,
    Overridden,
    Renewing,
    TimedOut,
    Timing,
)
from robots_guard.decisions.freshness import Freshness
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.shortcut import Shortcut, shortcut_of
from robots_guard.decisions.verdict import Question, Terms
from robots_guard.errors import OutOfTime
from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.overrides import OverridesFile
from robots_guard.guard.rules import RulesCache
from robots_guard.guard.turns import Turns
from robots_guard.origin import Origin
from robots_guard.ports import Clocks
from robots_guard.protocol.ruleset import Ruleset

#: Bytes of the policies and rules that shortcuts may keep in memory.
SHORTCUTS_BYTES = 64 * 1024 * 1024
PATIENCE = 1.0  # seconds that an exempted request waits to learn what would have been
#: Seconds for which a store is not asked again for the robots.txt of a site that an override decides about.
UNKNOWN_FOR = 300.0
MOST_UNKNOWN = 10_000  # sites that are remembered for so long

#: Fetches the policy of an origin within a number of seconds; a cached one is revalidated.
Renew = Callable[[float, Origin, Policy | None], Awaitable[Policy | TimedOut]]


class Checks:
    """The checks of one guard. A deadline is a time on the monotonic clock."""

    def __init__(
        self,
        *,
        overrides: OverridesFile,
        cache: PolicyCache,
        rules: RulesCache,
        turns: Turns,
        clocks: Clocks,
    ) -> None:
        self._overrides = overrides
        self._cache = cache
        self._rules = rules
        self._turns = turns
        self._clocks = clocks
        self._shortcuts: dict[tuple[Origin, str], Shortcut] = {}
        self._shortcuts_size = 0
        self._unknown: TTLCache[Origin, bool] = TTLCache(
            MOST_UNKNOWN, UNKNOWN_FOR, clocks.monotonic
        )

    def terms(self, origin: Origin) -> Terms:
        """Return the terms for an origin now: the settings, or an override of them."""
        return self._overrides.terms(origin)

    # -- checks ------------------------------------------------------------------------------------

    def run_from_memory(self, question: Question, terms: Terms, route: str = "") -> Decided | None:
        """Return the result of a check of a request by a route that needs no I/O; None if it needs
        any."""
        shortcut = self._shortcuts.get((question.origin, question.agent))
        if shortcut is not None and self._cache.has_local(shortcut.policy):
            decided = shortcut.decide(question, terms, self._clocks.now())
            if decided is not None and not self._turns.is_paused(question.origin):
                return decided
        return self._drive_from_memory(question, terms, route)

    def _drive_from_memory(self, question: Question, terms: Terms, route: str) -> Decided | None:
        """Drive a check to its end without I/O; keep a shortcut for the next question. Returns None
        if the check needs I/O."""
        state: check.State = check.begin(question, terms)
        if isinstance(state, Lookup | Overridden | Opened):
            near = self._cache.get_local(
                question.origin, route if isinstance(state, Lookup) else ""
            )
            if self._cache.shared and not self._suffices(near, state):
                return None
            state = self._with_policy(state, near, question)
        if isinstance(state, Judging):
            if terms.needs_reservations and not self._rules.can_use_reservations(state.policy):
                return None
            judging, rules = state, self._rules_in_memory(state, question)
            if rules is None and judging.document is not None:
                return None
            state = self._with_rules(judging, rules, question)
            if isinstance(state, Decided) and not judging.renew:
                self._keep_shortcut(question, shortcut_of(judging, rules))
        if isinstance(state, Comparing | Timing):
            rules = self._rules_in_memory(state, question)
            if rules is None and state.document is not None:
                return None
            state = self._with_rules(state, rules, question)
        return state if isinstance(state, Decided) else None

    def _suffices(self, near: Policy | None, state: check.State) -> bool:
        """Whether the store need not be asked, after what is in memory."""
        if isinstance(state, Overridden):  # of which the verdict does not depend on the policy
            is_enough = near is not None and self._is_enough(near)
            return is_enough or state.question.origin in self._unknown
        return near is not None and not near.is_local_failure

    def _rules_in_memory(
        self, state: Judging | Comparing | Timing, question: Question
    ) -> Ruleset | None:
        """Return the compiled rules that a state needs; None if it needs none, or the parser is
        needed for them."""
        if state.document is None:
            return None
        return self._rules.get(state.document, question.agent, state.terms)

    def _with_policy(
        self,
        state: Lookup | Overridden | Opened,
        cached: Policy | TimedOut | None,
        question: Question,
    ) -> check.State:
        """Give a state the cached policy that it needs."""
        now = self._clocks.now()
        if isinstance(state, Opened):
            return state.next(cached, now, is_paused=self._turns.is_paused(question.origin))
        return state.next(cached, now)

    def _with_rules(
        self,
        state: Judging | Comparing | Timing,
        rules: Ruleset | TimedOut | None,
        question: Question,
    ) -> check.State:
        """Give a state the compiled rules that it needs."""
        now = self._clocks.now()
        if isinstance(state, Comparing):
            return state.next(rules, now)
        return state.next(rules, now, is_paused=self._turns.is_paused(question.origin))

    def _keep_shortcut(self, question: Question, shortcut: Shortcut | None) -> None:
        """Keep a shortcut. All are dropped when they may have used too much memory."""
        if shortcut is None:
            return
        key = question.origin, question.agent
        replaced = self._shortcuts.pop(key, None)
        if replaced is not None:
            self._shortcuts_size -= replaced.size
        self._shortcuts_size += shortcut.size
        if self._shortcuts_size > SHORTCUTS_BYTES:
            self._shortcuts.clear()
            self._shortcuts_size = shortcut.size
        self._shortcuts[key] = shortcut

    async def run(
        self,
        question: Question,
        terms: Terms,
        deadline: float,
        renew: Renew,
        route: str = "",
    ) -> tuple[Decided, str]:
        """Drive a check of a request by a route to its end; return its result and where the policy
        was found."""
        state = check.begin(question, terms)
        return await self._drive(state, question, terms, deadline, renew, route)

    async def run_under(
        self, policy: Policy, question: Question, terms: Terms, deadline: float
    ) -> Decided:
        """Drive a check to its end under a policy that is not cached yet."""
        state = check.begin_under(question, terms, policy, self._clocks.now())
        decided, _ = await self._drive(state, question, terms, deadline, _fetch_nothing)
        return decided

    async def _drive(
        self,
        state: check.State,
        question: Question,
        terms: Terms,
        deadline: float,
        renew: Renew,
        route: str = "",
    ) -> tuple[Decided, str]:
        origin, source = question.origin, ""
        rules: Ruleset | TimedOut | None
        while True:
            match state:
                case Lookup():
                    cached, source = await self.look_up_in_time(origin, deadline, route)
                    state = self._with_policy(state, cached, question)
                case Opened():
                    cached, source = await self.look_up_in_time(origin, deadline)
                    state = self._with_policy(state, cached, question)
                case Overridden():
                    cached, source = await self.look_up_in_time(origin, self._soon(deadline))
                    if not isinstance(cached, Policy) or not self._is_enough(cached):
                        self._unknown[origin] = True
                    if state.verdict is None:
                        source = "memory"  # the pinned robots.txt
                    state = self._with_policy(state, cached, question)
                case Renewing():
                    source = "fetch"
                    answer = await renew(self.time_left(deadline), origin, state.cached)
                    state = state.next(answer, self._clocks.now())
                case Comparing():
                    rules = await self._rules_in_time(state, question, self._soon(deadline))
                    state = self._with_rules(state, rules, question)
                case Judging() | Timing():
                    rules = None
                    if terms.needs_reservations:
                        rules = await self._rules.compile_reservations_in_time(
                            state.policy, deadline
                        )
                    if rules is None:
                        rules = await self._rules_in_time(state, question, deadline)
                    state = self._with_rules(state, rules, question)
                case Decided():
                    return state, source
                case _:
                    assert_never(state)

    async def _rules_in_time(
        self, state: Judging | Comparing | Timing, question: Question, deadline: float
    ) -> Ruleset | TimedOut | None:
        """Return the compiled rules that a state needs, or None if it needs none."""
        if state.document is None:
            return None
        return await self._rules.get_in_time(state.document, question.agent, state.terms, deadline)

    # -- policies ----------------------------------------------------------------------------------

    def is_usable(self, cached: Policy) -> bool:
        """Whether the policy may still be used, fresh or stale."""
        return self._freshness(cached) is not Freshness.EXPIRED

    def is_fresh(self, cached: Policy) -> bool:
        """Whether the policy need not be renewed."""
        return self._freshness(cached) is Freshness.FRESH

    def _freshness(self, cached: Policy) -> Freshness:
        terms = self._overrides.terms(cached.origin)
        return cached.freshness(
            self._clocks.now(), terms.dialect, needs_reservations=terms.needs_reservations
        )

    async def look_up_in_time(
        self,
        origin: Origin,
        deadline: float,
        route: str = "",
    ) -> tuple[Policy | TimedOut | None, str]:
        """Look the policy up, unless the store takes longer than until the deadline."""
        try:
            return await self.look_up(origin, self.time_left(deadline), route)
        except OutOfTime as error:
            return TimedOut(str(error)), ""

    async def look_up(
        self, origin: Origin, within: float = math.inf, route: str = ""
    ) -> tuple[Policy | None, str]:
        """Return the policy in memory if it is usable, else that in the store, and where it was
        found.

        Another process may have renewed the one in the store.
        """
        near = self._cache.get_local(origin, route)
        if near is not None and (not self._cache.shared or self._is_enough(near)):
            return near, "memory"
        far = await self._cache.get_shared(origin, within)
        # A renewal may have ended during the look-up in the store.
        near = self._cache.get_local(origin, route)
        if far is None or (near is not None and near.settled_at > far.settled_at):
            return near, "memory"
        return far, "store"

    def _is_enough(self, near: Policy) -> bool:
        """Whether a policy in memory is used without asking the store."""
        return self.is_usable(near) and not near.is_local_failure

    def _soon(self, deadline: float) -> float:
        """Return the deadline for what an exempted request does not depend on."""
        return min(deadline, self._clocks.monotonic() + PATIENCE)

    def time_left(self, deadline: float) -> float:
        """Return the seconds until the deadline."""
        return max(0.0, deadline - self._clocks.monotonic())


async def _fetch_nothing(seconds: float, origin: Origin, cached: Policy | None) -> TimedOut:  # noqa: ARG001  (a Renew)
    return TimedOut("a check under a given policy fetches no other")
