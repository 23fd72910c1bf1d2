"""The guard answers questions: may this be requested, and when may it be sent.

It wires together the modules of this package. `peek` answers at once if the policy is in memory;
`check` waits for what it needs, at most the decision timeout; `turn` takes the origin's turn before
a permitted request is sent. Every decision is recorded before it is returned. Invariant: an
exception inside the guard results in a refusal (reason internal-error), never in a permitted
request.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import weakref
from collections.abc import Callable
from functools import partial

import msgspec

from robots_guard.decisions.check import Decided, TimedOut
from robots_guard.decisions.pacing import DelaySource, RequiredDelay
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Decision, Exemption, Question, Terms, Verdict
from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.calls import LOG_WIDTH, RULES_WIDTH, Calls, threads_for
from robots_guard.guard.checks import Checks
from robots_guard.guard.counters import Counters
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.overrides import OverridesFile
from robots_guard.guard.own_requests import OwnRequests
from robots_guard.guard.recorder import Recorder, check_types, recordable, refuse_after_error
from robots_guard.guard.response_check import ResponseCheck
from robots_guard.guard.rules import RulesCache
from robots_guard.guard.single_flight import SingleFlight
from robots_guard.guard.threads import run_within
from robots_guard.guard.turn_check import TurnCheck
from robots_guard.guard.turns import Turns
from robots_guard.origin import Origin
from robots_guard.ports import AuditLog, Clocks, Fetcher, LocalStore, Runtime, Store, route_of

log = logging.getLogger("robots_guard")

#: Seconds `drain` waits at most: together with `close` less than the 10 s of `docker stop`.
DRAIN_TIMEOUT = 5.0
CLOSE_TIMEOUT = 2.0  # seconds `close` waits for the audit log, and again for the store
#: The delay of a request that needs a turn only because of a pause.
NO_DELAY = RequiredDelay(by=DelaySource.RETRY_AFTER, seconds=0.0)


class Guard:
    """Answers questions for one integration.

    `memory` never blocks and is checked before `store`, which is None where policies and turns
    are in memory only. `tokens` returns random hexadecimal text of the given number of bytes; it
    names this guard in records, turns and leases. `on_decision` is called with each decision after
    it was recorded. `counts` holds running totals for the integration's statistics.
    """

    def __init__(
        self,
        options: GuardOptions,
        *,
        runtime: Runtime,
        clocks: Clocks,
        memory: LocalStore,
        store: Store | None,
        fetcher: Fetcher,
        audit_log: AuditLog,
        tokens: Callable[[int], str] = secrets.token_hex,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._clocks = clocks
        self._fetcher = fetcher
        self._audit_log = audit_log
        self._tokens = tokens
        self._counters = counters = Counters(clocks, audit_log)
        self.counts = counters.counts
        calls = partial(Calls, runtime=runtime, clocks=clocks, counters=counters)
        store_calls = calls(
            "the policy store",
            options.store_threads,
            kind="store/error",
            is_local=store is not None and store.is_local,
        )
        log_calls = calls("the audit log", LOG_WIDTH, kind="audit_log/error")
        rules_calls = calls("the parser", RULES_WIDTH, kind="rules/error")
        self._all_calls = (store_calls, log_calls, rules_calls)
        runtime.allow_threads(threads_for(options.store_threads))
        self._overrides = overrides = OverridesFile(
            options.overrides, options.terms, clocks, counters
        )
        self._cache = PolicyCache(
            memory=memory,
            store=store,
            calls=store_calls,
            clocks=clocks,
            counters=counters,
            demands_verified=options.demands_verified,
            agent=options.agent,
        )
        self._rules = RulesCache(calls=rules_calls, clocks=clocks, counters=counters)
        self._turns = turns = Turns(
            near=memory,
            far=store,
            name=tokens(8),
            calls=store_calls,
            runtime=runtime,
            clocks=clocks,
            counters=counters,
            respect_retry_after=options.respect_retry_after,
        )
        self._recorder = recorder = Recorder(
            options,
            audit_log=audit_log,
            clocks=clocks,
            counters=counters,
            tokens=tokens,
            on_decision=on_decision,
        )
        self._checks = checks = Checks(
            overrides=overrides, cache=self._cache, rules=self._rules, turns=turns, clocks=clocks
        )
        self._turn_check = TurnCheck(checks=checks, turns=turns, recorder=recorder, clocks=clocks)
        #: Judges responses by the signals of their sites.
        self.responses = ResponseCheck(
            options,
            overrides=overrides,
            cache=self._cache,
            rules=self._rules,
            recorder=recorder,
            clocks=clocks,
        )
        own_requests = OwnRequests(
            options,
            checks=checks,
            turn_check=self._turn_check,
            recorder=recorder,
            clocks=clocks,
        )
        self._renewals = SingleFlight(
            options.limits,
            agent=options.agent,
            cache=self._cache,
            leases=store,
            tokens=tokens,
            overrides=overrides,
            turns=turns,
            own_requests=own_requests,
            store_calls=store_calls,
            log_calls=None if options.records_fetches_at_once else log_calls,
            runtime=runtime,
            clocks=clocks,
            counters=counters,
        )
        _guards.add(self)

    @property
    def report_only(self) -> bool:
        """Whether nothing is refused."""
        return self._options.report_only

    def reset_after_fork(self) -> None:
        """Reset what a forked child must not share with its parent.

        The child has its own ids and its own places in the turn queues. The parent's pending work
        does not continue in the child, and the parent itself records how many requests it let pass
        unrecorded.
        """
        for calls in self._all_calls:
            calls.reset_after_fork()
        self._renewals.reset_after_fork()
        self._turns.reset_after_fork(self._tokens(8))
        self._recorder.reset_after_fork()

    # -- asking for a decision ----------------------------------------------------------------------------

    def peek(self, question: Question, fetcher: Fetcher | None = None) -> Decision | None:
        """Return the decision if it needs no waiting; None means: await `check`.

        `fetcher`, if given, renews a stale policy.
        """
        began = self._clocks.monotonic()
        terms = self._options.terms
        try:
            terms = self._overrides.terms(question.origin)
            route = route_of(fetcher or self._fetcher)
            decided = self._checks.run_from_memory(question, terms, route)
            if decided is not None and decided.renew:
                self._refresh_in_background(question.origin, decided, fetcher)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided = recordable(question), refuse_after_error()
        if decided is None:
            return None
        return self._finish(question, decided, terms, "memory", began)

    async def check(self, question: Question, fetcher: Fetcher | None = None) -> Decision:
        """Return the decision, waiting as long as needed. `fetcher`, if given, fetches what this
        question needs."""
        began = self._clocks.monotonic()
        terms, deadline = self._options.terms, began + self._options.decision_timeout
        try:
            terms = self.terms(question.origin)
            used = fetcher or self._fetcher
            renew = partial(self._renewals.fetch_within, fetcher=used)
            decided, source = await self._checks.run(
                question, terms, deadline, renew, route_of(used)
            )
            if decided.renew:
                self._refresh_in_background(question.origin, decided, fetcher)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided, source = recordable(question), refuse_after_error(), ""
        return self._finish(question, decided, terms, source, began)

    def decide(self, question: Question, verdict: Verdict) -> Decision:
        """Record a verdict that an integration reached itself; report-only mode does not change it.

        Examples are an ambiguous authority and an operator's exemption. Values of wrong types
        result in a refusal.
        """
        began = self._clocks.monotonic()
        terms, decided = self._options.terms, Decided(verdict)
        try:
            check_types(question, Question)
            check_types(verdict, Verdict)
            terms = self.terms(question.origin)
        except Exception:  # noqa: BLE001  fail closed: an internal error must not let a request pass
            question, decided = recordable(question), refuse_after_error()
        return self._recorder.issue(question, decided, terms, "", began)

    def recheck_pause(self, decision: Decision) -> Decision:
        """Recheck Retry-After: return the decision unchanged, or one that now requires a turn.

        A turn is required if the origin has asked for a pause since the decision was made.
        """
        verdict, origin = decision.verdict, decision.question.origin
        exempt = verdict.reason is Reason.BYPASSED
        exempt = exempt or (decision.policy is None and verdict.reason is not Reason.ROBOTS_TXT)
        if exempt or verdict.delay is not None or not self.is_paused(origin):
            return decision
        return msgspec.structs.replace(
            decision, verdict=msgspec.structs.replace(verdict, delay=NO_DELAY)
        )

    async def turn(self, decision: Decision, patience: float = 0.0) -> Decision:
        """Take the origin's turn for a permitted request; return the decision to act on.

        The result is the same decision with its turn, to be acted on at once; a DEFER if the turn
        would not come within `patience` seconds; or another decision if the policy now in memory
        forbids the request. Call this when nothing is left to do before the request is sent: a turn
        whose request is not sent goes unused. A turn that the decision has had for too long is moved to
        now, or replaced if another process has taken one since.
        """
        if self.report_only:
            patience = 0.0
        return await self._turn_check.take_within(
            patience, decision, self._options.apply_report_only
        )

    def mark_sent(self, decision: Decision) -> Decision:
        """Mark a request as being sent; return its decision with the turn re-stamped to now.

        A turn that was just taken is not re-stamped. The store is updated in the background, so
        that sending is not delayed. A turn that is too old is removed: the request must not be sent
        (`Decision.is_due`) until `turn` has been called again.
        """
        return self._turn_check.mark_sent(decision)

    async def mark_response_started(self, decision: Decision) -> None:
        """Mark that the response to a request with a turn has started. Does not raise."""
        if decision.turn is not None:
            await self._turns.mark_response_started(decision.question.origin, decision.turn)

    async def note_pause(self, origin: Origin, seconds: float) -> None:
        """Note that an origin has asked for a pause (`Retry-After` with a 402, 429 or 503). Does
        not raise."""
        await self._turns.note_pause(origin, seconds)

    def is_paused(self, origin: Origin) -> bool:
        """Whether the origin has asked for a pause that is not over, as far as this process
        knows."""
        return self._turns.is_paused(origin)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a turn."""
        return self._turns.waiting

    def terms(self, origin: Origin) -> Terms:
        """Return the terms for an origin now: the settings, or an override of them."""
        return self._overrides.terms(origin)

    def _is_pinned(self, origin: Origin) -> bool:
        """Whether requests are judged by a pinned robots.txt, and nothing of the site is needed."""
        terms = self.terms(origin)
        return terms.pinned is not None and not terms.needs_reservations

    def fresh_for(self, origin: Origin) -> float | None:
        """Return the seconds for which the policy in memory stays fresh, 0 if it is stale; None if
        no usable policy is in memory. A pinned one is always fresh."""
        if self._is_pinned(origin):
            return math.inf
        cached = self._cache.get_local(origin)
        if cached is None or not self._checks.is_usable(cached):
            return None
        return max(0.0, cached.expires_at(self.terms(origin).dialect) - self._clocks.now())

    async def policy(
        self, origin: Origin, fetcher: Fetcher | None = None, *, renew: bool = False
    ) -> Policy:
        """Return the policy that a check would use; with `renew`, fetch it from the origin
        first."""
        cached, _ = await self._checks.look_up(origin, route=route_of(fetcher or self._fetcher))
        if cached is not None and not renew and self._checks.is_usable(cached):
            return cached
        return await self._renewals.fetch(origin, cached, fetcher or self._fetcher)

    async def fresh_policy(self, origin: Origin, fetcher: Fetcher | None = None) -> Policy | None:
        """Return the origin's policy if it is fresh, after renewing it if it is not; None if there
        is none within the decision timeout.

        It decides and records nothing, and does not raise.
        """
        deadline = self._clocks.monotonic() + self._options.decision_timeout
        try:
            route = route_of(fetcher or self._fetcher)
            cached, _ = await self._checks.look_up_in_time(origin, deadline, route)
            if cached is None or (isinstance(cached, Policy) and not self._checks.is_fresh(cached)):
                left = self._checks.time_left(deadline)
                cached = await self._renewals.fetch_within(
                    left, origin, cached, fetcher or self._fetcher
                )
        except Exception:  # the caller can do without it
            log.exception("the policy of %s is not available", origin)
            return None
        return cached if isinstance(cached, Policy) else None

    async def prefetch(self, question: Question, fetcher: Fetcher | None = None) -> None:
        """Load what `peek` needs to answer the question, within the decision timeout.

        It decides and records nothing, and does not raise.
        """
        deadline = self._clocks.monotonic() + self._options.decision_timeout
        try:
            terms = self.terms(question.origin)
            if self._is_pinned(question.origin):
                assert terms.pinned is not None
                await self._rules.get_in_time(terms.pinned, question.agent, terms, deadline)
                return
            policy = await self._policy_in_time(question.origin, fetcher or self._fetcher, deadline)
            if isinstance(policy, TimedOut):
                return  # the check will defer the question
            if terms.needs_reservations:
                await self._rules.compile_reservations_in_time(policy, deadline)
            document = terms.pinned or policy.access(self._clocks.now(), terms.dialect)[1]
            if document is not None:
                await self._rules.get_in_time(document, question.agent, terms, deadline)
        except Exception:  # the next check fails in the same way and refuses the request
            log.exception("preparing for a question to %s failed", question.origin)

    async def drain(self) -> None:
        """Wait a few seconds at most for pending renewals, so that `close` loses none."""
        await self._renewals.drain(min(DRAIN_TIMEOUT, self._options.decision_timeout))

    @property
    def exemptions(self) -> tuple[Exemption, ...]:
        """The exemption of each override in the file, also of expired ones."""
        return self._overrides.exemptions

    def reload_overrides(self) -> None:
        """Reread the overrides file now if it has changed, and do not check it again for a
        second."""
        self._overrides.reload_if_changed()

    def close(self) -> None:
        """Release the store, the audit log and the threads.

        A call that hangs is abandoned: its daemon thread ends with the process.
        """
        for name, release in (
            ("audit log", self._audit_log.close),
            ("policy store", self._close_store),
        ):
            if not run_within(CLOSE_TIMEOUT, release):
                log.warning("the %s hangs; continuing without closing it", name)
        self._runtime.close()

    def _close_store(self) -> None:
        self._renewals.close()
        self._cache.close()

    # -- steps -------------------------------------------------------------------------------------

    def _refresh_in_background(
        self, origin: Origin, decided: Decided, fetcher: Fetcher | None
    ) -> None:
        cached = decided.policy
        if cached is None or cached.is_pinned:
            cached = self._cache.get_local(origin, route_of(fetcher or self._fetcher))
        self._renewals.refresh_in_background(origin, cached, fetcher or self._fetcher)

    async def _policy_in_time(
        self, origin: Origin, fetcher: Fetcher, deadline: float
    ) -> Policy | TimedOut:
        """Return a usable policy, renewed if necessary."""
        cached, _ = await self._checks.look_up_in_time(origin, deadline, route_of(fetcher))
        if isinstance(cached, TimedOut) or (cached is not None and self._checks.is_usable(cached)):
            return cached
        left = self._checks.time_left(deadline)
        return await self._renewals.fetch_within(left, origin, cached, fetcher)

    def _finish(
        self, question: Question, decided: Decided, terms: Terms, source: str, began: float
    ) -> Decision:
        if self._options.report_only:
            verdict = self._options.apply_report_only(decided.verdict)
            decided = msgspec.structs.replace(decided, verdict=verdict)
        return self._recorder.issue(question, decided, terms, source, began)


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()  # all guards of this process


def _reset_all_after_fork() -> None:
    for guard in list(_guards):
        guard.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)
