"""A circuit breaker: after a failure no calls are made for a while, then one caller at a time tries.

closed      every caller passes
open        after a failure: every caller fails at once, for 1 s, then 2, 4, ... 30 s, each shortened at random
half open   after that: one caller tries, the others still fail at once
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

from robots_guard.errors import StoreError

FIRST = 1.0  # seconds it is open after the first failure
LONGEST = 30.0  # seconds it is open at most
JITTER = 0.25  # the share of that time by which it may be shorter, so that processes do not all try at once


class LeftAlone(StoreError):
    """What the breaker guards failed just now, and is not tried. The message is that of the failure: when it is tried
    again does not concern a command that ends before."""

    def __init__(self, why: str, seconds: float) -> None:
        super().__init__(why)
        self.seconds = seconds  # until it is tried again; 0 while another call tries it


class Breaker:
    """Closed at first. Safe to use from several threads, and after a fork.

    `random` returns numbers of at least 0 and below 1.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, random: Callable[[], float] = random.random
    ) -> None:
        self._monotonic = monotonic
        self._random = random
        self._failures = 0  # in succession
        self._open_until = float("-inf")
        self._why = ""
        self._become_ours()

    def _become_ours(self) -> None:
        """Begin with a lock that no thread holds: a forked child has none of its parent's threads."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._trying = False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._pid != os.getpid():
            self._become_ours()
        with self._lock:
            yield

    def check(self) -> None:
        """Raise LeftAlone where `attempt` would."""
        with self._alone():
            self._refuse()

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Try what the breaker guards. Raises LeftAlone if no attempt may be made now.

        An attempt that ends well closes the breaker. One that raises changes nothing, unless its caller calls `trip`.
        """
        with self._alone():
            self._refuse()
            probes = self._trying = self._failures > 0
        try:
            yield
        except BaseException:
            self._end(probes, well=False)
            raise
        self._end(probes, well=True)

    def trip(self, why: str) -> None:
        """Open the breaker. If an attempt that began before fails, it does not stay open longer."""
        with self._alone():
            now = self._monotonic()
            if now < self._open_until:
                return
            longest = min(FIRST * 2.0**self._failures, LONGEST)
            self._why = why
            self._failures = min(self._failures + 1, 10)
            self._open_until = now + longest * (1.0 - JITTER * self._random())

    def _refuse(self) -> None:
        left = self._open_until - self._monotonic()
        if left > 0:
            raise LeftAlone(self._why, left)
        if self._trying:
            raise LeftAlone(self._why, 0.0)

    def _end(self, probes: bool, *, well: bool) -> None:
        if not probes:
            return
        with self._alone():
            self._trying = False
            if well:
                self._failures = 0
