"""Turn waiters: permitted requests that wait for their turn, and the memory of deferred ones.

Invariant: a wait belongs to its client. When the client disconnects, the request gives up its place
in the queue at once. The memory is bounded; forgetting costs a link in the audit log, or starts
`max_defer` anew, but never causes a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from cachetools import TTLCache
from mitmproxy import connection

from robots_guard.core.verdict import Action, Decision, Deferral, Question
from robots_guard.errors import SettingsError

REMEMBERED = 50_000  # deferred requests; about 250 bytes each
LONGEST = 86_400.0  # seconds for which a deferral is remembered

T = TypeVar("T")


class ShuttingDown(SettingsError):
    """The proxy is shutting down and has ended what a hook was waiting for."""


class HookWaits:
    """What hooks wait for before a verdict: a name lookup or a robots.txt. The waits end with the proxy.

    `asyncio.timeout` would do the same, but costs each request four times as much.
    """

    def __init__(self) -> None:
        self.ended = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine and return its result. Raises ShuttingDown if the proxy ends first."""
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        self._tasks.add(task)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if task in self._cancelled and task.uncancel() == 0:
                raise ShuttingDown("robots_guard is shutting down") from None
            raise
        finally:
            self._tasks.discard(task)
            self._cancelled.discard(task)

    def end(self) -> None:
        """End all waits at once. No wait may begin afterwards."""
        self.ended = True
        for task in self._tasks - self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def __len__(self) -> int:
        """The number of hooks that wait."""
        return len(self._tasks)


class TurnWaiters:
    """The requests that wait for a turn, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[Decision]]] = {}

    async def wait(self, client: connection.Client, turn: Coroutine[Any, Any, Decision]) -> Decision | None:
        """Await `turn` and return its decision; None if the client disconnects first."""
        task = asyncio.ensure_future(turn)  # a task of its own: mitmproxy's hook must end even if the wait is cancelled
        if not task.done():
            await self._until_done(client.id, task)
        if task.cancelled():
            return None
        return task.result()

    async def _until_done(self, client: str, task: asyncio.Future[Decision]) -> None:
        tasks = self._waiting.setdefault(client, set())
        tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            tasks.discard(task)
            if not tasks:
                self._waiting.pop(client, None)

    def cancel(self, client: connection.Client) -> None:
        """Cancel the waits of a client that has disconnected."""
        for task in self._waiting.pop(client.id, ()):
            task.cancel()

    def end(self) -> None:
        """Cancel all waits because the proxy ends."""
        for tasks in list(self._waiting.values()):
            for task in list(tasks):
                task.cancel()

    def __len__(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._waiting.values()))


class DeferralMemory:
    """Links a repeated request to its first deferral, so that `max_defer` counts from there.

    A request is a repetition if client address, method and URL are the same. `clock` is monotonic,
    in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._first: TTLCache[bytes, Deferral] = TTLCache(REMEMBERED, LONGEST, clock)

    def link(self, question: Question) -> Question:
        """Return the question, with the earlier deferral if there was one."""
        if not self._first:  # as in most crawls
            return question
        deferral = self._first.get(_key(question))
        if deferral is None:
            return question
        return msgspec.structs.replace(question, deferral=deferral)

    def remember(self, decision: Decision) -> None:
        """Remember a deferred request, and forget it when it is sent. One that is dropped expires by itself."""
        verdict, question = decision.verdict, decision.question
        if verdict.action is Action.DEFER and question.deferral is None:
            self._first[_key(question)] = Deferral(decision.id, decision.at)
        elif question.deferral is not None and decision.is_due:
            self._first.pop(_key(question), None)

    def __len__(self) -> int:
        """The number of deferrals that are remembered."""
        return len(self._first)


def _key(question: Question) -> bytes:
    """A key of 16 bytes, however long the URL is."""
    parts = (question.client, question.method, str(question.origin), question.target)
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
