"""Waits for what another task, thread or process does, by looking again until it has happened."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

WITHIN = 60.0  # seconds that a loaded machine may take
EVERY = 0.01  # seconds between two looks
NOT_YET = "it has not happened within {:g} s"


def eventually(
    condition: Callable[[], Answer],
    within: float = WITHIN,
    despite: type[Exception] | tuple[type[Exception], ...] = (),
) -> Answer:
    """Return the first true answer of a condition. Having none in time fails the test.

    An exception named by `despite` counts as "not yet".
    """
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(despite):
            if answer := condition():
                return answer
        assert time.monotonic() < deadline, NOT_YET.format(within)
        time.sleep(EVERY)


async def until(condition: Callable[[], Answer], within: float = WITHIN) -> Answer:
    """Do the same in a coroutine, while the event loop runs on."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        assert time.monotonic() < deadline, NOT_YET.format(within)
        await asyncio.sleep(0.001)
    return answer
