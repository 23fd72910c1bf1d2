"""What the guard needs of the outside: four small protocols.

Stores are plain synchronous classes; the guard calls them in its runtime's own threads. Nothing here is tied
to an event loop, so the same guard runs under asyncio, under any Twisted reactor and inside mitmproxy.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from robots_guard.core.access import FetchOutcome, Get
from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Decision
from robots_guard.origin import Origin

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Handle(Protocol[T_co]):
    """Work that was spawned and may have ended already."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Runtime(Protocol):
    """How coroutines run here. Work handed to `spawn` must not raise: it returns an outcome."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> Handle[T]:
        """Start work of its own. It may run to its first wait, or to its end, before this returns."""
        ...

    async def wait(self, handle: Handle[T]) -> T:
        """The work's result. Cancelling a waiter never cancels the work."""
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
    """Where policies are kept. Blocking; safe to call from several threads; raises StoreError."""

    def get(self, origin: Origin) -> Policy | None:
        """The policy held for the origin, fresh or not. Damaged or foreign values are None."""
        ...

    def put(self, policy: Policy) -> None:
        """Keep a policy under its origin. One fetched earlier never replaces one fetched later."""
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

    def close(self) -> None:
        """Release the file."""
        ...
