"""The interfaces of the guard to the outside: small protocols, and the clocks.

Features that only stores shared by several processes have (leases, documents by digest) are
separate protocols. Stores are plain synchronous classes; the guard calls them in its runtime's
threads. Nothing here is tied to an event loop, so the same guard runs under asyncio, under any
Twisted reactor and inside mitmproxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from robots_guard.decisions.access import FetchOutcome, Get
from robots_guard.decisions.events import Event
from robots_guard.decisions.lease import Taken
from robots_guard.decisions.pacing import Turn, Wait
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Decision
from robots_guard.origin import Origin

if TYPE_CHECKING:
    from concurrent.futures import Future  # it imports `logging`

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks, in seconds: `now` since 1970, `monotonic` for durations."""

    now: Callable[[], float]
    monotonic: Callable[[], float]


class Handle(Protocol[T_co]):
    """A spawned task, which may have ended already."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Semaphore(Protocol):
    """A semaphore that admits waiters in the order in which they came."""

    def acquire(self) -> Awaitable[Any]:
        """Wait for a free slot and take it."""
        ...

    async def acquire_within(self, seconds: float) -> bool:
        """Wait at most `seconds` for a free slot; return whether it was taken."""
        ...

    def release(self) -> Any:
        """Free the slot."""
        ...


class Runtime(Protocol):
    """Runs coroutines. A coroutine given to `spawn` must not raise: it returns an outcome."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start a task. It may run to its first wait, or to its end, before this returns."""
        ...

    async def wait(self, handle: Handle[T]) -> T:
        """Return the task's result. Cancelling a waiter never cancels the task."""
        ...

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait at most `seconds` for the task; return whether it has ended. Never cancels it."""
        ...

    def semaphore(self, width: int) -> Semaphore:
        """Return a semaphore with `width` slots."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep while other tasks run."""
        ...

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a blocking function in a thread of the guard's own pool. Raises NoThread if there is
        none."""
        ...

    async def result(self, work: Future[T]) -> T:
        """Wait for a submitted call; return its result or raise its exception."""
        ...

    def allow_threads(self, count: int) -> None:
        """Let the pool have `count` threads, if it may not have more already. Starts none."""
        ...

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Submit a call, and wait for its result."""
        ...

    def close(self) -> None:
        """Stop the threads. Pending calls are not waited for."""
        ...


class PolicyStore(Protocol):
    """A store of policies. Blocking; safe to call from several threads; raises StoreError.

    `now` is seconds since 1970.
    """

    def get(self, origin: Origin) -> Policy | None:
        """Return the origin's policy, fresh or not. Raises DamagedValue if the value is no policy
        of this origin."""
        ...

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy under its origin if it may replace the stored one
        (`Policy.may_be_replaced_by`)."""
        ...

    def forget(self, origin: Origin) -> bool:
        """Delete the origin's policy; return whether there was one."""
        ...

    def origins(self) -> Iterable[Origin]:
        """Return every origin that has a policy, in no order."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class Leases(Protocol):
    """Leases: one process's right to renew an origin, which expires. Blocking; raises
    StoreError."""

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        """Take the origin's lease for `seconds` under a token never used before.

        Returns False if another process has it.
        """
        ...

    def take_and_get(self, origin: Origin, token: str, now: float, seconds: float) -> Taken:
        """Do as `take`, and return also the policy that is stored then.

        A damaged policy is no error here, because the lease may have been taken.
        """
        ...

    def release(self, origin: Origin, token: str) -> None:
        """Release the lease taken under the token, if it has not expired."""
        ...


class Documents(Protocol):
    """Bodies of robots.txt by their SHA-256 in hex. They outlive their policies so that a past
    verdict can be replayed.

    Blocking; raises StoreError.
    """

    def document(self, sha256: str) -> bytes | None:
        """Return the body with that digest, or None."""
        ...


class TurnStore(Protocol):
    """The turns of origins, by the rules of `decisions.pacing`. Blocking; raises StoreError."""

    def reserve(
        self, origin: Origin, delay: float, now: Callable[[], float], name: str = ""
    ) -> Turn | Wait:
        """Acquire the origin's turn if `delay` seconds have passed since the last one and no
        earlier waiter is queued; otherwise return the wait.

        Atomic: of several processes that ask at once, one gets the turn. `name` (letters and
        digits) identifies the caller; a caller without a name gets no place in the queue. `now` is
        a clock, which the store reads at the moment it grants the turn, because a store may take
        long to get there. The reply contains that reading (`asked`) and by how much the store's own
        clock is ahead of it (`skew`).
        """
        ...

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        """Count the turn taken at `stamp` from `since` seconds later, unless another has been taken
        since.

        Returns whether it is still the last.
        """
        ...

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        """Grant no turn for `seconds` from `now`. A pause is never shortened."""
        ...


class LocalTurns(TurnStore, Protocol):
    """The turns in this process's memory. Never blocks."""

    def next_turn(self, origin: Origin, delay: float, now: float) -> Turn | Wait:
        """Return what `reserve` would return, without taking the turn."""
        ...

    def is_paused(self, origin: Origin, now: Callable[[], float]) -> bool:
        """Whether a pause set by `note_pause` is not over."""
        ...


class Store(PolicyStore, TurnStore, Leases, Protocol):
    """What a guard needs of a store that processes share.

    `is_local` says whether its calls only use what is on this machine: they then mostly compute.
    """

    is_local: bool


class LocalStore(PolicyStore, LocalTurns, Protocol):
    """A store in this process's memory. Never blocks."""


class SharedStore(Store, Documents, Protocol):
    """A store that processes share, with its documents and a read-only view of an origin's
    turns."""

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """Return when the origin's last turn was taken and when its pause ends, without taking a
        turn.

        These are the first two arguments of `decisions.pacing.next_turn`, in seconds since 1970; 0 means
        never.
        """
        ...


class Fetcher(Protocol):
    """Makes one GET: follows no redirect, caps the body, keeps deadlines. Never raises; a failure
    is an outcome."""

    via: str

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop; return its outcome."""
        ...


def route_of(fetcher: Fetcher) -> str:
    """The route of a fetcher's requests: the parent proxy or local address that its `route` names. It
    is empty for the direct route, and for one that is chosen for each fetch."""
    route: str = getattr(fetcher, "route", "")
    return route


#: How much an audit log records. Each level has what the one before it has.
AuditLevel = Literal["refusals", "summary", "all", "evidence"]


class AuditLog(Protocol):
    """The audit log, in which a decision is recorded before the guard returns it."""

    def write(self, decision: Decision) -> None:
        """Record a decision. Raises AuditLogError if that fails."""
        ...

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:
        """Record an event that is not a decision. May be called from any thread.

        Raises AuditLogError if that fails; the event then counts as lost unless the caller
        `is_tried_again`.
        """
        ...

    def close(self) -> None:
        """Release the file."""
        ...
