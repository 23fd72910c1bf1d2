"""A circuit breaker: after a failure it blocks calls for a while, then lets one probe at a time
through.

closed      every call goes through
open        after a failure: every call fails at once, for 1 s, then 2, 4, ... 30 s, each shortened at random
half open   after that: one call probes, the others still fail at once
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

from robots_guard.errors import StoreError

FIRST_PAUSE = 1.0  # seconds it is open after the first failure
MAX_PAUSE = 30.0  # seconds it is open at most
# the fraction by which a pause may be shortened, so that processes do not all retry at once
JITTER = 0.25


class CircuitOpen(StoreError):
    """The breaker blocks the call because of a recent failure.

    The message is that of the failure. It does not give the time of the next attempt, which is of
    no use to a command that ends before it.
    """

    def __init__(self, why: str, seconds: float) -> None:
        super().__init__(why)
        self.seconds = seconds  # until the next attempt; 0 while another call is probing


class Breaker:
    """A circuit breaker, initially closed. Safe to use from several threads, and after a fork.

    `random` returns numbers in [0, 1).
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._monotonic = monotonic
        self._random = random
        self._failures = 0  # consecutive
        self._open_until = float("-inf")
        self._why = ""
        self._reset_after_fork()

    def _reset_after_fork(self) -> None:
        """Create an unlocked lock: a forked child has none of the threads that could release the
        parent's.
        """
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._probing = False

    def _own_lock(self) -> threading.Lock:
        """Return the lock of this process."""
        if self._pid != os.getpid():
            self._reset_after_fork()
        return self._lock

    def check(self) -> None:
        """Raise CircuitOpen if `attempt` would raise it now."""
        with self._own_lock():
            self._raise_if_open()

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Guard a call with the breaker. Raises CircuitOpen if the call is blocked.

        If the block succeeds, the breaker closes. If it raises, nothing changes unless the caller
        calls `trip`.
        """
        with self._own_lock():
            self._raise_if_open()
            is_probe = self._probing = self._failures > 0
        try:
            yield
        except BaseException:
            self._end(is_probe, succeeded=False)
            raise
        self._end(is_probe, succeeded=True)

    def trip(self, why: str) -> None:
        """Open the breaker. While it is open, further calls have no effect: an attempt that began
        earlier and fails late does not prolong the pause."""
        with self._own_lock():
            now = self._monotonic()
            if now < self._open_until:
                return
            pause = min(FIRST_PAUSE * 2.0**self._failures, MAX_PAUSE)
            self._why = why
            self._failures = min(self._failures + 1, 10)
            self._open_until = now + pause * (1.0 - JITTER * self._random())

    def _raise_if_open(self) -> None:
        left = self._open_until - self._monotonic()
        if left > 0:
            raise CircuitOpen(self._why, left)
        if self._probing:
            raise CircuitOpen(self._why, 0.0)

    def _end(self, is_probe: bool, *, succeeded: bool) -> None:
        if not is_probe:
            return
        with self._own_lock():
            self._probing = False
            if succeeded:
                self._failures = 0
