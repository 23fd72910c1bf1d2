"""The guard: drives the two machines of core, check and renewal, over the ports.

`peek` answers at once when the policy lies in memory; `check` waits for what it must. One renewal an origin
runs at a time, as work of its own: whoever asks waits for it, and nobody's cancellation is the others'.
Any exception of ours ends in a refusal (reason internal-error), never in a request let through.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from cachetools import LRUCache

from robots_guard.core import check, renewal
from robots_guard.core.access import Failed, Failure, Get, Limits
from robots_guard.core.check import Decided, Judging, Lookup, Renewing
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Action, Decision, Question, Reason, Terms, Verdict
from robots_guard.errors import JournalError, StoreError
from robots_guard.origin import Origin
from robots_guard.ports import Fetcher, Handle, Journal, PolicyStore, Runtime
from robots_guard.rep.ruleset import Ruleset, compile_rules

log = logging.getLogger("robots_guard")

OFF_LOOP = 64 * 1024  # octets of robots.txt above which compiling would hold the event loop too long
RULES_OCTETS = 64 * 1024 * 1024
WARN_EVERY = 60.0  # seconds between two warnings of the same kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Where time enters. Both in seconds: `now` since 1970, `monotonic` for durations."""

    now: Callable[[], float]
    monotonic: Callable[[], float]


class Guard:
    """Answers questions for one door.

    `memory` never blocks and stands in front of `store`, which is None where policies live in memory only. With
    `demands_verified`, a policy that came over unverified TLS counts as not held. `counts` holds running totals
    for a host's own statistics.
    """

    def __init__(
        self,
        *,
        door: str,
        terms: Terms,
        runtime: Runtime,
        memory: PolicyStore,
        store: PolicyStore | None,
        fetcher: Fetcher,
        journal: Journal,
        clocks: Clocks,
        limits: Limits,
        demands_verified: bool = True,
    ) -> None:
        self.door = door
        self.terms = terms
        self.counts: Counter[str] = Counter()
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._fetcher = fetcher
        self._journal = journal
        self._clocks = clocks
        self._limits = limits
        self._demands_verified = demands_verified
        self._renewals: dict[Origin, Handle[Policy]] = {}
        self._rules: LRUCache[tuple[str, str], Ruleset] = LRUCache(RULES_OCTETS, getsizeof=lambda rules: rules.size)
        self._writer = secrets.token_hex(5)
        self._sequence = itertools.count(1)
        self._warned: dict[str, float] = {}

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
            decided, source = await self._check(question, fetcher or self._fetcher)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided, source = self._internal_error(), ""
        return self._decision(question, decided, source, began)

    def decide(self, question: Question, verdict: Verdict) -> Decision:
        """Record a verdict that a door reached by itself: an ambiguous authority, an operator's exemption."""
        return self._decision(question, Decided(verdict), "", self._clocks.monotonic())

    def knows(self, origin: Origin) -> bool:
        """Whether a policy that may be used lies in memory, so that `peek` will most likely answer."""
        held = self._held_in_memory(origin)
        return held is not None and isinstance(self._lookup(held), Judging)

    async def policy(self, origin: Origin, fetcher: Fetcher | None = None, *, renew: bool = False) -> Policy:
        """The policy a check would be judged by; with `renew`, asked of the origin anew."""
        held, _ = await self._held(origin)
        if held is not None and not renew and isinstance(self._lookup(held), Judging):
            return held
        return await self._renewed(origin, held, fetcher or self._fetcher)

    async def rules(self, document: Document, agent: str) -> Ruleset:
        """A document's rules for an agent, compiled off the event loop if it is large."""
        held = self._rules_at_hand(document, agent)
        if held is not None:
            return held
        return self._keep_rules(document, agent, await self._runtime.in_thread(self._compile, document, agent))

    async def settle(self) -> None:
        """Wait for the renewals under way, so that `close` loses none."""
        for handle in list(self._renewals.values()):
            await self._runtime.wait(handle)

    def close(self) -> None:
        """Release the store, the journal and the threads."""
        self._journal.close()
        if self._store is not None:
            self._store.close()
        self._runtime.close()

    # -- driving a check ----------------------------------------------------------------------------------

    def _peek(self, question: Question, fetcher: Fetcher) -> Decided | None:
        state = check.begin(question, self.terms)
        if isinstance(state, Decided):
            return state
        judging = state.next(self._held_in_memory(question.origin), self._clocks.now())
        if isinstance(judging, Renewing):
            return None
        rules = None
        if judging.document is not None:
            rules = self._rules_at_hand(judging.document, question.agent)
            if rules is None:
                return None
        decided = judging.next(rules, self._clocks.now())
        if decided.renew:
            self._renew(question.origin, judging.policy, fetcher)
        return decided

    async def _check(self, question: Question, fetcher: Fetcher) -> tuple[Decided, str]:
        state: check.State = check.begin(question, self.terms)
        source = ""
        while True:
            match state:
                case Lookup():
                    held, source = await self._held(question.origin)
                    state = state.next(held, self._clocks.now())
                case Renewing():
                    source = "fetch"
                    policy = await self._renewed(question.origin, state.held, fetcher)
                    state = state.next(policy, self._clocks.now())
                case Judging():
                    rules = await self.rules(state.document, question.agent) if state.document else None
                    state = state.next(rules, self._clocks.now())
                case Decided():
                    if state.renew and state.policy is not None:
                        self._renew(question.origin, state.policy, fetcher)
                    return state, source
                case _:
                    assert_never(state)

    def _lookup(self, held: Policy) -> Judging | Renewing:
        question = Question(origin=held.origin, target="/", agent="")
        return Lookup(question, self.terms).next(held, self._clocks.now())

    # -- what is held -------------------------------------------------------------------------------------

    async def _held(self, origin: Origin) -> tuple[Policy | None, str]:
        """The policy in memory, if it may be used; else the one in the store: another door may have renewed it."""
        near = self._held_in_memory(origin)
        if near is not None and (self._store is None or isinstance(self._lookup(near), Judging)):
            return near, "memory"
        far = await self._held_in_store(origin)
        near = self._held_in_memory(origin)  # look again: a renewal may have ended while we looked in the store
        if far is None or (near is not None and near.settled_at > far.settled_at):
            return near, "memory"
        return far, "store"

    def _held_in_memory(self, origin: Origin) -> Policy | None:
        held = self._memory.get(origin)
        return held if held is not None and self._trusts(held) else None

    async def _held_in_store(self, origin: Origin) -> Policy | None:
        if self._store is None:
            return None
        try:
            held = await self._runtime.in_thread(self._store.get, origin)
        except StoreError as error:
            self._warn("store", "the policy store cannot be read, going on without it: %s", error)
            return None
        if held is None or not self._trusts(held):
            return None
        self._memory.put(held)
        return held

    def _trusts(self, policy: Policy) -> bool:
        document = policy.document
        if document is None or policy.origin.scheme != "https":
            return True
        return document.tls_verified or not self._demands_verified

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

    # -- driving a renewal --------------------------------------------------------------------------------

    async def _renewed(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        return await self._runtime.wait(self._renew(origin, held, fetcher))

    def _renew(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Handle[Policy]:
        """The origin's one renewal: joined if it runs already, else begun."""
        running = self._renewals.get(origin)
        if running is not None:
            return running
        handle = self._runtime.spawn(self._renewal(origin, held, fetcher))
        if not handle.done():  # it may have run to its end already
            self._renewals[origin] = handle
        return handle

    async def _renewal(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        """Work shared by all askers: does not raise, and is forgotten when it ends, however it ends."""
        try:
            policy = await self._fetch_policy(origin, held, fetcher)
            self._memory.put(policy)
            await self._put(policy)
            return policy
        except Exception as error:
            log.exception("renewing the policy of %s failed", origin)
            failed = Failed(failure=Failure.INTERNAL, detail=type(error).__name__)
            settled = renewal.begin(origin, held, fetcher.via).next(failed, self._clocks.now())
            assert isinstance(settled, renewal.Settled)
            self._memory.put(settled.policy)
            return settled.policy
        finally:
            self._renewals.pop(origin, None)

    async def _fetch_policy(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        deadline = self._clocks.monotonic() + self._limits.total
        state: renewal.Fetching | renewal.Settled = renewal.begin(origin, held, fetcher.via)
        while True:
            match state:
                case renewal.Fetching():
                    self.counts["fetch/count"] += 1
                    outcome = await fetcher.fetch(self._get(state, deadline))
                    state = state.next(outcome, self._clocks.now())
                case renewal.Settled():
                    return state.policy
                case _:
                    assert_never(state)

    def _get(self, state: renewal.Fetching, deadline: float) -> Get:
        """One hop; all hops together have the total time."""
        left = max(0.1, deadline - self._clocks.monotonic())
        limits = Limits(
            connect=min(self._limits.connect, left),
            first_byte=min(self._limits.first_byte, left),
            total=left,
            max_body=self._limits.max_body,
        )
        return Get(url=state.url, headers=state.conditions, limits=limits, public_only=state.public_only)

    async def _put(self, policy: Policy) -> None:
        if self._store is None:
            return
        try:
            await self._runtime.in_thread(self._store.put, policy)
        except StoreError as error:
            self._warn("store", "the policy store cannot be written, going on without it: %s", error)

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
            self._warn("journal", "a decision could not be recorded: %s", error)
        return decision

    def _warn(self, kind: str, message: str, error: Exception) -> None:
        """Count every failure, speak of it once a minute."""
        self.counts[f"{kind}/error"] += 1
        now = self._clocks.monotonic()
        if now - self._warned.get(kind, -WARN_EVERY) >= WARN_EVERY:
            self._warned[kind] = now
            log.warning(message, error)
