"""Single flight: it renews policies, by the state machines `decisions.lease` and `decisions.renewal`.

At most one renewal per origin runs at a time, as a task of its own. Each caller waits for it with
its own time limit, and cancelling one caller affects no other. Across processes the store's lease
limits it to one. A lease lasts longer than a fetch, so it expires only if its holder has died; a
process waits for it at most twice its duration. Without a store, or with a broken one, each process
runs its own renewal.

A renewal whose robots.txt redirects to a page of another origin needs that origin's policy first.
If none is cached, it is fetched by a renewal of a second kind, which all redirects to that origin
share. Invariant: such a renewal never waits for another renewal: it fetches no further policy, uses
a separate semaphore, and waits at most `PATIENCE` seconds for a lease. Two origins that redirect to
each other therefore do not deadlock, in one process or in two.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from robots_guard.decisions import lease, renewal
from robots_guard.decisions.access import (
    Failed,
    Failure,
    Fetched,
    FetchOutcome,
    Get,
    Limits,
    Scope,
)
from robots_guard.decisions.check import TimedOut
from robots_guard.decisions.events import FetchMade
from robots_guard.decisions.freshness import asked_to_wait
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Decision, Terms
from robots_guard.errors import StoreError
from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.calls import CALL_TIMEOUT, Calls
from robots_guard.guard.counters import Counters
from robots_guard.guard.overrides import OverridesFile
from robots_guard.guard.own_requests import OwnRequests
from robots_guard.guard.turns import Turns
from robots_guard.origin import Origin, split_url
from robots_guard.ports import Clocks, Fetcher, Handle, Leases, Runtime, route_of

log = logging.getLogger("robots_guard")

FETCHES = 64  # concurrent fetches; as many again for the policies of redirect targets
WAITERS = 10_000
MARGIN = CALL_TIMEOUT  # seconds by which a lease outlasts a fetch, for storing the result
PATIENCE = 2.0  # seconds for which a renewal for a redirect waits for another process's lease


class _Ending(Exception):
    """The guard is closing, so a renewal that has not started to fetch is abandoned."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One renewal of an origin. `for_redirect`: it is needed to judge the target of another
    origin's redirect. `public_only`: that other origin is public, so only public addresses may be
    connected to. `route` is that of the fetcher."""

    origin: Origin
    cached: Policy | None
    fetcher: Fetcher
    for_redirect: bool = False
    public_only: bool = False
    route: str = ""


class SingleFlight:
    """All renewals of one guard, by origin. `agent` is the guard's own. `leases` is None if no
    other process shares the policies, and `log_calls` if fetches are recorded in the event loop."""

    def __init__(
        self,
        limits: Limits,
        *,
        agent: str,
        cache: PolicyCache,
        leases: Leases | None,
        tokens: Callable[[int], str],
        overrides: OverridesFile,
        turns: Turns,
        own_requests: OwnRequests,
        store_calls: Calls,
        log_calls: Calls | None,
        runtime: Runtime,
        clocks: Clocks,
        counters: Counters,
    ) -> None:
        self._limits = limits
        self._agent = agent
        self._cache = cache
        self._leases = leases
        self._new_token = tokens
        self._overrides = overrides
        self._turns = turns
        self._own_requests = own_requests
        self._store_calls = store_calls
        self._log_calls = log_calls
        self._runtime = runtime
        self._clocks = clocks
        self._counters = counters
        self._lease = limits.total + MARGIN  # seconds
        self._ending = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start without renewals: a forked child neither continues its parent's renewals nor
        releases its leases."""
        self._gate = self._runtime.semaphore(FETCHES)
        self._redirect_gate = self._runtime.semaphore(FETCHES)
        self._running: dict[Origin, Handle[Policy]] = {}
        self._routes: dict[Origin, str] = {}  # of those
        # By origin and `public_only`.
        self._for_redirects: dict[tuple[Origin, bool], Handle[Policy]] = {}
        self._tokens: dict[_Job, str] = {}  # of the leases this process holds
        self._waiting = 0

    def __len__(self) -> int:
        """The number of running renewals."""
        return len(self._running)

    # -- requesting a renewal -----------------------------------------------------------------------------

    def begin(self, origin: Origin, cached: Policy | None, fetcher: Fetcher) -> Handle[Policy]:
        """Return the origin's running renewal, or start one."""
        running = self._running.get(origin)
        if running is not None:
            return running
        job = _Job(origin, cached, fetcher, route=route_of(fetcher))
        handle = self._runtime.spawn(self._renewal(job))
        if not handle.done():  # an eager task may have ended already
            self._running[origin] = handle
            self._routes[origin] = job.route
        return handle

    def refresh_in_background(
        self, origin: Origin, cached: Policy | None, fetcher: Fetcher
    ) -> None:
        """Start a renewal without waiting for it, unless too many run: no request depends on it
        yet."""
        if len(self._running) < WAITERS:
            self.begin(origin, cached, fetcher)

    async def fetch(self, origin: Origin, cached: Policy | None, fetcher: Fetcher) -> Policy:
        """Return the policy that the renewal results in."""
        return await self._runtime.wait(self.begin(origin, cached, fetcher))

    async def fetch_within(
        self, seconds: float, origin: Origin, cached: Policy | None, fetcher: Fetcher
    ) -> Policy | TimedOut:
        """Return the policy that the renewal results in, if in time. The renewal continues in any
        case.

        If a renewal that was running already has failed by another route, a further one begins.
        """
        if self._waiting >= WAITERS:
            return TimedOut(f"{WAITERS} requests already wait for a robots.txt")
        self._waiting += 1
        route, deadline = route_of(fetcher), self._clocks.monotonic() + seconds
        try:
            while (left := deadline - self._clocks.monotonic()) >= 0:
                taken = self._routes.get(origin, route)
                handle = self.begin(origin, cached, fetcher)
                if not (handle.done() or await self._runtime.wait_at_most(handle, left)):
                    break
                policy = await self._runtime.wait(handle)
                trouble = policy.trouble
                if taken == route or trouble is None or trouble.scope is not Scope.ROUTE:
                    return policy
        finally:
            self._waiting -= 1
        return TimedOut("no robots.txt within the decision timeout")

    async def _fetch_for_redirect(
        self,
        redirected: renewal.Redirected,
        job: _Job,
        seconds: float,
        origin: Origin,
        cached: Policy | None,
    ) -> Policy | TimedOut:
        """Return the policy of an origin that the robots.txt of a job redirects to, if it is
        available in time."""
        if origin == redirected.following.origin:
            return TimedOut("a redirect back to the origin whose rules are being fetched")
        if job.for_redirect:
            return TimedOut("a redirect whose target's robots.txt redirects as well")
        key = (origin, redirected.following.public_only)
        handle = self._for_redirects.get(key)
        if handle is None:
            following = _Job(origin, cached, job.fetcher, True, key[1], job.route)
            handle = self._runtime.spawn(self._renewal(following))
            if not handle.done():
                self._for_redirects[key] = handle
        if handle.done() or await self._runtime.wait_at_most(handle, seconds):
            return await self._runtime.wait(handle)
        return TimedOut("no robots.txt within the time for a redirect")

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for running fetches; renewals that have not begun to fetch are
        abandoned."""
        self._ending = True
        deadline = self._clocks.monotonic() + seconds
        while under_way := [*self._running.values(), *self._for_redirects.values()]:
            left = max(0.0, deadline - self._clocks.monotonic())
            if not await self._runtime.wait_at_most(under_way[0], left):
                log.warning(
                    "%d robots.txt fetches abandoned: not finished within %g s",
                    len(under_way),
                    seconds,
                )
                return

    def close(self) -> None:
        """Release the leases of renewals that were abandoned."""
        for job, token in list(self._tokens.items()):
            with contextlib.suppress(StoreError):
                assert self._leases is not None
                self._leases.release(job.origin, token)
        self._tokens.clear()

    # -- driving a renewal --------------------------------------------------------------------------------

    async def _renewal(self, job: _Job) -> Policy:
        """Run the renewal that all callers share. Does not raise, and removes itself when it
        ends."""
        try:
            try:
                policy = await self._run(job)
            except _Ending as error:
                policy = self._settle_failed(job, error)
            except Exception as error:
                log.exception("renewing the policy of %s failed", job.origin)
                policy = self._settle_failed(job, error)
            await self._release(job)  # if cancelled before this, `close` releases it, or it expires
            return policy
        finally:
            if job.for_redirect:
                self._for_redirects.pop((job.origin, job.public_only), None)
            else:
                self._running.pop(job.origin, None)
                self._routes.pop(job.origin, None)

    def _settle_failed(self, job: _Job, error: Exception) -> Policy:
        failed = Failed(failure=Failure.INTERNAL, detail=type(error).__name__)
        settled = renewal.begin(job.origin, job.cached, job.fetcher.via).next(
            failed, self._clocks.now()
        )
        assert isinstance(settled, renewal.Settled)
        if not job.for_redirect and settled.policy.trouble is not None:
            self._cache.put_local_failure(job.origin, settled.policy.trouble, job.route)
        return settled.policy

    async def _run(self, job: _Job) -> Policy:
        """Take the lease and look up again in one call, fetch, store. Only a job about to fetch
        holds the semaphore."""
        terms = self._overrides.terms(job.origin)
        needs_reservations = _needs_reservations(job, terms)
        patience = PATIENCE if job.for_redirect else 2 * self._lease
        gate = self._redirect_gate if job.for_redirect else self._gate
        state: lease.State = lease.begin(
            job.cached, terms.dialect, patience, needs_reservations=needs_reservations
        )
        inside = False
        found: Policy | None = None
        try:
            while True:
                match state:
                    case lease.Taking():
                        await gate.acquire()
                        inside = True
                        if self._ending:
                            raise _Ending
                        is_ours, found = await self._take(job)
                        state = state.next(is_ours)
                    case lease.Looking():
                        state = state.next(found, self._clocks.now())
                    case lease.Waiting():
                        gate.release()
                        inside = False
                        await self._runtime.sleep(state.pause)
                        state = state.next()
                    case lease.Found():
                        return state.policy
                    case lease.Granted():
                        policy = await self._fetch(job, state.cached, needs_reservations)
                        return await self._cache_result(job, policy)
                    case _:
                        assert_never(state)
        finally:
            if inside:
                gate.release()

    async def _cache_result(self, job: _Job, policy: Policy) -> Policy:
        """Cache a fetched policy, and release the lease in the same call to the store; return what
        is now cached. A failure of a renewal for a redirect that is not the site's is not cached."""
        if (
            job.for_redirect
            and policy.trouble is not None
            and policy.trouble.scope is not Scope.SITE
        ):
            return policy
        token = self._tokens.get(job)
        if self._leases is None or token is None:
            return await self._cache.put(policy, job.route)
        release = _ReleaseAfterPut(self._leases, job.origin, token)
        stored = await self._cache.put(policy, job.route, release)
        if release.is_done:
            self._tokens.pop(job, None)
        return stored

    async def _fetch(self, job: _Job, cached: Policy | None, needs_reservations: bool) -> Policy:
        deadline = self._clocks.monotonic() + self._limits.total
        state: renewal.State = renewal.begin(
            job.origin,
            cached,
            job.fetcher.via,
            public_only=job.public_only,
            reservations_for=self._agent if needs_reservations else None,
        )
        judged: Decision | None = None  # of the next hop
        while True:
            match state:
                case renewal.Fetching() | renewal.FetchingReservations():
                    outcome = await self._hop(job, state, deadline)
                    deadline += outcome.queued  # a wait in this process says nothing about the site
                    await self._mark_response_started(judged)
                    judged = None
                    state = state.next(outcome, self._clocks.now())
                case renewal.Redirected():
                    renew = partial(self._fetch_for_redirect, state, job)
                    judged = await self._own_requests.judge_redirect(state, deadline, renew)
                    state = state.next(judged.verdict, self._clocks.now())
                case renewal.JudgingReservations():
                    judged = await self._own_requests.judge_reservations(state, deadline)
                    state = state.next(judged.verdict, self._clocks.now())
                case renewal.Settled():
                    return state.policy
                case _:
                    assert_never(state)

    async def _mark_response_started(self, judged: Decision | None) -> None:
        """Mark that the response of a judged hop has started, if the hop needed a turn."""
        if judged is not None and judged.turn is not None:
            await self._turns.mark_response_started(judged.question.origin, judged.turn)

    async def _hop(
        self, job: _Job, state: renewal.Fetching | renewal.FetchingReservations, deadline: float
    ) -> FetchOutcome:
        self._counters.counts["fetch/count"] += 1
        get, began = self._get(state, deadline), self._clocks.monotonic()
        outcome = await job.fetcher.fetch(get)
        if isinstance(outcome, Failed):
            self._counters.counts[f"fetch/{outcome.scope}_failure"] += 1
        now, elapsed = self._clocks.now(), self._clocks.monotonic() - began
        await self._record_hop(
            FetchMade(
                at=now,
                origin=job.origin,
                get=get,
                outcome=outcome,
                via=job.fetcher.via,
                elapsed=elapsed,
                file=state.file,
            )
        )
        await self._note_retry_after(outcome, state.url)
        return outcome

    async def _record_hop(self, made: FetchMade) -> None:
        """Record the hop in the audit log."""
        if self._log_calls is None:
            self._counters.note(made)
            return
        try:
            await self._log_calls.make(self._counters.note, made)
        except StoreError as error:
            self._counters.warn(
                "audit_log/error", "an event could not be recorded: %s", error, part="records"
            )

    async def _note_retry_after(self, outcome: FetchOutcome, url: str) -> None:
        """Keep a Retry-After of a fetch for the origin's pages, too."""
        if isinstance(outcome, Fetched):
            wait = asked_to_wait(outcome.status, outcome.headers, self._clocks.now())
            if wait:
                await self._turns.note_pause(split_url(url)[0], wait)

    def _get(self, state: renewal.Fetching | renewal.FetchingReservations, deadline: float) -> Get:
        """Return the GET for one hop; all hops share the total time."""
        left = max(0.1, deadline - self._clocks.monotonic())
        limits = Limits(
            connect=min(self._limits.connect, left),
            first_byte=min(self._limits.first_byte, left),
            total=left,
            max_body=min(self._limits.max_body, state.max_body),
        )
        return Get(
            url=state.url,
            headers=state.conditions,
            limits=limits,
            public_only=state.public_only,
            verbatim=state.judged,
            elsewhere=split_url(state.url)[0] != state.origin,
        )

    # -- leases -------------------------------------------------------------------------------------------

    async def _take(self, job: _Job) -> tuple[bool, Policy | None]:
        """Take the lease; return whether to fetch, and the policy stored then. Without a working
        lease store, every process may fetch."""
        if self._leases is None:
            return True, None
        # The lease is released later even if only the reply was lost.
        token = self._tokens[job] = self._new_token(8)
        give_back = partial(_release_late, self._leases, job.origin, token)
        take, now = self._leases.take_and_get, self._clocks.now()
        try:
            taken = await self._store_calls.make(
                take, job.origin, token, now, self._lease, undo=give_back
            )
        except StoreError as error:
            self._warn("the policy store grants no leases; continuing without: %s", error)
            return True, await self._cache.get_shared(job.origin)
        self._counters.mark_working("store/error", "reading", "writing")
        if not taken.is_ours:
            self._tokens.pop(job, None)
        return taken.is_ours, self._cache.copy_shared(taken)

    async def _release(self, job: _Job) -> None:
        token = self._tokens.pop(job, None)
        if self._leases is None or token is None:
            return
        try:
            await self._store_calls.make(self._leases.release, job.origin, token)
        except StoreError as error:
            self._warn("a lease was not released; it will expire: %s", error)

    def _warn(self, message: str, error: StoreError) -> None:
        self._counters.warn("store/error", message, error, part="writing")


class _ReleaseAfterPut:
    """Releases a lease in the call that has stored the policy. If that fails, `is_done` remains
    false, and `SingleFlight` releases the lease in a call of its own, which reports the error."""

    def __init__(self, leases: Leases, origin: Origin, token: str) -> None:
        self.is_done = False
        self._leases = leases
        self._origin = origin
        self._token = token

    def __call__(self) -> None:
        with contextlib.suppress(StoreError):
            self._leases.release(self._origin, self._token)
            self.is_done = True


def _needs_reservations(job: _Job, terms: Terms) -> bool:
    """Whether a renewal includes reservations. A policy for a redirect judges only the guard's own
    request, to which they do not apply."""
    return terms.needs_reservations and not job.for_redirect


def _release_late(leases: Leases, origin: Origin, token: str, taken: lease.Taken) -> None:
    """Release a lease that was granted after its renewal had continued without it."""
    if taken.is_ours:
        leases.release(origin, token)
