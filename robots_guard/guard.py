"""The guard: drives a check over the ports, and records the decision before it is released.

`peek` answers at once when the policy lies in memory; `check` waits for what it must, but no longer than the
time for a decision. What is held is `holding`'s, getting it anew is `renewing`'s business.
Any exception of ours ends in a refusal (reason internal-error), never in a request let through.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from typing import assert_never

from cachetools import LRUCache

from robots_guard.core import check
from robots_guard.core.access import Limits
from robots_guard.core.check import Decided, Judging, Lookup, Renewing
from robots_guard.core.freshness import Freshness
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Action, Decision, Question, Reason, Terms, Verdict
from robots_guard.errors import JournalError
from robots_guard.holding import Holding
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, Fetcher, Journal, Leases, PolicyStore, Runtime
from robots_guard.renewing import Renewals
from robots_guard.rep.ruleset import Ruleset, compile_rules
from robots_guard.tally import Tally

__all__ = ["Clocks", "Guard"]

log = logging.getLogger("robots_guard")

OFF_LOOP = 64 * 1024  # octets of robots.txt above which compiling would hold the event loop too long
RULES_OCTETS = 64 * 1024 * 1024
DECISION_TIMEOUT = 35.0


class Guard:
    """Answers questions for one door.

    `memory` never blocks and stands in front of `store`, which is None where policies live in memory only;
    `leases` is None where no other process shares them. With `demands_verified`, a policy that came over
    unverified TLS counts as not held. A check that takes longer than `decision_timeout` seconds is deferred.
    `counts` holds running totals for a host's own statistics.
    """

    def __init__(
        self,
        *,
        door: str,
        terms: Terms,
        runtime: Runtime,
        memory: PolicyStore,
        store: PolicyStore | None,
        leases: Leases | None = None,
        fetcher: Fetcher,
        journal: Journal,
        clocks: Clocks,
        limits: Limits,
        demands_verified: bool = True,
        decision_timeout: float = DECISION_TIMEOUT,
    ) -> None:
        self.door = door
        self.terms = terms
        self._runtime = runtime
        self._fetcher = fetcher
        self._journal = journal
        self._clocks = clocks
        self._decision_timeout = decision_timeout
        self._tally = Tally(clocks)
        self.counts = self._tally.counts
        self._holding = Holding(
            memory=memory,
            store=store,
            runtime=runtime,
            clocks=clocks,
            tally=self._tally,
            demands_verified=demands_verified,
        )
        self._renewals = Renewals(
            holding=self._holding,
            leases=leases,
            runtime=runtime,
            clocks=clocks,
            limits=limits,
            dialect=terms.dialect,
            tally=self._tally,
        )
        self._rules: LRUCache[tuple[str, str], Ruleset] = LRUCache(RULES_OCTETS, getsizeof=lambda rules: rules.size)
        self._writer = secrets.token_hex(5)
        self._sequence = itertools.count(1)

    # -- the two ways to ask ------------------------------------------------------------------------------

    def peek(self, question: Question, fetcher: Fetcher | None = None) -> Decision | None:
        """The decision, if it needs no waiting; None: await `check`. `fetcher`, if given, renews a stale policy."""
        began = self._clocks.monotonic()
        try:
            decided = self._peek(question, fetcher or self._fetcher)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided = self._internal_error()
        return None if decided is None else self._decision(question, decided, "memory", began)

    async def check(self, question: Question, fetcher: Fetcher | None = None) -> Decision:
        """The decision, however long it takes. `fetcher`, if given, fetches what this question needs."""
        began = self._clocks.monotonic()
        try:
            decided, source = await self._check(question, fetcher or self._fetcher, began + self._decision_timeout)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided, source = self._internal_error(), ""
        return self._decision(question, decided, source, began)

    def decide(self, question: Question, verdict: Verdict) -> Decision:
        """Record a verdict that a door reached by itself: an ambiguous authority, an operator's exemption."""
        return self._decision(question, Decided(verdict), "", self._clocks.monotonic())

    def knows(self, origin: Origin) -> bool:
        """Whether a policy that may be used lies in memory, so that `peek` will most likely answer."""
        held = self._holding.near(origin)
        return held is not None and self._may_use(held)

    async def policy(self, origin: Origin, fetcher: Fetcher | None = None, *, renew: bool = False) -> Policy:
        """The policy a check would be judged by; with `renew`, asked of the origin anew."""
        held, _ = await self._held(origin)
        if held is not None and not renew and self._may_use(held):
            return held
        return await self._renewals.settled(origin, held, fetcher or self._fetcher)

    async def prepare(self, question: Question, fetcher: Fetcher | None = None) -> None:
        """Get what `peek` needs to answer the question. Decides and records nothing, and does not raise."""
        try:
            policy = await self.policy(question.origin, fetcher)
            document = policy.access(self._clocks.now(), self.terms.dialect)[1]
            if document is not None:
                await self.rules(document, question.agent)
        except Exception:  # whoever asks next finds out, and is refused
            log.exception("preparing for a question to %s failed", question.origin)

    async def rules(self, document: Document, agent: str) -> Ruleset:
        """A document's rules for an agent, compiled off the event loop if it is large."""
        held = self._rules_at_hand(document, agent)
        if held is not None:
            return held
        return self._keep_rules(document, agent, await self._runtime.in_thread(self._compile, document, agent))

    async def settle(self) -> None:
        """Wait for the renewals under way, so that `close` loses none."""
        await self._renewals.settle()

    def close(self) -> None:
        """Release the store, the journal and the threads."""
        self._journal.close()
        self._renewals.close()
        self._holding.close()
        self._runtime.close()

    # -- driving a check ----------------------------------------------------------------------------------

    def _peek(self, question: Question, fetcher: Fetcher) -> Decided | None:
        state = check.begin(question, self.terms)
        if isinstance(state, Decided):
            return state
        judging = state.next(self._holding.near(question.origin), self._clocks.now())
        if isinstance(judging, Renewing):
            return None
        rules = None
        if judging.document is not None:
            rules = self._rules_at_hand(judging.document, question.agent)
            if rules is None:
                return None
        decided = judging.next(rules, self._clocks.now())
        if decided.renew:
            self._renewals.begin_aside(question.origin, judging.policy, fetcher)
        return decided

    async def _check(self, question: Question, fetcher: Fetcher, deadline: float) -> tuple[Decided, str]:
        state: check.State = check.begin(question, self.terms)
        source = ""
        while True:
            match state:
                case Lookup():
                    held, source = await self._held(question.origin)
                    state = state.next(held, self._clocks.now())
                case Renewing():
                    source = "fetch"
                    left = max(0.0, deadline - self._clocks.monotonic())
                    answer = await self._renewals.settled_within(left, question.origin, state.held, fetcher)
                    state = state.next(answer, self._clocks.now())
                case Judging():
                    rules = await self.rules(state.document, question.agent) if state.document else None
                    state = state.next(rules, self._clocks.now())
                case Decided():
                    if state.renew and state.policy is not None:
                        self._renewals.begin_aside(question.origin, state.policy, fetcher)
                    return state, source
                case _:
                    assert_never(state)

    # -- what is held -------------------------------------------------------------------------------------

    async def _held(self, origin: Origin) -> tuple[Policy | None, str]:
        """The policy in memory, if it may be used; else the one in the store: another door may have renewed it."""
        near = self._holding.near(origin)
        if near is not None and (not self._holding.shared or self._may_use(near)):
            return near, "memory"
        far = await self._holding.far(origin)
        near = self._holding.near(origin)  # look again: a renewal may have ended while we looked in the store
        if far is None or (near is not None and near.settled_at > far.settled_at):
            return near, "memory"
        return far, "store"

    def _may_use(self, held: Policy) -> bool:
        return held.freshness(self._clocks.now(), self.terms.dialect) is not Freshness.EXPIRED

    def _rules_at_hand(self, document: Document, agent: str) -> Ruleset | None:
        rules: Ruleset | None = self._rules.get((document.sha256, agent))
        if rules is None and len(document.body) <= OFF_LOOP:
            rules = self._keep_rules(document, agent, self._compile(document, agent))
        return rules

    def _compile(self, document: Document, agent: str) -> Ruleset:
        return compile_rules(document.body, self.terms.dialect, agent, self.terms.matching.name)

    def _keep_rules(self, document: Document, agent: str, rules: Ruleset) -> Ruleset:
        if rules.size < RULES_OCTETS:
            self._rules[document.sha256, agent] = rules
        return rules

    # -- deciding -----------------------------------------------------------------------------------------

    def _internal_error(self) -> Decided:
        log.exception("robots_guard failed; the request is refused")
        return Decided(Verdict(action=Action.DROP, reason=Reason.INTERNAL_ERROR))

    def _decision(self, question: Question, decided: Decided, source: str, began: float) -> Decision:
        """The finished decision, recorded before it is released."""
        decision = Decision(
            id=f"{self._writer}-{next(self._sequence)}",
            at=self._clocks.now(),
            door=self.door,
            question=question,
            verdict=decided.verdict,
            policy=decided.policy,
            dialect=self.terms.dialect.name,
            matching=self.terms.matching.name,
            source=source if decided.policy else "",
            elapsed=self._clocks.monotonic() - began,
        )
        verdict = decided.verdict
        self.counts[f"{verdict.action}/{verdict.reason}"] += 1
        try:
            self._journal.write(decision)
        except JournalError as error:
            self._tally.warn("journal/error", "a decision could not be recorded: %s", error)
        return decision
