"""Waits: requests are held until they have a verdict, until their robots.txt is tried again, or until
their turn.

Most clients do not try a deferred request again, but all of them wait for a slow site. So a request
is held for as long as clients wait anyway (`hold_max`).

Invariant: the number of waits is bounded, and no client takes so many of them that another one
finds no place. All waits of a client end when it leaves, and all of them when the integration shuts
down.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
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
    """The waits of one integration: at most `most` at a time, and never more of one client than are
    left for the others.

    `asyncio.timeout` would end them, too, but costs each request four times as much.
    """

    def __init__(self, most: int = MAX_HELD) -> None:
        self.ended = False
        self._most = most
        self._tasks: set[asyncio.Task[Any]] = set()
        self._by_client: Counter[str] = Counter()
        self._by_owner: dict[str, set[asyncio.Task[Any]]] = {}
        self._reasons: dict[asyncio.Task[Any], RobotsGuardError] = {}  # why a task was ended

    def has_room(self, client: str) -> bool:
        """Whether another request of a client, given by its address, may wait for long.

        It may if the client has fewer waits than there are places left. So one client gets at most
        half of all places, and the next one half of the rest.
        """
        return self._by_client[client] < self._most - len(self._tasks)

    async def run(
        self, coroutine: Coroutine[Any, Any, T], client: str, owners: Sequence[str] = ()
    ) -> T:
        """Await a coroutine for a client, given by its address, and return its result. The wait ends
        with any of its `owners`, such as the client's connection.

        Raises ShuttingDown if the integration ends first, Abandoned if an owner is abandoned, and
        NoRoomToWait if too many wait already.
        """
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        if self.ended or len(self._tasks) >= self._most:
            coroutine.close()
            raise self._objection()
        self._tasks.add(task)
        self._by_client[client] += 1
        for owner in owners:
            self._by_owner.setdefault(owner, set()).add(task)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if task in self._reasons and task.uncancel() == 0:
                raise self._reasons[task] from None
            raise
        finally:
            self._reasons.pop(task, None)
            self._discard(task, client, owners)

    def _discard(self, task: asyncio.Task[Any], client: str, owners: Sequence[str]) -> None:
        self._tasks.discard(task)
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
        for owner in owners:
            tasks = self._by_owner[owner]
            tasks.discard(task)
            if not tasks:
                del self._by_owner[owner]

    def _objection(self) -> RobotsGuardError:
        if self.ended:
            return ShuttingDown("robots_guard is shutting down")
        return NoRoomToWait(f"{self._most} requests are held already")

    def abandon(self, owner: str) -> None:
        """End the waits of a client's connection or request that has ended early."""
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
