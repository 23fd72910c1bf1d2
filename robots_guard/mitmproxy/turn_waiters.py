"""Turn waiters: permitted requests that wait for their turn, and hooks that wait for a verdict.

Invariant: a wait belongs to its client. When the client disconnects, the request gives up its place
in the queue at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from mitmproxy import connection

from robots_guard.core.verdict import Decision
from robots_guard.errors import SettingsError

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

    async def wait(
        self, client: connection.Client, turn: Coroutine[Any, Any, Decision]
    ) -> Decision | None:
        """Await `turn` and return its decision; None if the client disconnects first."""
        # A task of its own: mitmproxy's hook must end even if the wait is cancelled.
        task = asyncio.ensure_future(turn)
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
