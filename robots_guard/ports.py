"""What the guard needs of the outside: small protocols, and the clocks.

What only stores shared by several processes can do (leases, documents by digest) are protocols of their own.
Stores are plain synchronous classes; the guard calls them in its runtime's own threads. Nothing here is tied
to an event loop, so the same guard runs under asyncio, under any Twisted reactor and inside mitmproxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from robots_guard.core.access import FetchOutcome, Get
from robots_guard.core.events import Event
from robots_guard.core.pacing import Turn
from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Decision
from robots_guard.origin import Origin

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Where time enters. Both in seconds: `now` since 1970, `monotonic` for durations."""

    now: Callable[[], float]
    monotonic: Callable[[], float]


class Handle(Protocol[T_co]):
    """Work that was spawned and may have ended already."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Gate(Protocol):
    """Lets so many in at a time; the others wait their turn."""

    def acquire(self) -> Awaitable[Any]:
        """Wait to be let in."""
        ...

    async def acquire_within(self, seconds: float) -> bool:
        """Wait to be let in, but no longer than `seconds`; whether that came true."""
        ...

    def release(self) -> Any:
        """Let the next one in."""
        ...


class Runtime(Protocol):
    """How coroutines run here. Work handed to `spawn` must not raise: it returns an outcome."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start work of its own. It may run to its first wait, or to its end, before this returns."""
        ...

    async def wait(self, handle: Handle[T]) -> T:
        """The work's result. Cancelling a waiter never cancels the work."""
        ...

    async def wait_at_most(self, handle: Handle[Any], seconds: float) -> bool:
        """Wait for the work to end, but no longer than `seconds`; whether it has ended. Never cancels it."""
        ...

    def gate(self, width: int) -> Gate:
        """A gate for `width` at a time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        ...

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a blocking function in a thread of the guard's own pool."""
        ...

    def close(self) -> None:
        """Let the threads go. Work under way is not waited for."""
        ...


class PolicyStore(Protocol):
    """Where policies are kept. Blocking; safe to call from several threads; raises StoreError.

    `now` is seconds since 1970.
    """

    def get(self, origin: Origin) -> Policy | None:
        """The policy held for the origin, fresh or not. Raises DamagedValue for what is no policy of this origin."""
        ...

    def put(self, policy: Policy, now: float) -> None:
        """Keep a policy under its origin, if what is held gives way to it (`Policy.gives_way_to`)."""
        ...

    def forget(self, origin: Origin) -> bool:
        """Drop what is held for the origin; whether there was anything."""
        ...

    def origins(self) -> Iterable[Origin]:
        """Every origin held, in no order."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class Leases(Protocol):
    """One process's right to renew an origin, which ends by itself. Blocking; raises StoreError."""

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        """Take the origin's lease for so long, under a token never used before; False if another holds it."""
        ...

    def release(self, origin: Origin, token: str) -> None:
        """Give back the lease taken under the token, if it has not ended."""
        ...


class Documents(Protocol):
    """Bodies of robots.txt by their SHA-256 in hex, kept beyond their policies, so that a past verdict can be
    replayed. Blocking; raises StoreError."""

    def document(self, sha256: str) -> bytes | None:
        """The body of that digest, or None."""
        ...

    def purge(self, now: float, keep: Iterable[str] = ()) -> int:
        """Remove what was not used within the store's retention; how many documents. `keep` are digests that a
        journal refers to: they count as used now."""
        ...


class TurnStore(Protocol):
    """Whose turn it is to send a request to an origin, by `core.pacing`. Blocking; raises StoreError."""

    def reserve(self, origin: Origin, delay: float, now: Callable[[], float], name: str = "") -> Turn:
        """Take the origin's turn if the last was `delay` seconds ago and no process waits for it that has come before;
        else, how long that will take. Atomic: of many processes that ask at once, one takes it. `name` (letters and
        digits) tells askers apart; one without has no place among those who wait. `now` is a clock: the store reads
        it where it grants the turn, for a store may be long in coming to that, and says what it read (`asked`), and
        by how much a clock of its own is ahead (`skew`)."""
        ...

    def count_from(self, origin: Origin, stamp: float, since: float) -> bool:
        """The turn taken at `stamp`, if no other has been taken since, counts from `since` seconds later. Returns
        whether it is still the last."""
        ...

    def hold_off(self, origin: Origin, seconds: float, now: float) -> None:
        """No turn before so many seconds from now; never earlier than was said before."""
        ...


class NearTurns(TurnStore, Protocol):
    """Turns in memory."""

    def next_turn(self, origin: Origin, delay: float, now: float) -> Turn:
        """What `reserve` would say; nothing is taken."""
        ...

    def is_held_off(self, origin: Origin, now: float) -> bool:
        """Whether `hold_off` still holds."""
        ...


class Store(PolicyStore, TurnStore, Protocol):
    """What a guard needs at least."""


class NearStore(PolicyStore, NearTurns, Protocol):
    """What never blocks."""


class SharedStore(Store, Leases, Documents, Protocol):
    """What processes share: all four. And, for who only looks, when an origin's next turn is."""

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """When the origin's last turn was taken, and until when it wants to be left alone: the first two arguments
        of `core.pacing.next_turn`, in seconds since 1970; 0 for never. Takes nothing."""
        ...


class Fetcher(Protocol):
    """One GET: no redirect followed, body capped, deadlines kept. Never raises; a failure is an outcome."""

    via: str

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop."""
        ...


class Journal(Protocol):
    """Where decisions are recorded before they are released."""

    def write(self, decision: Decision) -> None:
        """Record a decision. Raises JournalError when it could not be."""
        ...

    def note(self, event: Event) -> None:
        """Record something that is no decision. May be called from any thread. Raises JournalError."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...
