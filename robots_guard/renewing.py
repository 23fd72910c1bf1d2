"""Renewing policies: drives the machines `core.flight` and `core.renewal` over the ports.

One renewal an origin runs at a time, as work of its own: whoever asks waits for it, each as long as he may, and
nobody's cancellation is the others'. Across processes the store's lease keeps it one. A lease is longer than a
fetch, so it ends only under a holder that has died, and is waited for no longer than twice its time; without a
store, or with a broken one, there is one renewal a process.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import assert_never

from robots_guard.core import flight, renewal
from robots_guard.core.access import Failed, Failure, Fetched, FetchOutcome, Get, Limits
from robots_guard.core.check import Unanswered
from robots_guard.core.events import FetchMade
from robots_guard.core.freshness import asked_to_wait
from robots_guard.core.policy import Policy
from robots_guard.errors import StoreError
from robots_guard.holding import Holding
from robots_guard.origin import Origin, split_url
from robots_guard.ports import Clocks, Fetcher, Handle, Leases, Runtime
from robots_guard.rep.dialect import Dialect
from robots_guard.tally import Tally

log = logging.getLogger("robots_guard")

FETCHES = 64  # at once
WAITERS = 10_000
MARGIN = 5.0  # seconds a lease is longer than a fetch, for putting what was fetched


class _Ending(Exception):
    """The guard is about to be closed: nobody waits for this any more."""


class Renewals:
    """All renewals of one guard, by origin."""

    def __init__(
        self,
        *,
        holding: Holding,
        leases: Leases | None,
        runtime: Runtime,
        clocks: Clocks,
        limits: Limits,
        dialect_of: Callable[[Origin], Dialect],
        tally: Tally,
        hold_off: Callable[[Origin, float], Awaitable[None]],
    ) -> None:
        self._holding = holding
        self._leases = leases
        self._runtime = runtime
        self._clocks = clocks
        self._limits = limits
        self._dialect_of = dialect_of
        self._tally = tally
        self._hold_off = hold_off
        self._lease = limits.total + MARGIN  # seconds
        self._gate = runtime.gate(FETCHES)
        self._running: dict[Origin, Handle[Policy]] = {}
        self._tokens: dict[Origin, str] = {}  # of the leases we hold
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
        handle = self._runtime.spawn(self._renewal(origin, held, fetcher))
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

    async def settle(self) -> None:
        """Let what is being fetched come to its end; what has not begun to fetch is given up."""
        self._ending = True
        for handle in list(self._running.values()):
            await self._runtime.wait(handle)

    def close(self) -> None:
        """Give back the leases of renewals that will not end any more."""
        for origin, token in self._tokens.items():
            with contextlib.suppress(StoreError):
                assert self._leases is not None
                self._leases.release(origin, token)
        self._tokens.clear()

    # -- driving one --------------------------------------------------------------------------------------

    async def _renewal(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        """Work shared by all askers: does not raise, and is forgotten when it ends, however it ends."""
        try:
            try:
                policy = await self._fly(origin, held, fetcher)
            except _Ending as error:
                policy = self._failed(origin, held, fetcher, error)
            except Exception as error:
                log.exception("renewing the policy of %s failed", origin)
                policy = self._failed(origin, held, fetcher, error)
            await self._release(origin)  # given up halfway, it is left to `close`, or to its end
            return policy
        finally:
            self._running.pop(origin, None)

    def _failed(self, origin: Origin, held: Policy | None, fetcher: Fetcher, error: Exception) -> Policy:
        failed = Failed(failure=Failure.INTERNAL, detail=type(error).__name__)
        settled = renewal.begin(origin, held, fetcher.via).next(failed, self._clocks.now())
        assert isinstance(settled, renewal.Settled)
        self._holding.keep_near(settled.policy)
        return settled.policy

    async def _fly(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        """Look, take the lease, look again, fetch, put. Only who fetches, or is about to, is inside the gate."""
        state: flight.State = flight.begin(held, self._dialect_of(origin), 2 * self._lease)
        inside = False
        try:
            while True:
                match state:
                    case flight.Taking():
                        await self._gate.acquire()
                        inside = True
                        if self._ending:
                            raise _Ending
                        state = state.next(await self._take(origin))
                    case flight.Looking():
                        state = state.next(await self._holding.far(origin), self._clocks.now())
                    case flight.Waiting():
                        self._gate.release()
                        inside = False
                        await self._runtime.sleep(state.pause)
                        state = state.next()
                    case flight.Found():
                        return state.policy
                    case flight.Granted():
                        policy = await self._fetch(origin, state.held, fetcher)
                        return await self._holding.keep(policy)
                    case _:
                        assert_never(state)
        finally:
            if inside:
                self._gate.release()

    async def _fetch(self, origin: Origin, held: Policy | None, fetcher: Fetcher) -> Policy:
        deadline = self._clocks.monotonic() + self._limits.total
        state: renewal.Fetching | renewal.Settled = renewal.begin(origin, held, fetcher.via)
        while True:
            match state:
                case renewal.Fetching():
                    self._tally.counts["fetch/count"] += 1
                    get, began = self._get(state, deadline), self._clocks.monotonic()
                    outcome = await fetcher.fetch(get)
                    await self._note(origin, get, outcome, fetcher.via, began)
                    await self._heed(outcome, state.url)
                    state = state.next(outcome, self._clocks.now())
                case renewal.Settled():
                    return state.policy
                case _:
                    assert_never(state)

    async def _note(self, origin: Origin, get: Get, outcome: FetchOutcome, via: str, began: float) -> None:
        """Each hop is in the journal."""
        now, elapsed = self._clocks.now(), self._clocks.monotonic() - began
        made = FetchMade(at=now, origin=origin, get=get, outcome=outcome, via=via, elapsed=elapsed)
        await self._runtime.in_thread(self._tally.note, made)

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
        return Get(url=state.url, headers=state.conditions, limits=limits, public_only=state.public_only)

    # -- leases -------------------------------------------------------------------------------------------

    async def _take(self, origin: Origin) -> bool:
        """Whether we may fetch: the lease is ours, or there are none to be had."""
        if self._leases is None:
            return True
        token = secrets.token_hex(8)
        try:
            taken = await self._runtime.in_thread(self._leases.take, origin, token, self._clocks.now(), self._lease)
        except StoreError as error:
            self._tally.warn("store/error", "the policy store gives no leases, going on without: %s", error)
            return True
        if taken:
            self._tokens[origin] = token
        return taken

    async def _release(self, origin: Origin) -> None:
        token = self._tokens.pop(origin, None)
        if self._leases is None or token is None:
            return
        try:
            await self._runtime.in_thread(self._leases.release, origin, token)
        except StoreError as error:
            self._tally.warn("store/error", "a lease was not given back, it will end by itself: %s", error)
