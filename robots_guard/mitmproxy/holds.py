"""Holds: requests that were let pass and wait for their turn, and what is remembered of those put off instead.

The law of this file: a hold belongs to its client. When the client leaves, the request gives its place in line
back at once, and whoever waits behind it moves up. What is remembered is bounded, and forgetting costs a link in
the journal, or begins `max_defer` anew; never a refusal.
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

REMEMBERED = 50_000  # requests put off; about 250 octets each
LONGEST = 86_400.0  # seconds that is remembered

T = TypeVar("T")


class Ended(SettingsError):
    """The proxy has ended what a hook was waiting for."""


class Waits:
    """The waits of hooks before a verdict: for a name that is looked up, or a robots.txt. They end with the proxy.

    `asyncio.timeout` would do the same, but costs each request four times as much.
    """

    def __init__(self) -> None:
        self.ended = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._given_up: set[asyncio.Task[Any]] = set()

    async def of(self, what: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine and return its result. Raises Ended if the proxy ends first."""
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        self._tasks.add(task)
        try:
            return await what
        except asyncio.CancelledError:
            if task in self._given_up and task.uncancel() == 0:
                raise Ended("robots_guard is shutting down") from None
            raise
        finally:
            self._tasks.discard(task)
            self._given_up.discard(task)

    def end(self) -> None:
        """End all waits at once. No wait may begin afterwards."""
        self.ended = True
        for task in self._tasks - self._given_up:
            self._given_up.add(task)
            task.cancel()

    def __len__(self) -> int:
        """The number of hooks that wait."""
        return len(self._tasks)


class Holds:
    """Those who wait, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[Decision]]] = {}

    async def wait(self, client: connection.Client, turn: Coroutine[Any, Any, Decision]) -> Decision | None:
        """What the turn comes to; None if the client left before."""
        task = asyncio.ensure_future(turn)  # of its own: mitmproxy's hook must come to its end even if we give up
        if not task.done():
            await self._until_done(client.id, task)
        return None if task.cancelled() else task.result()

    async def _until_done(self, client: str, task: asyncio.Future[Decision]) -> None:
        held = self._waiting.setdefault(client, set())
        held.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            held.discard(task)
            if not held:
                self._waiting.pop(client, None)

    def give_up(self, client: connection.Client) -> None:
        """The client has gone."""
        for task in self._waiting.pop(client.id, ()):
            task.cancel()

    def end(self) -> None:
        """Give up all waits, because the proxy ends."""
        for tasks in list(self._waiting.values()):
            for task in list(tasks):
                task.cancel()

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))


class PutOff:
    """Requests that were put off: who asks for the same again goes on where he was.

    The same is: from the same address, by the same method, for the same URL. `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._first: TTLCache[bytes, Deferral] = TTLCache(REMEMBERED, LONGEST, clock)

    def linked(self, question: Question) -> Question:
        """The question, with the earlier answer to it if there was one."""
        if not self._first:  # as with most crawls
            return question
        deferral = self._first.get(_key(question))
        return msgspec.structs.replace(question, deferral=deferral) if deferral else question

    def note(self, decision: Decision) -> None:
        """Remember what is put off, and forget it when it is sent. What is dropped in the end stays so for its time."""
        verdict, question = decision.verdict, decision.question
        if verdict.action is Action.DEFER and question.deferral is None:
            self._first[_key(question)] = Deferral(decision.id, decision.at)
        elif question.deferral is not None and decision.is_due:
            self._first.pop(_key(question), None)

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._first)


def _key(question: Question) -> bytes:
    """A few octets, however long the URL."""
    parts = (question.client, question.method, str(question.origin), question.target)
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
