"""Renewing policies: drives the machines `core.flight` and `core.renewal` over the ports.

One renewal an origin runs at a time, as work of its own: whoever asks waits for it, each as long as he may, and
nobody's cancellation is the others'. Across processes the store's lease keeps it one. A lease is longer than a
fetch, so it ends only under a holder that has died, and is waited for no longer than twice its time; without a
store, or with a broken one, there is one renewal a process.

A renewal whose robots.txt redirects to a page of another origin has to know that origin's policy first. If none is
held, it is fetched by a renewal of a second kind, which is shared by all redirects to that origin. Invariant: such a
renewal never waits for another one: it fetches no further policy, has a semaphore of its own, and waits at most
`PATIENCE` seconds for a lease. So two origins that redirect to each other do not deadlock, in one process or in two.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from robots_guard.calls import LONGEST, Calls
from robots_guard.core import flight, renewal
from robots_guard.core.access import OURS, Failed, Failure, Fetched, FetchOutcome, Get, Limits
from robots_guard.core.check import Unanswered
from robots_guard.core.events import FetchMade
from robots_guard.core.freshness import asked_to_wait
from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Decision
from robots_guard.errors import StoreError
from robots_guard.holding import Holding
from robots_guard.origin import Origin, split_url
from robots_guard.ports import Clocks, Fetcher, Handle, Leases, Runtime
from robots_guard.rep.dialect import Dialect
from robots_guard.tally import Tally

log = logging.getLogger("robots_guard")

FETCHES = 64  # at once; as many again for the policies of redirect targets
WAITERS = 10_000
MARGIN = LONGEST  # seconds a lease is longer than a fetch, for putting what was fetched
PATIENCE = 2.0  # seconds for which a renewal for a redirect waits for another process's lease


class _Ending(Exception):
    """The guard is about to be closed: nobody waits for this any more."""


class JudgeRedirect(Protocol):
    """Judges the target of a robots.txt's redirect, by `deadline` on the monotonic clock. Does not raise."""

    async def __call__(
        self, redirected: renewal.Redirected, fetcher: Fetcher, deadline: float, *, may_fetch: bool
    ) -> Decision:
        """The decision, recorded, with its turn taken. Unless it `may_fetch`, only a held policy is used."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One renewal of an origin. `for_redirect`: it is needed to judge the target of another origin's redirect;
    `public_only`: that origin is public, so only public addresses may be connected to."""

    origin: Origin
    held: Policy | None
    fetcher: Fetcher
    for_redirect: bool = False
    public_only: bool = False


class Renewals:
    """All renewals of one guard, by origin."""

    def __init__(
        self,
        *,
        holding: Holding,
        leases: Leases | None,
        tokens: Callable[[int], str],
        store_calls: Calls,
        log_calls: Calls,
        runtime: Runtime,
        clocks: Clocks,
        limits: Limits,
        dialect_of: Callable[[Origin], Dialect],
        tally: Tally,
        hold_off: Callable[[Origin, float], Awaitable[None]],
        judge: JudgeRedirect,
        answered: Callable[[Decision], Awaitable[None]],
    ) -> None:
        self._holding = holding
        self._leases = leases
        self._new_token = tokens
        self._store_calls = store_calls
        self._log_calls = log_calls
        self._runtime = runtime
        self._clocks = clocks
        self._limits = limits
        self._dialect_of = dialect_of
        self._tally = tally
        self._hold_off = hold_off
        self._judge = judge
        self._answered = answered
        self._lease = limits.total + MARGIN  # seconds
        self._gate = runtime.gate(FETCHES)
        self._redirect_gate = runtime.gate(FETCHES)
        self._running: dict[Origin, Handle[Policy]] = {}
        self._for_redirects: dict[tuple[Origin, bool], Handle[Policy]] = {}  # by origin and `public_only`
        self._tokens: dict[_Job, str] = {}  # of the leases we hold
        self._waiting = 0
        self._ending = False

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    # -- asking for one -----------------------------------------------------------------------------------

    def begin(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Handle[Policy]:
        """The origin's one renewal: joined if it runs already, else begun."""
        running = self._running.get(origin)
        if running is not None:
            return running
        job = _Job(origin, held, fetcher)
        handle = self._runtime.spawn(self._renewal(job))
        if not handle.done():  # it may have run to its end already
            self._running[origin] = handle
        return handle

    def begin_aside(self, origin: Origin, held: Policy, fetcher: Fetcher) -> None:
        """Begin one that nobody waits for, unless too many run: what is held is still good enough."""
        if len(self._running) < WAITERS:
            self.begin(origin, held, fetcher)

    async def settled(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        """The policy the renewal settles on."""
        return await self._runtime.wait(self.begin(origin, held, fetcher))

    async def settled_within(
        self, seconds: float, origin: Origin, held: Policy | None, fetcher: Fetcher
    ) -> Policy | Unanswered:
        """The policy the renewal settles on, if it does so in time. It goes on in any case."""
        if self._waiting >= WAITERS:
            return Unanswered(f"{WAITERS} requests wait for a robots.txt already")
        self._waiting += 1
        try:
            handle = self.begin(origin, held, fetcher)
            if handle.done() or await self._runtime.wait_at_most(handle, seconds):
                return await self._runtime.wait(handle)
        finally:
            self._waiting -= 1
        return Unanswered("no robots.txt within the time for a decision")

    async def settled_for_redirect(
        self,
        redirected: renewal.Redirected,
        seconds: float,
        origin: Origin,
        held: Policy | None,
        fetcher: Fetcher,
        *,
        may_fetch: bool,
    ) -> Policy | Unanswered:
        """The policy of an origin that a robots.txt redirects to, if it can be had in time."""
        if origin == redirected.following.origin:
            return Unanswered("a redirect back to the origin whose rules are being fetched")
        if not may_fetch:
            return Unanswered("a redirect, whose robots.txt redirects likewise")
        key = (origin, redirected.following.public_only)
        handle = self._for_redirects.get(key)
        if handle is None:
            handle = self._runtime.spawn(self._renewal(_Job(origin, held, fetcher, True, key[1])))
            if not handle.done():
                self._for_redirects[key] = handle
        if handle.done() or await self._runtime.wait_at_most(handle, seconds):
            return await self._runtime.wait(handle)
        return Unanswered("no robots.txt within the time for a redirect")

    async def settle(self, seconds: float) -> None:
        """Let what is being fetched come to its end, for so many seconds; what has not begun to fetch is given up."""
        self._ending = True
        deadline = self._clocks.monotonic() + seconds
        while under_way := [*self._running.values(), *self._for_redirects.values()]:
            left = max(0.0, deadline - self._clocks.monotonic())
            if not await self._runtime.wait_at_most(under_way[0], left):
                log.warning("%d robots.txt are given up: they have not come within %g s", len(under_way), seconds)
                return

    def close(self) -> None:
        """Give back the leases of renewals that will not end any more."""
        for job, token in list(self._tokens.items()):
            with contextlib.suppress(StoreError):
                assert self._leases is not None
                self._leases.release(job.origin, token)
        self._tokens.clear()

    # -- driving one --------------------------------------------------------------------------------------

    async def _renewal(self, job: _Job) -> Policy:
        """Work shared by all askers: does not raise, and is forgotten when it ends, however it ends."""
        try:
            try:
                policy = await self._fly(job)
            except _Ending as error:
                policy = self._failed(job, error)
            except Exception as error:
                log.exception("renewing the policy of %s failed", job.origin)
                policy = self._failed(job, error)
            await self._release(job)  # given up halfway, it is left to `close`, or to its end
            return policy
        finally:
            if job.for_redirect:
                self._for_redirects.pop((job.origin, job.public_only), None)
            else:
                self._running.pop(job.origin, None)

    def _failed(self, job: _Job, error: Exception) -> Policy:
        failed = Failed(failure=Failure.INTERNAL, detail=type(error).__name__)
        settled = renewal.begin(job.origin, job.held, job.fetcher.via).next(failed, self._clocks.now())
        assert isinstance(settled, renewal.Settled)
        if not job.for_redirect:
            self._holding.keep_near(settled.policy)
        return settled.policy

    async def _fly(self, job: _Job) -> Policy:
        """Look, take the lease, look again, fetch, put. Only who fetches, or is about to, is inside the gate."""
        patience = PATIENCE if job.for_redirect else 2 * self._lease
        gate = self._redirect_gate if job.for_redirect else self._gate
        state: flight.State = flight.begin(job.held, self._dialect_of(job.origin), patience)
        inside = False
        try:
            while True:
                match state:
                    case flight.Taking():
                        await gate.acquire()
                        inside = True
                        if self._ending:
                            raise _Ending
                        state = state.next(await self._take(job))
                    case flight.Looking():
                        state = state.next(await self._holding.far(job.origin), self._clocks.now())
                    case flight.Waiting():
                        gate.release()
                        inside = False
                        await self._runtime.sleep(state.pause)
                        state = state.next()
                    case flight.Found():
                        return state.policy
                    case flight.Granted():
                        return await self._kept(job, await self._fetch(job, state.held))
                    case _:
                        assert_never(state)
        finally:
            if inside:
                gate.release()

    async def _kept(self, job: _Job, policy: Policy) -> Policy:
        """Keep a fetched policy, and return what is now held. A trouble that concerns only the redirect is not kept."""
        if job.for_redirect and policy.trouble is not None and policy.trouble.failure in OURS:
            return policy
        return await self._holding.keep(policy)

    async def _fetch(self, job: _Job, held: Policy | None) -> Policy:
        deadline = self._clocks.monotonic() + self._limits.total
        state: renewal.State = renewal.begin(job.origin, held, job.fetcher.via, public_only=job.public_only)
        judged: Decision | None = None  # of the next hop
        while True:
            match state:
                case renewal.Fetching():
                    outcome = await self._hop(job, state, deadline)
                    deadline += outcome.queued  # that wait says nothing of the site
                    if judged is not None:
                        await self._answered(judged)
                        judged = None
                    state = state.next(outcome, self._clocks.now())
                case renewal.Redirected():
                    judged = await self._judge(state, job.fetcher, deadline, may_fetch=not job.for_redirect)
                    state = state.next(judged.verdict, self._clocks.now())
                case renewal.Settled():
                    return state.policy
                case _:
                    assert_never(state)

    async def _hop(self, job: _Job, state: renewal.Fetching, deadline: float) -> FetchOutcome:
        self._tally.counts["fetch/count"] += 1
        get, began = self._get(state, deadline), self._clocks.monotonic()
        outcome = await job.fetcher.fetch(get)
        await self._note(job.origin, get, outcome, job.fetcher.via, began)
        await self._heed(outcome, state.url)
        return outcome

    async def _note(self, origin: Origin, get: Get, outcome: FetchOutcome, via: str, began: float) -> None:
        """Each hop is in the journal."""
        now, elapsed = self._clocks.now(), self._clocks.monotonic() - began
        made = FetchMade(at=now, origin=origin, get=get, outcome=outcome, via=via, elapsed=elapsed)
        try:
            await self._log_calls.make(self._tally.note, made)
        except StoreError as error:
            self._tally.warn("journal/error", "an event could not be recorded: %s", error, part="records")

    async def _heed(self, outcome: FetchOutcome, url: str) -> None:
        """A site that answers "later" means its pages, too."""
        if isinstance(outcome, Fetched):
            wait = asked_to_wait(outcome.status, outcome.headers, self._clocks.now())
            if wait:
                await self._hold_off(split_url(url)[0], wait)

    def _get(self, state: renewal.Fetching, deadline: float) -> Get:
        """One hop; all hops together have the total time."""
        left = max(0.1, deadline - self._clocks.monotonic())
        limits = Limits(
            connect=min(self._limits.connect, left),
            first_byte=min(self._limits.first_byte, left),
            total=left,
            max_body=self._limits.max_body,
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

    async def _take(self, job: _Job) -> bool:
        """Whether we may fetch: the lease is ours, or there are none to be had."""
        if self._leases is None:
            return True
        token = self._tokens[job] = self._new_token(8)  # given back in the end, also if only the answer was lost
        give_back = partial(_give_back_late, self._leases, job.origin, token)
        take, now = self._leases.take, self._clocks.now()
        try:
            taken: bool = await self._store_calls.make(take, job.origin, token, now, self._lease, undo=give_back)
        except StoreError as error:
            self._warn("the policy store gives no leases, going on without: %s", error)
            return True
        self._tally.works("store/error", "reading", "writing")
        if not taken:
            self._tokens.pop(job, None)
        return taken

    async def _release(self, job: _Job) -> None:
        token = self._tokens.pop(job, None)
        if self._leases is None or token is None:
            return
        try:
            await self._store_calls.make(self._leases.release, job.origin, token)
        except StoreError as error:
            self._warn("a lease was not given back, it will end by itself: %s", error)

    def _warn(self, message: str, error: StoreError) -> None:
        self._tally.warn("store/error", message, error, part="writing")


def _give_back_late(leases: Leases, origin: Origin, token: str, taken: bool) -> None:
    """Give back a lease that was granted too late, to a renewal that has gone on without it."""
    if taken:
        leases.release(origin, token)
