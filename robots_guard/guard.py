"""The guard: drives a check over the ports, and records the decision before it is released.

`peek` answers at once when the policy lies in memory; `check` waits for what it must, but no longer than the
time for a decision. What is held is `holding`'s, getting it anew is `renewing`'s business.
Any exception of ours ends in a refusal (reason internal-error), never in a request let through.
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

from robots_guard.calls import LOG_WIDTH, RULES_WIDTH, STORE_WIDTH, Calls
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
from robots_guard.errors import JournalError, OutOfTime, StoreError, UnconfirmedRecord
from robots_guard.holding import Holding
from robots_guard.origin import Origin
from robots_guard.overriding import Overriding
from robots_guard.ports import Clocks, Fetcher, Journal, Leases, NearStore, Runtime, Store
from robots_guard.renewing import Renewals
from robots_guard.rep.ruleset import Ruleset, compile_rules
from robots_guard.tally import Tally
from robots_guard.threads import ends_within
from robots_guard.turns import UNWANTED, Turns

__all__ = ["Clocks", "Guard"]

log = logging.getLogger("robots_guard")

OFF_LOOP = 64 * 1024  # octets of robots.txt above which compiling would hold the event loop too long
RULES_OCTETS = 64 * 1024 * 1024
DECISION_TIMEOUT = 35.0
JUST_NOW = 0.005  # seconds for which a decision, or a turn, needs no second look
SETTLING = 5.0  # seconds for which `settle` waits, at most: with `close` less than the 10 of `docker stop`
CLOSING = 2.0  # seconds for which `close` waits for the journal, and again for the store
NO_DELAY = Demand(by=Pacer.RETRY_AFTER, seconds=0.0)  # of a request that needs a turn only because of a pause
UNRECORDED = Verdict(action=Action.DROP, reason=Reason.UNRECORDED, detail="the journal cannot be written")
INTERNAL_ERROR = Verdict(action=Action.DROP, reason=Reason.INTERNAL_ERROR)

Reading = tuple[str, str, str, str]


class Guard:
    """Answers questions for one door.

    `agent` is the product token of the guard's own requests, to pages of other origins that a robots.txt redirects to;
    without one, they are judged by the rules for all crawlers.
    `memory` never blocks and stands in front of `store`, which is None where policies live in memory only;
    `leases` is None where no other process shares them. `overrides` is a file of exceptions. With
    `demands_verified`, a policy that came over unverified TLS counts as not held. A check that takes longer than
    `decision_timeout` seconds is deferred. With `respect_retry_after`, an origin that asks to be left alone is; with
    `reports_only`, nothing is refused and the records say what would be; with `audit_required`, an allowance that is
    to be recorded and cannot be is refused. `tokens` makes random hexadecimal text of so many bytes: the names by which
    records, turns and leases tell guards apart. `counts` holds running totals for a host's own statistics.
    """

    def __init__(
        self,
        *,
        door: str,
        agent: str = "",
        terms: Terms,
        overrides: Path | None = None,
        runtime: Runtime,
        memory: NearStore,
        store: Store | None,
        leases: Leases | None = None,
        fetcher: Fetcher,
        journal: Journal,
        clocks: Clocks,
        limits: Limits,
        demands_verified: bool = True,
        decision_timeout: float = DECISION_TIMEOUT,
        respect_retry_after: bool = True,
        reports_only: bool = False,
        audit_required: bool = False,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.door = door
        self._agent = agent
        self._base_terms = terms
        self._runtime = runtime
        self._fetcher = fetcher
        self._journal = journal
        self._clocks = clocks
        self._limits = limits
        self._decision_timeout = decision_timeout
        self._respect_retry_after = respect_retry_after
        self.reports_only = reports_only
        self._audit_required = audit_required
        self._unrecorded = 0  # allowances released since the journal could last be written
        self._tally = Tally(clocks, journal)
        self.counts = self._tally.counts
        self._overriding = Overriding(overrides, terms, clocks, self._tally, partial(self._note_overrides, overrides))
        calls = partial(Calls, runtime=runtime, clocks=clocks, tally=self._tally)
        store_calls = calls("the policy store", STORE_WIDTH, kind="store/error")
        log_calls = calls("the journal", LOG_WIDTH, kind="journal/error")
        self._rules_calls = calls("the parser", RULES_WIDTH, kind="rules/error")
        self._holding = Holding(
            memory=memory,
            store=store,
            calls=store_calls,
            clocks=clocks,
            tally=self._tally,
            demands_verified=demands_verified,
        )
        self._renewals = Renewals(
            holding=self._holding,
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
        self._rules: LRUCache[Reading, Ruleset] = LRUCache(RULES_OCTETS, getsizeof=lambda rules: rules.size)
        self._begin_numbers()
        _guards.add(self)

    def _begin_numbers(self) -> None:
        """The ids of decisions begin with a name that no other process has."""
        self._writer = self._tokens(5)
        self._sequence = itertools.count(1)

    def begin_in_child(self) -> None:
        """A forked child is another process: it has its own ids, and its own place in the line of each origin."""
        self._turns.begin_in_child(self._tokens(8))
        self._begin_numbers()

    # -- the two ways to ask ------------------------------------------------------------------------------

    def peek(self, question: Question, fetcher: Fetcher | None = None) -> Decision | None:
        """The decision, if it needs no waiting; None: await `check`. `fetcher`, if given, renews a stale policy."""
        began = self._clocks.monotonic()
        terms = self._base_terms
        try:
            terms = self.terms(question.origin)
            decided = self._peek(question, terms, fetcher or self._fetcher)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided = self._internal_error()
        return None if decided is None else self._decision(question, decided, terms, "memory", began)

    async def check(self, question: Question, fetcher: Fetcher | None = None) -> Decision:
        """The decision, however long it takes. `fetcher`, if given, fetches what this question needs."""
        began = self._clocks.monotonic()
        terms, deadline = self._base_terms, began + self._decision_timeout
        try:
            terms = self.terms(question.origin)
            decided, source = await self._check(question, terms, fetcher or self._fetcher, deadline)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided, source = self._internal_error(), ""
        return self._decision(question, decided, terms, source, began)

    def decide(self, question: Question, verdict: Verdict) -> Decision:
        """Record a verdict that a door reached by itself, and that holds in every mode: an ambiguous authority, an
        operator's exemption."""
        began = self._clocks.monotonic()
        terms, decided = self._base_terms, Decided(verdict)
        try:
            terms = self.terms(question.origin)
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            decided = self._internal_error()
        return self._released(self._made(question, decided, terms, "", began))

    def recalled(self, decision: Decision) -> Decision:
        """The same decision on a request that needed no turn; one that needs it, if the origin has asked to be left
        alone since."""
        verdict, origin = decision.verdict, decision.question.origin
        exempt = decision.policy is None and verdict.reason is not Reason.ROBOTS_TXT
        if exempt or verdict.pace is not None or not self.is_held_off(origin):
            return decision
        return msgspec.structs.replace(decision, verdict=msgspec.structs.replace(verdict, pace=NO_DELAY))

    async def turn(self, decision: Decision, patience: float = 0.0) -> Decision:
        """The origin's turn for a request that was let pass: the same decision, to be acted on at once, or, if the
        turn would not come within `patience` seconds, a DEFER. To be asked when nothing stands any more between the
        request and the wire: a turn taken for what is then not sent is lost. Of a decision that has had its turn for
        too long, the turn is moved to now, or, if another process has taken one since, another is taken. If by
        what has come into memory meanwhile the request may not be made, the answer is that decision."""
        return await self._turn_within(0.0 if self.reports_only else patience, decision, self._as_enforced)

    def leaves(self, decision: Decision) -> Decision:
        """A request goes out now; the same decision, its turn counted from now if it was not taken just now. The store
        is told aside, for that would come between again. A turn that is too old to send by is taken away: the request
        must not go (`Decision.is_due`) before `turn` has been asked again."""
        since = self._clocks.now() - decision.turn_taken_at
        if decision.turn is None or since < JUST_NOW:
            return decision
        if has_lapsed(decision.turn, self._clocks.now()):
            return msgspec.structs.replace(decision, turn=None)
        turn = self._turns.count_aside(decision.question.origin, decision.turn, since)
        return msgspec.structs.replace(decision, turn=turn, turn_taken_at=decision.turn_taken_at + since)

    async def answered(self, decision: Decision) -> None:
        """The answer to a request that had a turn begins. Does not raise."""
        if decision.turn is not None:
            await self._turns.answered(decision.question.origin, decision.turn)

    async def hold_off(self, origin: Origin, seconds: float) -> None:
        """An origin has asked to be left alone for so long (`Retry-After`, to a 429 or 503). Does not raise."""
        if self._respect_retry_after:
            self.counts["held_off"] += 1
            await self._turns.hold_off(origin, seconds)

    def is_held_off(self, origin: Origin) -> bool:
        """Whether the origin has asked us to be left alone now, as far as we have heard."""
        return self._turns.is_held_off(origin)

    @property
    def held(self) -> int:
        """How many requests wait for a turn."""
        return self._turns.waiting

    def terms(self, origin: Origin) -> Terms:
        """What questions on an origin are judged under now: the settings, or an override of them."""
        return self._overriding.terms(origin)

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
        """Get what `peek` needs to answer the question, if that can be had within the time for a decision. Decides and
        records nothing, and does not raise."""
        deadline = self._clocks.monotonic() + self._decision_timeout
        try:
            policy = await self._policy_in_time(question.origin, fetcher or self._fetcher, deadline)
            if isinstance(policy, Unanswered):
                return  # the check of the question defers it
            terms = self.terms(question.origin)
            document = policy.access(self._clocks.now(), terms.dialect)[1]
            if document is not None:
                await self._rules_in_time(document, question.agent, terms, deadline)
        except Exception:  # whoever asks next finds out, and is refused
            log.exception("preparing for a question to %s failed", question.origin)

    async def settle(self) -> None:
        """Wait for the renewals under way, so that `close` loses none, but no longer than a few seconds."""
        await self._renewals.settle(min(SETTLING, self._decision_timeout))

    def look_at_overrides(self) -> None:
        """Read the overrides again now, if the file has changed, and not within the next second."""
        self._overriding.look()

    def close(self) -> None:
        """Release the store, the journal and the threads. What hangs is left to the end of the process."""
        for what, close in (("journal", self._journal.close), ("policy store", self._close_store)):
            if not ends_within(CLOSING, close):
                log.warning("the %s hangs, going on without closing it", what)
        self._runtime.close()

    def _close_store(self) -> None:
        self._renewals.close()
        self._holding.close()

    # -- driving a check ----------------------------------------------------------------------------------

    def _peek(self, question: Question, terms: Terms, fetcher: Fetcher) -> Decided | None:
        decided = self._judged_from_memory(question, terms)
        if decided is not None and decided.renew and decided.policy is not None:
            self._renewals.begin_aside(question.origin, decided.policy, fetcher)
        return decided

    def _judged_from_memory(self, question: Question, terms: Terms) -> Decided | None:
        """The end of a check that needs no I/O; None if it needs some."""
        state = check.begin(question, terms)
        if isinstance(state, Decided):
            return state
        if isinstance(state, Opened):
            return self._peek_at_delay(state, question)
        judging = state.next(self._holding.near(question.origin), self._clocks.now())
        if not isinstance(judging, Judging):
            return None
        rules = None
        if judging.document is not None:
            rules = self._rules_at_hand(judging.document, question.agent, terms)
            if rules is None:
                return None
        return judging.next(rules, self._clocks.now(), held_off=self.is_held_off(question.origin))

    def _peek_at_delay(self, state: Opened, question: Question) -> Decided | None:
        """The decision on /robots.txt itself, with the delay that is in memory; None if the store has to be asked."""
        near = self._holding.near(question.origin)
        if near is None and self._holding.shared:
            return None
        now, held_off = self._clocks.now(), self.is_held_off(question.origin)
        following = state.next(near, now, held_off=held_off)
        if isinstance(following, Decided):
            return following
        rules = self._rules_at_hand(following.document, question.agent, following.terms)
        return None if rules is None else following.next(rules, now, held_off=held_off)

    async def _check(
        self,
        question: Question,
        terms: Terms,
        fetcher: Fetcher,
        deadline: float,
        renew: Callable[[float, Origin, Policy | None, Fetcher], Awaitable[Policy | Unanswered]] | None = None,
    ) -> tuple[Decided, str]:
        """Drive a check to its end. `renew`, if given, replaces the shared renewal for this question, and then nothing
        is renewed in the background either."""
        settled_within = renew or self._renewals.settled_within
        state: check.State = check.begin(question, terms)
        source = ""
        while True:
            match state:
                case Lookup():
                    held, source = await self._held_in_time(question.origin, deadline)
                    state = state.next(held, self._clocks.now())
                case Renewing():
                    source = "fetch"
                    answer = await settled_within(self._left(deadline), question.origin, state.held, fetcher)
                    state = state.next(answer, self._clocks.now())
                case Opened():
                    held, source = await self._held_in_time(question.origin, deadline)
                    state = state.next(held, self._clocks.now(), held_off=self.is_held_off(question.origin))
                case Judging() | Timing():
                    rules = None
                    if state.document is not None:
                        rules = await self._rules_in_time(state.document, question.agent, terms, deadline)
                    held_off = self.is_held_off(question.origin)
                    state = state.next(rules, self._clocks.now(), held_off=held_off)
                case Decided():
                    if state.renew and state.policy is not None and renew is None:
                        self._renewals.begin_aside(question.origin, state.policy, fetcher)
                    return state, source
                case _:
                    assert_never(state)

    # -- where a robots.txt redirects to ------------------------------------------------------------------

    async def _judge_redirect(
        self, redirected: Redirected, fetcher: Fetcher, deadline: float, *, may_fetch: bool
    ) -> Decision:
        """The decision on a page of another origin that a robots.txt redirects to, recorded, with its turn taken.

        The request is the guard's own, so it is judged for the guard's own agent, and is refused in report mode too.
        Unless it `may_fetch`, no policy is fetched for it.
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
            renew = partial(self._renewals.settled_for_redirect, redirected, may_fetch=may_fetch)
            decided, source = await self._check(question, terms, fetcher, deadline, renew)
        except Exception:  # noqa: BLE001  fail closed: our fault must not lead a fetch to a forbidden page
            decided, source = self._internal_error(), ""
        decision = self._released(self._made(question, decided, terms, source, began))
        if decision.has_escaped:
            log.warning("%s has led to %s%s, which is not allowed", question.led_by, question.origin, question.target)
        return await self._turn_of_redirect(decision, deadline)

    async def _turn_of_redirect(self, decision: Decision, deadline: float) -> Decision:
        """The same decision with its turn taken, if it needs one; a DEFER if too little time to fetch would be left."""
        if decision.verdict.action is not Action.PASS:
            return decision
        left = deadline - self._clocks.monotonic() - self._limits.connect - self._limits.first_byte
        return await self._turn_within(max(0.0, left), decision, lambda verdict: verdict)

    # -- what is held -------------------------------------------------------------------------------------

    async def _policy_in_time(self, origin: Origin, fetcher: Fetcher, deadline: float) -> Policy | Unanswered:
        """A policy that may be used, renewed if need be."""
        held, _ = await self._held_in_time(origin, deadline)
        if isinstance(held, Unanswered) or (held is not None and self._may_use(held)):
            return held
        return await self._renewals.settled_within(self._left(deadline), origin, held, fetcher)

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clocks.monotonic())

    async def _held_in_time(self, origin: Origin, deadline: float) -> tuple[Policy | Unanswered | None, str]:
        """What is held, unless the store takes longer than there is time for a decision."""
        try:
            return await self._held(origin, self._left(deadline))
        except OutOfTime as error:
            return Unanswered(str(error)), ""

    async def _held(self, origin: Origin, within: float = math.inf) -> tuple[Policy | None, str]:
        """The policy in memory, if it may be used; else the one in the store: another door may have renewed it."""
        near = self._holding.near(origin)
        if near is not None and (not self._holding.shared or self._may_use(near)):
            return near, "memory"
        far = await self._holding.far(origin, within)
        near = self._holding.near(origin)  # look again: a renewal may have ended while we looked in the store
        if far is None or (near is not None and near.settled_at > far.settled_at):
            return near, "memory"
        return far, "store"

    def _may_use(self, held: Policy) -> bool:
        return held.freshness(self._clocks.now(), self.terms(held.origin).dialect) is not Freshness.EXPIRED

    async def _rules_in_time(
        self, document: Document, agent: str, terms: Terms, deadline: float
    ) -> Ruleset | Unanswered:
        """A document's rules for an agent, compiled off the event loop if it is large, unless that takes longer than
        there is time for a decision."""
        held = self._rules_at_hand(document, agent, terms)
        if held is not None:
            return held
        within = self._left(deadline)
        try:
            rules = await self._rules_calls.make(_compiled, document, agent, terms, within=within)
        except StoreError as error:
            self._tally.warn("rules/error", "a question is deferred, a large robots.txt is not parsed: %s", error)
            return Unanswered(str(error))
        return self._keep_rules(_reading(document, agent, terms), rules)

    def _rules_at_hand(self, document: Document, agent: str, terms: Terms) -> Ruleset | None:
        reading = _reading(document, agent, terms)
        rules: Ruleset | None = self._rules.get(reading)
        if rules is None and len(document.body) <= OFF_LOOP:
            rules = self._keep_rules(reading, _compiled(document, agent, terms))
        return rules

    def _keep_rules(self, reading: Reading, rules: Ruleset) -> Ruleset:
        if rules.size < RULES_OCTETS:
            self._rules[reading] = rules
        return rules

    # -- deciding -----------------------------------------------------------------------------------------

    def _internal_error(self) -> Decided:
        log.exception("robots_guard failed; the request is refused")
        return Decided(INTERNAL_ERROR)

    async def _turn_within(
        self, patience: float, decision: Decision, enforced: Callable[[Verdict], Verdict]
    ) -> Decision:
        """The decision with its turn taken, if it needs one. A DEFER if none is free within `patience` seconds; another
        decision if what has come into memory since it was made lets the request pass no longer."""
        if decision.verdict.pace is None or (
            decision.turn is not None and not is_old(decision.turn, self._clocks.now())
        ):
            return decision
        began, current = self._clocks.monotonic(), decision
        try:
            turn = await self._taken(patience, decision)
            waited = self._clocks.monotonic() - began
            current = self._judged_again(decision)
            verdict = current.verdict
            if verdict.action is Action.PASS:
                current = max(current, decision, key=_seconds)
                verdict = current.verdict
                if not turn.wait:
                    moved = decision.turn is not None  # it was taken with the delay of that time
                    return _with_turn(decision, turn, decision.verdict.pace if moved else verdict.pace, waited)
                verdict = not_yet(verdict, turn, self._clocks.now())
        except Exception:  # noqa: BLE001  fail closed: our fault must not let a request through
            verdict, waited = self._internal_error().verdict, self._clocks.monotonic() - began
        now = self._clocks.now()
        changed = {"id": self._next_id(), "at": now, "verdict": enforced(verdict), "elapsed": waited, "turn": None}
        return self._released(msgspec.structs.replace(current, **changed))

    async def _taken(self, patience: float, decision: Decision) -> Turn:
        """The origin's turn, moved to now if the decision has one that still holds; or how long until it is worth
        asking again. None is taken for a request that may not be made any more."""
        origin, delay = decision.question.origin, self._required_delay(decision)
        if delay is None:
            return UNWANTED
        renewed = await self._turns.renewed(origin, decision.turn) if decision.turn is not None else None
        learned = partial(self._required_delay, decision)
        return renewed or await self._turns.take_within(patience, origin, delay, learned)

    def _required_delay(self, decision: Decision) -> float | None:
        """Seconds between two requests, by what is in memory now, but no less than the decision says, for so it is
        recorded; None if the request may not be made any more."""
        current = self._judged_again(decision)
        if current.verdict.action is not Action.PASS:
            return None
        return max(_seconds(current), _seconds(decision))

    def _judged_again(self, decision: Decision) -> Decision:
        """The decision as it would be made now, by what is in memory. Nothing is recorded. It stays as it is if it was
        made just now, or if the question cannot be answered from memory."""
        if 0.0 <= self._clocks.now() - decision.at < JUST_NOW:
            return decision
        terms = self.terms(decision.question.origin)
        decided = self._judged_from_memory(decision.question, terms)
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

    def _decision(self, question: Question, decided: Decided, terms: Terms, source: str, began: float) -> Decision:
        decided = replace(decided, verdict=self._as_enforced(decided.verdict)) if self.reports_only else decided
        return self._released(self._made(question, decided, terms, source, began))

    def _as_enforced(self, verdict: Verdict) -> Verdict:
        return reported(verdict) if self.reports_only else verdict

    def _made(self, question: Question, decided: Decided, terms: Terms, source: str, began: float) -> Decision:
        """The finished decision. `terms` are those it was judged under, whatever holds by now."""
        return Decision(
            id=self._next_id(),
            at=self._clocks.now(),
            door=self.door,
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

    def _released(self, decision: Decision) -> Decision:
        """The decision, recorded before it is released."""
        decision = self._written(decision)
        verdict = decision.verdict
        self.counts[f"{verdict.action}/{verdict.reason}"] += 1
        if decision.has_escaped:
            self.counts["escaped"] += 1
        return decision

    def _written(self, decision: Decision) -> Decision:
        """The decision, in the journal if that can be written; else, where that is required, none that lets pass."""
        try:
            self._journal.write(decision)
        except JournalError as error:
            return self._unwritten(decision, error)
        except Exception:
            log.exception("robots_guard cannot make the record of a decision; the request is refused")
            return self._refused_unrecorded(decision)
        self._tally.works("journal/error", "records")
        if self._unrecorded:
            self._own_up(decision.at)
        return decision

    def _unwritten(self, decision: Decision, error: Exception) -> Decision:
        self._tally.warn("journal/error", "a decision could not be recorded: %s", error, part="records")
        if decision.verdict.action is not Action.PASS:
            return decision
        if self._audit_required:
            return msgspec.structs.replace(decision, verdict=UNRECORDED)
        self._unrecorded += 1
        return decision

    def _refused_unrecorded(self, decision: Decision) -> Decision:
        """The refusal that replaces a decision whose record cannot be made. It carries none of the data that could be
        at fault, and is recorded if possible. In report mode a PASS stays a PASS."""
        self.counts["journal/error"] += 1
        passed = decision.verdict.action is Action.PASS
        verdict = self._as_enforced(INTERNAL_ERROR) if passed else INTERNAL_ERROR
        refused = msgspec.structs.replace(decision, verdict=verdict, policy=None, source="")
        try:
            self._journal.write(refused)
        except Exception as error:  # noqa: BLE001  the fault may lie in what all records need
            return self._unwritten(refused, error)
        return refused

    def _own_up(self, at: float) -> None:
        """The journal can be written again: say what was let through meanwhile."""
        count = self._unrecorded
        try:
            self._journal.note(FailedOpen(at=at, setting="audit_required", count=count, detail="allowed unrecorded"))
        except UnconfirmedRecord:
            pass  # it is written, and would be counted twice
        except JournalError:
            return  # not yet: the decision just now needed no record
        except Exception as error:  # noqa: BLE001  the decision itself is recorded, and stands
            self._tally.warn("journal/error", "unrecorded requests could not be noted: %s", error)
            return
        self._unrecorded -= count

    def _note_overrides(self, source: Path | None, read: Overrides) -> None:
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


def _with_turn(decision: Decision, turn: Turn, pace: Demand | None, waited: float) -> Decision:
    """The decision with a turn that was taken with this delay, after so many seconds."""
    verdict = msgspec.structs.replace(decision.verdict, pace=pace)
    return msgspec.structs.replace(decision, verdict=verdict, turn=turn, turn_taken_at=turn.asked, waited=waited)


def _seconds(decision: Decision) -> float:
    """What a decision asks for between two requests; -inf if it needs no turn."""
    pace = decision.verdict.pace
    return -math.inf if pace is None else pace.seconds


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()  # those of this process


def _begin_in_child() -> None:
    for guard in list(_guards):
        guard.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


def _reading(document: Document, agent: str, terms: Terms) -> Reading:
    """What a document's rules depend on."""
    return document.sha256, agent, terms.dialect.name, terms.matching.name


def _compiled(document: Document, agent: str, terms: Terms) -> Ruleset:
    return compile_rules(document.body, terms.dialect, agent, terms.matching.name)
