"""Waits: requests are held until they have a verdict, or their turn.

Invariant: the number of waits is bounded, and all of them end at once when the integration shuts
down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from robots_guard.errors import RobotsGuardError, SettingsError

MAX_HELD = 10_000  # requests that are held at a time; each costs a task and a client's connection

T = TypeVar("T")


class ShuttingDown(SettingsError):
    """The integration is shutting down and has ended what a request was waiting for."""


class Abandoned(RobotsGuardError):
    """The client that a request came from has left."""


class NoRoomToWait(RobotsGuardError):
    """So many requests are held already that no further one may wait."""


class Waits:
    """The waits of one integration; at most `most` at a time.

    `asyncio.timeout` would end them, too, but costs each request four times as much.
    """

    def __init__(self, most: int = MAX_HELD) -> None:
        self.ended = False
        self._most = most
        self._tasks: set[asyncio.Task[Any]] = set()
        self._by_owner: dict[str, set[asyncio.Task[Any]]] = {}
        self._reasons: dict[asyncio.Task[Any], RobotsGuardError] = {}  # of those that are ended

    async def run(self, coroutine: Coroutine[Any, Any, T], owner: str = "") -> T:
        """Await a coroutine and return its result. `owner` identifies the client that waits.

        Raises ShuttingDown if the integration ends first, Abandoned if the client leaves, and
        NoRoomToWait if too many wait already.
        """
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        if self.ended or len(self._tasks) >= self._most:
            coroutine.close()
            raise self._objection()
        self._tasks.add(task)
        self._by_owner.setdefault(owner, set()).add(task)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if task in self._reasons and task.uncancel() == 0:
                raise self._reasons[task] from None
            raise
        finally:
            self._reasons.pop(task, None)
            self._discard(task, owner)

    def _discard(self, task: asyncio.Task[Any], owner: str) -> None:
        self._tasks.discard(task)
        tasks = self._by_owner[owner]
        tasks.discard(task)
        if not tasks:
            del self._by_owner[owner]

    def _objection(self) -> RobotsGuardError:
        if self.ended:
            return ShuttingDown("robots_guard is shutting down")
        return NoRoomToWait(f"{self._most} requests are held already")

    def abandon(self, owner: str) -> None:
        """End the waits of a client that has left."""
        self._end(self._by_owner.get(owner, ()), Abandoned("the client has left"))

    def end(self) -> None:
        """End all waits at once. No wait may begin afterwards."""
        self.ended = True
        self._end(self._tasks, ShuttingDown("robots_guard is shutting down"))

    def _end(self, tasks: Iterable[asyncio.Task[Any]], reason: RobotsGuardError) -> None:
        for task in tasks:
            if task not in self._reasons:
                self._reasons[task] = reason
                task.cancel()

    def __len__(self) -> int:
        """The number of requests that are held."""
        return len(self._tasks)
