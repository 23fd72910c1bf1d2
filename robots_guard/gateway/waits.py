"""Waits: what requests are held for before they are answered, a verdict or a turn.

Invariant: the number of waits is bounded, and all of them end at once when the integration shuts
down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from robots_guard.errors import RobotsGuardError, SettingsError

MAX_HELD = 10_000  # requests that are held at a time; each costs a task and a client's connection

T = TypeVar("T")


class ShuttingDown(SettingsError):
    """The integration is shutting down and has ended what a request was waiting for."""


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
        self._cancelled: set[asyncio.Task[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine and return its result. Raises ShuttingDown if the integration ends
        first, and NoRoomToWait if too many wait already."""
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        if self.ended or len(self._tasks) >= self._most:
            coroutine.close()
            raise self._objection()
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

    def _objection(self) -> RobotsGuardError:
        if self.ended:
            return ShuttingDown("robots_guard is shutting down")
        return NoRoomToWait(f"{self._most} requests are held already")

    def end(self) -> None:
        """End all waits at once. No wait may begin afterwards."""
        self.ended = True
        for task in self._tasks - self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def __len__(self) -> int:
        """The number of requests that are held."""
        return len(self._tasks)
