"""Checks: drives the state machine `decisions.check` over the policies, rules and pauses of a guard."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import assert_never

from cachetools import TTLCache

from robots_guard.decisions import check
from robots_guard.decisions.check import (
    Comparing,
    Contrasting,
    Decided,
    Exempted,
    Judging,
    Lookup,
    Opened,
    Pinned,
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
#: Seconds for which a store is not asked again for the own robots.txt of a site with a pinned one.
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
        state = check.begin(question, terms)
        if isinstance(state, Decided):
            return state
        if isinstance(state, Opened):
            return self._run_opened(state, question)
        if isinstance(state, Exempted):
            return self._run_exempted(state, question)
        if isinstance(state, Timing):
            return self._run_timing(state, question)
        cached = self._cache.get_local(question.origin, route)
        if cached is not None and cached.is_local_failure and self._cache.shared:
            return None
        if isinstance(state, Pinned) and self._may_be_stored(question.origin, cached):
            return None
        judging = state.next(cached, self._clocks.now())
        if not isinstance(judging, Judging):
            return None
        if not self._rules.can_use_reservations(judging.policy) and terms.needs_reservations:
            return None
        rules = None
        if judging.document is not None:
            rules = self._rules.get(judging.document, question.agent, terms)
            if rules is None:
                return None
        is_paused = self._turns.is_paused(question.origin)
        decided = judging.next(rules, self._clocks.now(), is_paused=is_paused)
        if isinstance(decided, Contrasting):
            return self._run_contrasting(decided, question)
        if not judging.renew:
            self._keep_shortcut(question, shortcut_of(judging, rules))
        return decided

    def _may_be_stored(self, origin: Origin, cached: Policy | None) -> bool:
        """Whether the store may have the policy of a site with a pinned robots.txt: this process
        has none, and has not looked for some time."""
        return cached is None and self._cache.shared and origin not in self._unknown

    def _run_contrasting(self, state: Contrasting, question: Question) -> Decided | None:
        """Return a decision by a pinned robots.txt with what the site's own says; None if the
        parser is needed for that."""
        rules = None
        if state.document is not None:
            rules = self._rules.get(state.document, question.agent, state.terms)
            if rules is None:
                return None
        return state.next(rules, self._clocks.now())

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

    def _run_opened(self, state: Opened, question: Question) -> Decided | None:
        """Return the decision on /robots.txt itself with the delay known in memory; None if the
        store is needed."""
        near = self._cache.get_local(question.origin)
        if near is None and self._cache.shared:
            return None
        now, is_paused = self._clocks.now(), self._turns.is_paused(question.origin)
        following = state.next(near, now, is_paused=is_paused)
        if isinstance(following, Decided):
            return following
        return self._run_timing(following, question)

    def _run_timing(self, state: Timing, question: Question) -> Decided | None:
        """Return the decision on /robots.txt itself with the delay of a document; None if the parser
        is needed for that."""
        rules = self._rules.get(state.document, question.agent, state.terms)
        if rules is None:
            return None
        is_paused = self._turns.is_paused(question.origin)
        return state.next(rules, self._clocks.now(), is_paused=is_paused)

    def _run_exempted(self, state: Exempted, question: Question) -> Decided | None:
        """Return the decision on an exempted request, with what the policy in memory says of it;
        None if the store or the parser is needed for that."""
        following = state.next(self._cache.get_local(question.origin), self._clocks.now())
        if isinstance(following, Decided):
            return None if self._cache.shared else following
        rules = None
        if following.document is not None:
            rules = self._rules.get(following.document, question.agent, following.terms)
            if rules is None:
                return None
        return following.next(rules, self._clocks.now())

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
        while True:
            match state:
                case Lookup():
                    cached, source = await self.look_up_in_time(origin, deadline, route)
                    state = state.next(cached, self._clocks.now())
                case Renewing():
                    source = "fetch"
                    answer = await renew(self.time_left(deadline), origin, state.cached)
                    state = state.next(answer, self._clocks.now())
                case Opened():
                    cached, source = await self.look_up_in_time(origin, deadline)
                    is_paused = self._turns.is_paused(origin)
                    state = state.next(cached, self._clocks.now(), is_paused=is_paused)
                case Exempted():
                    cached, source = await self.look_up_in_time(origin, self._soon(deadline))
                    state = state.next(cached, self._clocks.now())
                case Pinned():
                    cached, _ = await self.look_up_in_time(origin, self._soon(deadline))
                    if not isinstance(cached, Policy):
                        self._unknown[origin] = True
                    source = "memory"
                    state = state.next(cached, self._clocks.now())
                case Contrasting():
                    own: Ruleset | TimedOut | None = None
                    if state.document is not None:
                        own = await self._rules.get_in_time(
                            state.document, question.agent, terms, self._soon(deadline)
                        )
                    state = state.next(own, self._clocks.now())
                case Comparing():
                    compiled: Ruleset | TimedOut | None = None
                    if state.document is not None:
                        compiled = await self._rules.get_in_time(
                            state.document, question.agent, terms, self._soon(deadline)
                        )
                    state = state.next(compiled, self._clocks.now())
                case Judging() | Timing():
                    rules: Ruleset | TimedOut | None = None
                    if terms.needs_reservations:
                        rules = await self._rules.compile_reservations_in_time(
                            state.policy, deadline
                        )
                    if rules is None and state.document is not None:
                        rules = await self._rules.get_in_time(
                            state.document, question.agent, terms, deadline
                        )
                    is_paused = self._turns.is_paused(origin)
                    state = state.next(rules, self._clocks.now(), is_paused=is_paused)
                case Decided():
                    return state, source
                case _:
                    assert_never(state)

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
