"""The guard of a program without asyncio, or of code that cannot await.

The guard has a thread that runs an event loop. So its methods can be called from any other thread,
also from one in which another event loop is running.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Self, TypeVar

from robots_guard.client.async_guard import admit, answer
from robots_guard.client.background import BackgroundLoop
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.client.permission import Permission
from robots_guard.decisions.component import Component

T = TypeVar("T")


def open_sync(agent: str | None = None, *, config: str | None = None, **settings: Any) -> SyncGuard:
    """Open a guard whose methods wait instead of being awaited. The arguments are those of `open`.

    >>> with robots_guard.open_sync("mybot") as guard:
    ...     permission = guard.can_fetch(site + "/private/x")
    >>> bool(permission), permission.rule, permission.line
    (False, 'Disallow: /private/', 2)
    """
    return SyncGuard(open_gate(Component.PYTHON, agent, config, settings))


class SyncGuard:
    """Answers for one program whether URLs may be requested. Its methods may be called from any
    thread. After a fork, they raise ClosedGuard in the child.

    It is closed at the end of its `with` block, by `close`, or when the program ends.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        try:
            self._background = BackgroundLoop(gate.close)
        except BaseException:
            gate.close_guard()
            raise
        self._finalizer = weakref.finalize(self, self._background.close)

    def can_fetch(self, url: str, *, method: str = "GET") -> Permission:
        """Return whether a URL may be requested now; see `AsyncGuard.can_fetch`."""
        return self.run(partial(answer, self.gate, url, method))

    def admit(self, url: str, *, method: str = "GET") -> SyncPassage:
        """Admit a request that is sent at once; see `AsyncGuard.admit`."""
        return SyncPassage(self, self.run(partial(admit, self.gate, url, method)))

    @contextlib.contextmanager
    def turn(self, url: str, *, method: str = "GET") -> Iterator[SyncPassage]:
        """Admit a request, which is sent in the block; see `AsyncGuard.turn`."""
        passage = self.admit(url, method=method)
        passage.use()
        try:
            yield passage
        finally:
            passage.end()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the thread of this guard, and wait for it. Raises ClosedGuard."""
        return self._background.run(work)

    def close(self) -> None:
        """Close the guard. Requests that wait for their turn end with ClosedGuard."""
        self._finalizer()

    def __enter__(self) -> Self:
        """Return the guard."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the guard."""
        self.close()


class SyncPassage:
    """A passage whose methods wait; see `Passage`."""

    def __init__(self, guard: SyncGuard, passage: Passage) -> None:
        self._guard = guard
        self.passage = passage

    def use(self) -> None:
        """Count the turn from now. Raises RequestRefused if the request may not be sent."""
        self._guard.run(self.passage.use)

    def respond(self, status: int, retry_after: str = "") -> None:
        """Note that the response has begun."""
        self._guard.run(partial(self.passage.respond, status, retry_after))

    def end(self) -> None:
        """Note that the request has ended."""
        self._guard.run(self.passage.end)
