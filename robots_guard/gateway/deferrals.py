"""Deferrals: the memory of deferred requests, for clients that repeat them.

The memory is bounded: evicting an entry loses a link in the log or restarts the `max_defer` period,
but never causes a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from cachetools import TTLCache

from robots_guard.decisions.verdict import Action, Decision, Deferral, Question

MAX_REMEMBERED = 50_000  # deferred requests; about 250 bytes each
REMEMBERED_FOR = 86_400.0  # seconds after the first deferral


class DeferralMemory:
    """Links a repeated request to its first deferral, so that `max_defer` counts from there.

    A request is a repetition if client address, method and URL are the same. `clock` is monotonic,
    in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._first: TTLCache[bytes, Deferral] = TTLCache(MAX_REMEMBERED, REMEMBERED_FOR, clock)
        # Every request comes to `link`, and the length of a TTLCache is not free.
        self._is_empty = True

    def link(self, question: Question) -> Question:
        """Return the question, with the earlier deferral if there was one."""
        if self._is_empty:  # as in most crawls
            return question
        deferral = self._first.get(_key(question))
        if deferral is None:
            self._is_empty = not self._first
            return question
        return msgspec.structs.replace(question, deferral=deferral)

    def remember(self, decision: Decision) -> None:
        """Remember a deferred request, and forget it when it is sent. One that is dropped expires by itself."""
        verdict, question = decision.verdict, decision.question
        if verdict.action is Action.DEFER and question.deferral is None:
            self._first[_key(question)] = Deferral(decision.id, decision.at)
            self._is_empty = False
        elif question.deferral is not None and decision.is_due:
            self._first.pop(_key(question), None)

    def __len__(self) -> int:
        """The number of deferrals that are remembered."""
        return len(self._first)


def _key(question: Question) -> bytes:
    """A key of 16 bytes, however long the URL is."""
    parts = (question.client, question.method, str(question.origin), question.target)
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
