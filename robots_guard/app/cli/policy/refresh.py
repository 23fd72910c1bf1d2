"""The policies of many origins, fetched concurrently and stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from robots_guard.app.cli.ask.guard_answers import guard_of
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.policy import Policy
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin

AT_ONCE = 64  # origins fetched concurrently
WINDOW = 16 * AT_ONCE  # policies that wait for one before them in the list


def fetch_policies(
    settings: Settings,
    origins: Iterable[Origin],
    on_policy: Callable[[Policy], None],
    *,
    renew: bool,
) -> int:
    """Get the origins' policies, and pass them to `on_policy` in the origins' order. Returns how many calls of the
    store failed."""
    with guard_of(settings) as guard:
        asyncio.run(fetch_all(guard, origins, on_policy, renew=renew))
    return guard.counts["store/error"]


async def fetch_all(
    guard: Guard, origins: Iterable[Origin], on_policy: Callable[[Policy], None], *, renew: bool
) -> None:
    """Get the origins' policies, `AT_ONCE` concurrently; pass them to `on_policy` in the origins' order.

    A slow origin delays the output of those behind it, but not their fetches until `WINDOW` wait.
    """
    semaphore = asyncio.Semaphore(AT_ONCE)
    window: deque[asyncio.Task[Policy]] = deque()

    async def fetch(origin: Origin) -> Policy:
        async with semaphore:
            return await guard.policy(origin, renew=renew)

    for origin in origins:
        window.append(asyncio.ensure_future(fetch(origin)))
        if len(window) == WINDOW:
            on_policy(await window.popleft())
    while window:
        on_policy(await window.popleft())
