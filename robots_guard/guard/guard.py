"""The guard drives a check over the ports and records the decision before it returns it.

`peek` answers at once if the policy is in memory; `check` waits for what it needs, at most the
decision timeout. `cache` keeps policies, `single_flight` renews them. Invariant: an exception
inside the guard ends in a refusal (reason internal-error), never in a permitted request.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import secrets
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import assert_never

import msgspec
from cachetools import LRUCache

from robots_guard.core import check
from robots_guard.core.access import Limits
from robots_guard.core.check import Decided, Judging, Lookup, Opened, Renewing, Timing, Unanswered
from robots_guard.core.events import FailedOpen, OverridesLoaded
from robots_guard.core.freshness import Freshness
from robots_guard.core.overrides import Overrides
from robots_guard.core.pacing import Demand, Pacer, Turn, has_lapsed, is_old
from robots_guard.core.policy import Document, Policy
from robots_guard.core.renewal import Redirected
from robots_guard.core.verdict import Action, Decision, Question, Reason, Terms, Verdict, not_yet, reported
from robots_guard.errors import AuditLogError, OutOfTime, StoreError, UnconfirmedRecord
from robots_guard.guard.cache import Holding
from robots_guard.guard.calls import LOG_WIDTH, RULES_WIDTH, STORE_WIDTH, Calls
from robots_guard.guard.counters import Tally
from robots_guard.guard.overrides import OverridesFile
from robots_guard.guard.single_flight import SingleFlight
from robots_guard.guard.threads import ends_within
from robots_guard.guard.turns import UNWANTED, Turns
from robots_guard.origin import UNREADABLE, Origin
from robots_guard.ports import AuditLog, Clocks, Fetcher, Leases, NearStore, Runtime, Store
from robots_guard.rep.ruleset import Ruleset, compile_rules

__all__ = ["Clocks", "Guard"]

log = logging.getLogger("robots_guard")

COMPILE_IN_THREAD_ABOVE = 64 * 1024  # bytes of robots.txt; compiling a longer one would block the event loop too long
RULES_CACHE_BYTES = 64 * 1024 * 1024
DECISION_TIMEOUT = 35.0
FRESH_FOR = 0.005  # seconds for which a decision or a turn is not checked again
DRAIN_TIMEOUT = 5.0  # seconds `settle` waits at most: together with `close` less than the 10 s of `docker stop`
CLOSE_TIMEOUT = 2.0  # seconds `close` waits for the audit log, and again for the store
NO_DELAY = Demand(by=Pacer.RETRY_AFTER, seconds=0.0)  # of a request that needs a turn only because of a pause
UNRECORDED = Verdict(action=Action.DROP, reason=Reason.UNRECORDED, detail="the audit log cannot be written")
INTERNAL_ERROR = Verdict(action=Action.DROP, reason=Reason.INTERNAL_ERROR)
_UNREADABLE = Question(origin=UNREADABLE, target="/", agent="unreadable", method="")

RulesKey = tuple[str, str, str, str]


class Guard:
    """Answers questions for one integration.

    `agent` is the product token of the guard's own requests to pages of other origins that a
    robots.txt redirects to; without one, they are judged by the rules for all crawlers. `memory`
    never blocks and is looked at before `store`, which is None where policies are in memory only;
    `leases` is None where no other process shares the store. `overrides` is a file of exceptions.
    With `demands_verified`, a policy fetched over unverified TLS counts as absent. A check that
    takes longer than `decision_timeout` seconds is deferred. With `respect_retry_after`, a pause
    that an origin asks for is kept. With `reports_only`, nothing is refused, and the records say
    what would be. With `audit_required`, a PASS that has to be recorded and cannot be becomes a
    refusal. `tokens` returns random hexadecimal text of the given number of bytes; it names this
    guard in records, turns and leases. `counts` holds running totals for the integration's
    statistics.
    """

    def __init__(
        self,
        *,
        component: str,
        agent: str = "",
        terms: Terms,
        overrides: Path | None = None,
        runtime: Runtime,
        memory: NearStore,
        store: Store | None,
        leases: Leases | None = None,
        fetcher: Fetcher,
        audit_log: AuditLog,
        clocks: Clocks,
        limits: Limits,
        demands_verified: bool = True,
        decision_timeout: float = DECISION_TIMEOUT,
        respect_retry_after: bool = True,
        reports_only: bool = False,
        audit_required: bool = False,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.component = component
        self._agent = agent
        self._base_terms = terms
        self._runtime = runtime
        self._fetcher = fetcher
        self._audit_log = audit_log
        self._clocks = clocks
        self._limits = limits
        self._decision_timeout = decision_timeout
        self._respect_retry_after = respect_retry_after
        self.reports_only = reports_only
        self._audit_required = audit_required
        self._unrecorded_passes = 0  # PASSes returned since the audit log was last writable
        self._tally = Tally(clocks, audit_log)
        self.counts = self._tally.counts
        record_overrides = partial(self._record_overrides, overrides)
        self._overrides = OverridesFile(overrides, terms, clocks, self._tally, record_overrides)
        calls = partial(Calls, runtime=runtime, clocks=clocks, tally=self._tally)
        store_calls = calls("the policy store", STORE_WIDTH, kind="store/error")
        log_calls = calls("the audit log", LOG_WIDTH, kind="audit_log/error")
        self._rules_calls = calls("the parser", RULES_WIDTH, kind="rules/error")
        self._all_calls = (store_calls, log_calls, self._rules_calls)
        self._cache = Holding(
            memory=memory,
            store=store,
            calls=store_calls,
            clocks=clocks,
            tally=self._tally,
            demands_verified=demands_verified,
        )
        self._renewals = SingleFlight(
            holding=self._cache,
            leases=leases,
            tokens=tokens,
            store_calls=store_calls,
            log_calls=log_calls,
            runtime=runtime,
            clocks=clocks,
            limits=limits,
            dialect_of=lambda origin: self.terms(origin).dialect,
            tally=self._tally,
            hold_off=self.hold_off,
            judge=self._judge_redirect,
            answered=self.answered,
        )
        self._tokens = tokens
        self._turns = Turns(
            near=memory,
            far=store,
            name=tokens(8),
            calls=store_calls,
            runtime=runtime,
            clocks=clocks,
            tally=self._tally,
        )
        self._rules: LRUCache[RulesKey, Ruleset] = LRUCache(RULES_CACHE_BYTES, getsizeof=lambda rules: rules.size)
        self._begin_ids()
        _guards.add(self)

    def _begin_ids(self) -> None:
        """Start numbering decisions; their ids begin with a name unique to this process."""
        self._writer = self._tokens(5)
        self._sequence = itertools.count(1)

    def begin_in_child(self) -> None:
        """Reset what a forked child must not share with its parent.

        The child has its own ids and its own places in the turn queues. The parent's pending work
        does not continue in the child, and the parent itself records how many requests it let pass
        unrecorded.
        """
        for calls in self._all_calls:
            calls.begin_in_process()
        self._renewals.begin_in_process()
        self._turns.begin_in_child(self._tokens(8))
        self._unrecorded_passes = 0
        self._begin_ids()

    # -- asking for a decision ----------------------------------------------------------------------------

    def peek(self, question: Question, fetcher: Fetcher | None = None) -> Decision | None:
        """Return the decision if it needs no waiting; None means: await `check`.

        `fetcher`, if given, renews a stale policy.
        """
        began = self._clocks.monotonic()
        terms = self._base_terms
        try:
            terms = self.terms(question.origin)
            decided = self._peek(question, terms, fetcher or self._fetcher)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided = _recordable(question), self._refuse_after_error()
        return None if decided is None else self._finish(question, decided, terms, "memory", began)

    async def check(self, question: Question, fetcher: Fetcher | None = None) -> Decision:
        """Return the decision, waiting as long as needed. `fetcher`, if given, fetches what this
        question needs."""
        began = self._clocks.monotonic()
        terms, deadline = self._base_terms, began + self._decision_timeout
        try:
            terms = self.terms(question.origin)
            decided, source = await self._check(question, terms, fetcher or self._fetcher, deadline)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided, source = _recordable(question), self._refuse_after_error(), ""
        return self._finish(question, decided, terms, source, began)

    def decide(self, question: Question, verdict: Verdict) -> Decision:
        """Record a verdict that an integration reached itself and that holds in every mode.

        Examples are an ambiguous authority and an operator's exemption. Values of wrong types end
        in a refusal.
        """
        began = self._clocks.monotonic()
        terms, decided = self._base_terms, Decided(verdict)
        try:
            _check_types(question, Question)
            _check_types(verdict, Verdict)
            terms = self.terms(question.origin)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided = _recordable(question), self._refuse_after_error()
        return self._publish(self._build_decision(question, decided, terms, "", began))

    def recalled(self, decision: Decision) -> Decision:
        """Recheck Retry-After: return the decision unchanged, or one that now requires a turn.

        A turn is required if the origin has asked for a pause since the decision was made.
        """
        verdict, origin = decision.verdict, decision.question.origin
        exempt = decision.policy is None and verdict.reason is not Reason.ROBOTS_TXT
        if exempt or verdict.pace is not None or not self.is_held_off(origin):
            return decision
        return msgspec.structs.replace(decision, verdict=msgspec.structs.replace(verdict, pace=NO_DELAY))

    async def turn(self, decision: Decision, patience: float = 0.0) -> Decision:
        """Take the origin's turn for a permitted request; return the decision to act on.

        The result is the same decision with its turn, to be acted on at once; a DEFER if the turn
        would not come within `patience` seconds; or another decision if the policy now in memory
        forbids the request. Call this when nothing is left to do before the request is sent: a turn
        whose request is not sent is lost. A turn that the decision has had for too long is moved to
        now, or replaced if another process has taken one since.
        """
        return await self._take_turn_within(0.0 if self.reports_only else patience, decision, self._apply_mode)

    def leaves(self, decision: Decision) -> Decision:
        """Mark a request as being sent; return its decision with the turn re-stamped to now.

        A turn that was just taken is not re-stamped. The store is updated in the background, so
        that sending is not delayed. A turn that is too old is removed: the request must not be sent
        (`Decision.is_due`) until `turn` has been called again.
        """
        since = self._clocks.now() - decision.turn_taken_at
        if decision.turn is None or since < FRESH_FOR:
            return decision
        if has_lapsed(decision.turn, self._clocks.now()):
            return msgspec.structs.replace(decision, turn=None)
        turn = self._turns.count_aside(decision.question.origin, decision.turn, since)
        return msgspec.structs.replace(decision, turn=turn, turn_taken_at=decision.turn_taken_at + since)

    async def answered(self, decision: Decision) -> None:
        """Mark that the response to a request with a turn has started. Does not raise."""
        if decision.turn is not None:
            await self._turns.mark_response_started(decision.question.origin, decision.turn)

    async def hold_off(self, origin: Origin, seconds: float) -> None:
        """Note that an origin has asked for a pause (`Retry-After` with a 429 or 503). Does not
        raise."""
        if self._respect_retry_after:
            self.counts["held_off"] += 1
            await self._turns.hold_off(origin, seconds)

    def is_held_off(self, origin: Origin) -> bool:
        """Whether the origin has asked for a pause that is not over, as far as this process
        knows."""
        return self._turns.is_held_off(origin)

    @property
    def held(self) -> int:
        """The number of requests that wait for a turn."""
        return self._turns.waiting

    def terms(self, origin: Origin) -> Terms:
        """Return the terms for an origin now: the settings, or an override of them."""
        return self._overrides.terms(origin)

    def knows(self, origin: Origin) -> bool:
        """Whether a usable policy is in memory, so that `peek` will most likely answer."""
        cached = self._cache.near(origin)
        return cached is not None and self._is_usable(cached)

    async def policy(self, origin: Origin, fetcher: Fetcher | None = None, *, renew: bool = False) -> Policy:
        """Return the policy that a check would use; with `renew`, fetch it from the origin
        first."""
        cached, _ = await self._look_up(origin)
        if cached is not None and not renew and self._is_usable(cached):
            return cached
        return await self._renewals.fetch(origin, cached, fetcher or self._fetcher)

    async def prepare(self, question: Question, fetcher: Fetcher | None = None) -> None:
        """Load what `peek` needs to answer the question, within the decision timeout.

        It decides and records nothing, and does not raise.
        """
        deadline = self._clocks.monotonic() + self._decision_timeout
        try:
            policy = await self._policy_in_time(question.origin, fetcher or self._fetcher, deadline)
            if isinstance(policy, Unanswered):
                return  # the check will defer the question
            terms = self.terms(question.origin)
            document = policy.access(self._clocks.now(), terms.dialect)[1]
            if document is not None:
                await self._rules_in_time(document, question.agent, terms, deadline)
        except Exception:  # the next check fails in the same way and refuses the request
            log.exception("preparing for a question to %s failed", question.origin)

    async def settle(self) -> None:
        """Wait a few seconds at most for pending renewals, so that `close` loses none."""
        await self._renewals.drain(min(DRAIN_TIMEOUT, self._decision_timeout))

    def look_at_overrides(self) -> None:
        """Reread the overrides file now if it has changed, and do not check it again for a
        second."""
        self._overrides.reload_if_changed()

    def close(self) -> None:
        """Release the store, the audit log and the threads. A call that hangs is left to the end of
        the process."""
        for what, close in (("audit log", self._audit_log.close), ("policy store", self._close_store)):
            if not ends_within(CLOSE_TIMEOUT, close):
                log.warning("the %s hangs; continuing without closing it", what)
        self._runtime.close()

    def _close_store(self) -> None:
        self._renewals.close()
        self._cache.close()

    # -- driving a check ----------------------------------------------------------------------------------

    def _peek(self, question: Question, terms: Terms, fetcher: Fetcher) -> Decided | None:
        decided = self._judge_from_memory(question, terms)
        if decided is not None and decided.renew and decided.policy is not None:
            self._renewals.refresh_in_background(question.origin, decided.policy, fetcher)
        return decided

    def _judge_from_memory(self, question: Question, terms: Terms) -> Decided | None:
        """Return the result of a check that needs no I/O; None if it needs any."""
        state = check.begin(question, terms)
        if isinstance(state, Decided):
            return state
        if isinstance(state, Opened):
            return self._peek_at_delay(state, question)
        judging = state.next(self._cache.near(question.origin), self._clocks.now())
        if not isinstance(judging, Judging):
            return None
        rules = None
        if judging.document is not None:
            rules = self._rules_now(judging.document, question.agent, terms)
            if rules is None:
                return None
        return judging.next(rules, self._clocks.now(), held_off=self.is_held_off(question.origin))

    def _peek_at_delay(self, state: Opened, question: Question) -> Decided | None:
        """Return the decision on /robots.txt itself with the delay known in memory; None if the
        store is needed."""
        near = self._cache.near(question.origin)
        if near is None and self._cache.shared:
            return None
        now, held_off = self._clocks.now(), self.is_held_off(question.origin)
        following = state.next(near, now, held_off=held_off)
        if isinstance(following, Decided):
            return following
        rules = self._rules_now(following.document, question.agent, following.terms)
        return None if rules is None else following.next(rules, now, held_off=held_off)

    async def _check(
        self,
        question: Question,
        terms: Terms,
        fetcher: Fetcher,
        deadline: float,
        renew: Callable[[float, Origin, Policy | None, Fetcher], Awaitable[Policy | Unanswered]] | None = None,
    ) -> tuple[Decided, str]:
        """Drive a check to its end.

        `renew`, if given, replaces the shared renewal for this question and also prevents
        background renewals.
        """
        fetch_within = renew or self._renewals.fetch_within
        state: check.State = check.begin(question, terms)
        source = ""
        while True:
            match state:
                case Lookup():
                    cached, source = await self._look_up_in_time(question.origin, deadline)
                    state = state.next(cached, self._clocks.now())
                case Renewing():
                    source = "fetch"
                    answer = await fetch_within(self._time_left(deadline), question.origin, state.held, fetcher)
                    state = state.next(answer, self._clocks.now())
                case Opened():
                    cached, source = await self._look_up_in_time(question.origin, deadline)
                    state = state.next(cached, self._clocks.now(), held_off=self.is_held_off(question.origin))
                case Judging() | Timing():
                    rules = None
                    if state.document is not None:
                        rules = await self._rules_in_time(state.document, question.agent, terms, deadline)
                    held_off = self.is_held_off(question.origin)
                    state = state.next(rules, self._clocks.now(), held_off=held_off)
                case Decided():
                    if state.renew and state.policy is not None and renew is None:
                        self._renewals.refresh_in_background(question.origin, state.policy, fetcher)
                    return state, source
                case _:
                    assert_never(state)

    # -- redirects of a robots.txt ------------------------------------------------------------------------

    async def _judge_redirect(
        self, redirected: Redirected, fetcher: Fetcher, deadline: float, *, may_fetch: bool
    ) -> Decision:
        """Decide on a page of another origin that a robots.txt redirects to; record the decision
        and take its turn.

        The request is the guard's own, so it is judged for the guard's own agent, and is refused in
        report mode too. Unless `may_fetch` is true, no policy is fetched for it.
        """
        following, began = redirected.following, self._clocks.monotonic()
        question = Question(
            origin=redirected.origin,
            target=redirected.target,
            agent=self._agent,
            robots_txt_of=following.origin,
            led_by=following.passed[-1] if redirected.was_followed else "",
            sent=redirected.was_followed,
        )
        terms = self._base_terms
        try:
            terms = self.terms(question.origin)
            renew = partial(self._renewals.fetch_for_redirect, redirected, may_fetch=may_fetch)
            decided, source = await self._check(question, terms, fetcher, deadline, renew)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not permit a forbidden page
            decided, source = self._refuse_after_error(), ""
        decision = self._publish(self._build_decision(question, decided, terms, source, began))
        if decision.has_escaped:
            log.warning(
                "%s redirected to %s%s, which is not allowed", question.led_by, question.origin, question.target
            )
        return await self._take_redirect_turn(decision, deadline)

    async def _take_redirect_turn(self, decision: Decision, deadline: float) -> Decision:
        """Take the turn of a redirect, if it needs one; return a DEFER if too little time to fetch
        would be left."""
        if decision.verdict.action is not Action.PASS:
            return decision
        left = deadline - self._clocks.monotonic() - self._limits.connect - self._limits.first_byte
        return await self._take_turn_within(max(0.0, left), decision, lambda verdict: verdict)

    # -- policies and rules -------------------------------------------------------------------------------

    async def _policy_in_time(self, origin: Origin, fetcher: Fetcher, deadline: float) -> Policy | Unanswered:
        """Return a usable policy, renewed if necessary."""
        cached, _ = await self._look_up_in_time(origin, deadline)
        if isinstance(cached, Unanswered) or (cached is not None and self._is_usable(cached)):
            return cached
        return await self._renewals.fetch_within(self._time_left(deadline), origin, cached, fetcher)

    def _time_left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clocks.monotonic())

    async def _look_up_in_time(self, origin: Origin, deadline: float) -> tuple[Policy | Unanswered | None, str]:
        """Look the policy up, unless the store takes longer than the decision timeout."""
        try:
            return await self._look_up(origin, self._time_left(deadline))
        except OutOfTime as error:
            return Unanswered(str(error)), ""

    async def _look_up(self, origin: Origin, within: float = math.inf) -> tuple[Policy | None, str]:
        """Return the policy in memory if it is usable, else that in the store, and where it was
        found.

        Another integration may have renewed the one in the store.
        """
        near = self._cache.near(origin)
        if near is not None and (not self._cache.shared or self._is_usable(near)):
            return near, "memory"
        far = await self._cache.far(origin, within)
        near = self._cache.near(origin)  # a renewal may have ended during the look-up in the store
        if far is None or (near is not None and near.settled_at > far.settled_at):
            return near, "memory"
        return far, "store"

    def _is_usable(self, cached: Policy) -> bool:
        return cached.freshness(self._clocks.now(), self.terms(cached.origin).dialect) is not Freshness.EXPIRED

    async def _rules_in_time(
        self, document: Document, agent: str, terms: Terms, deadline: float
    ) -> Ruleset | Unanswered:
        """Return a document's rules for an agent, unless that takes longer than the decision
        timeout.

        A large document is compiled in a thread.
        """
        ready = self._rules_now(document, agent, terms)
        if ready is not None:
            return ready
        within = self._time_left(deadline)
        try:
            rules = await self._rules_calls.make(_compile, document, agent, terms, within=within)
        except StoreError as error:
            message = "a question is deferred because a large robots.txt could not be parsed: %s"
            self._tally.warn("rules/error", message, error)
            return Unanswered(str(error))
        return self._cache_rules(_rules_key(document, agent, terms), rules)

    def _rules_now(self, document: Document, agent: str, terms: Terms) -> Ruleset | None:
        reading = _rules_key(document, agent, terms)
        rules: Ruleset | None = self._rules.get(reading)
        if rules is None and len(document.body) <= COMPILE_IN_THREAD_ABOVE:
            rules = self._cache_rules(reading, _compile(document, agent, terms))
        return rules

    def _cache_rules(self, reading: RulesKey, rules: Ruleset) -> Ruleset:
        if rules.size < RULES_CACHE_BYTES:
            self._rules[reading] = rules
        return rules

    # -- deciding -----------------------------------------------------------------------------------------

    def _refuse_after_error(self) -> Decided:
        """Log the current exception; return the refusal for it."""
        log.exception("robots_guard failed; the request is refused")
        return Decided(INTERNAL_ERROR)

    async def _take_turn_within(
        self, patience: float, decision: Decision, enforced: Callable[[Verdict], Verdict]
    ) -> Decision:
        """Take the decision's turn, if it needs one, and return the decision to act on.

        That is a DEFER if no turn is free within `patience` seconds, and another decision if the
        policy now in memory forbids the request.
        """
        if decision.verdict.pace is None or (
            decision.turn is not None and not is_old(decision.turn, self._clocks.now())
        ):
            return decision
        began, current = self._clocks.monotonic(), decision
        try:
            turn = await self._acquire_turn(patience, decision)
            waited = self._clocks.monotonic() - began
            current = self._rejudge(decision)
            verdict = current.verdict
            if verdict.action is Action.PASS:
                current = max(current, decision, key=_delay_of)
                verdict = current.verdict
                if not turn.wait:
                    if decision.turn is not None:  # moved: it was taken with the delay of that time
                        return _with_turn(decision, turn, decision.verdict.pace, waited)
                    return _with_turn(decision, turn, verdict.pace, waited)
                verdict = not_yet(verdict, turn, self._clocks.now())
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            verdict, waited = self._refuse_after_error().verdict, self._clocks.monotonic() - began
        now = self._clocks.now()
        changed = {"id": self._next_id(), "at": now, "verdict": enforced(verdict), "elapsed": waited, "turn": None}
        return self._publish(msgspec.structs.replace(current, **changed))

    async def _acquire_turn(self, patience: float, decision: Decision) -> Turn:
        """Acquire the origin's turn, or move the decision's own turn to now if it is still valid.

        The result may be a wait. No turn is taken for a request that is no longer allowed.
        """
        origin, delay = decision.question.origin, self._required_delay(decision)
        if delay is None:
            return UNWANTED
        renewed = await self._turns.renew(origin, decision.turn) if decision.turn is not None else None
        delay_now = partial(self._required_delay, decision)
        return renewed or await self._turns.take_within(patience, origin, delay, delay_now)

    def _required_delay(self, decision: Decision) -> float | None:
        """Return the seconds required between two requests; None if the request is no longer
        allowed.

        The value follows the policy in memory now, but is never less than in the recorded decision.
        """
        current = self._rejudge(decision)
        if current.verdict.action is not Action.PASS:
            return None
        return max(_delay_of(current), _delay_of(decision))

    def _rejudge(self, decision: Decision) -> Decision:
        """Return the decision as it would be made now from memory, without recording it.

        A decision that was just made, or whose question cannot be answered from memory, is returned
        unchanged.
        """
        if 0.0 <= self._clocks.now() - decision.at < FRESH_FOR:
            return decision
        terms = self.terms(decision.question.origin)
        decided = self._judge_from_memory(decision.question, terms)
        if decided is None:
            return decision
        return msgspec.structs.replace(
            decision,
            verdict=decided.verdict,
            policy=decided.policy,
            dialect=terms.dialect.name,
            matching=terms.matching.name,
            override=terms.override,
            source="memory" if decided.policy else "",
        )

    def _finish(self, question: Question, decided: Decided, terms: Terms, source: str, began: float) -> Decision:
        decided = replace(decided, verdict=self._apply_mode(decided.verdict)) if self.reports_only else decided
        return self._publish(self._build_decision(question, decided, terms, source, began))

    def _apply_mode(self, verdict: Verdict) -> Verdict:
        return reported(verdict) if self.reports_only else verdict

    def _build_decision(
        self, question: Question, decided: Decided, terms: Terms, source: str, began: float
    ) -> Decision:
        """Build the decision. `terms` are those it was judged under, even if others are in force by
        now."""
        return Decision(
            id=self._next_id(),
            at=self._clocks.now(),
            component=self.component,
            question=question,
            verdict=decided.verdict,
            policy=decided.policy,
            dialect=terms.dialect.name,
            matching=terms.matching.name,
            override=terms.override,
            source=source if decided.policy else "",
            elapsed=self._clocks.monotonic() - began,
        )

    def _next_id(self) -> str:
        return f"{self._writer}-{next(self._sequence)}"

    def _publish(self, decision: Decision) -> Decision:
        """Record the decision, count it and return it."""
        decision = self._record(decision)
        verdict = decision.verdict
        self.counts[f"{verdict.action}/{verdict.reason}"] += 1
        if decision.has_escaped:
            self.counts["escaped"] += 1
        return decision

    def _record(self, decision: Decision) -> Decision:
        """Write the decision to the audit log. If that fails and records are required, return a
        refusal instead."""
        try:
            self._audit_log.write(decision)
        except AuditLogError as error:
            return self._handle_unrecorded(decision, error)
        except Exception:
            log.exception("robots_guard cannot make the record of a decision; the request is refused")
            return self._refuse_unrecorded(decision)
        self._tally.mark_working("audit_log/error", "records")
        if self._unrecorded_passes:
            self._record_gap(decision.at)
        return decision

    def _handle_unrecorded(self, decision: Decision, error: Exception) -> Decision:
        self._tally.warn("audit_log/error", "a decision could not be recorded: %s", error, part="records")
        if decision.verdict.action is not Action.PASS:
            return decision
        if self._audit_required:
            return msgspec.structs.replace(decision, verdict=UNRECORDED)
        self._unrecorded_passes += 1
        return decision

    def _refuse_unrecorded(self, decision: Decision) -> Decision:
        """Return the refusal that replaces a decision whose record cannot be encoded.

        It carries none of the data that could be at fault, and is recorded if possible. In report
        mode a PASS remains a PASS.
        """
        self.counts["audit_log/error"] += 1
        passed = decision.verdict.action is Action.PASS
        verdict = self._apply_mode(INTERNAL_ERROR) if passed else INTERNAL_ERROR
        question = _recordable(decision.question)
        refused = msgspec.structs.replace(decision, question=question, verdict=verdict, policy=None, source="")
        try:
            self._audit_log.write(refused)
        except Exception as error:  # noqa: BLE001  the fault may be in data that all records need
            return self._handle_unrecorded(refused, error)
        return refused

    def _record_gap(self, at: float) -> None:
        """Record how many requests passed unrecorded, now that the audit log is writable again."""
        count = self._unrecorded_passes
        try:
            event = FailedOpen(at=at, setting="audit_required", count=count, detail="allowed unrecorded")
            self._audit_log.note(event, is_tried_again=True)
        except UnconfirmedRecord:
            pass  # it is written; a second record would count the requests twice
        except AuditLogError:
            return  # not writable yet: the decision that led here needed no record
        except Exception as error:  # noqa: BLE001  the decision itself is recorded and remains valid
            self._tally.warn("audit_log/error", "the number of unrecorded requests could not be recorded: %s", error)
            return
        self._unrecorded_passes -= count

    def _record_overrides(self, source: Path | None, read: Overrides) -> None:
        now = self._clocks.now()
        expired = read.expired(now)
        loaded = OverridesLoaded(
            at=now,
            source=str(source),
            count=len(read.entries) - len(expired),
            sha256=read.sha256,
            problems=tuple(f"{which}: {why}" for which, why in (*read.faults, *expired)),
        )
        self._tally.note(loaded)


def _check_types(value: object, expected: type[msgspec.Struct]) -> None:
    """Raise an exception if a value from an integration is not of the type, or one of its fields
    is not."""
    msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), expected)


def _recordable(question: Question) -> Question:
    """Return the question, or a placeholder if values of wrong types keep it from being recorded."""
    try:
        _check_types(question, Question)
    except Exception:  # noqa: BLE001  an integration may have passed any object
        return _UNREADABLE
    return question


def _with_turn(decision: Decision, turn: Turn, pace: Demand | None, waited: float) -> Decision:
    """Return the decision with a turn that was taken with delay `pace` after `waited` seconds."""
    verdict = msgspec.structs.replace(decision.verdict, pace=pace)
    return msgspec.structs.replace(decision, verdict=verdict, turn=turn, turn_taken_at=turn.asked, waited=waited)


def _delay_of(decision: Decision) -> float:
    """Return the seconds that a decision requires between two requests; -inf if it needs no
    turn."""
    pace = decision.verdict.pace
    return -math.inf if pace is None else pace.seconds


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()  # all guards of this process


def _begin_in_child() -> None:
    for guard in list(_guards):
        guard.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


def _rules_key(document: Document, agent: str, terms: Terms) -> RulesKey:
    """Return the cache key of a document's rules."""
    return document.sha256, agent, terms.dialect.name, terms.matching.name


def _compile(document: Document, agent: str, terms: Terms) -> Ruleset:
    return compile_rules(document.body, terms.dialect, agent, terms.matching.name)
