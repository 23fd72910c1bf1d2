"""Answers and policies of the guard, which uses the store, the network and the audit log, as in an integration.

A command imports this module only when it needs a guard, because the HTTP client and asyncio take long to import: an
answer from a file needs neither.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from robots_guard.app.cli.ask.answers import Answer, answer_of, answer_without_origin
from robots_guard.configuration.settings import Settings, direct_fetcher, open_guard
from robots_guard.decisions.check import read_url
from robots_guard.decisions.component import Component
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Question, Verdict
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import Origin

AT_ONCE = 32  # URLs judged concurrently
FETCHES = 64  # origins fetched concurrently
WINDOW = 16 * FETCHES  # policies that wait for one before them in the list


def answer(url: str, settings: Settings) -> Answer:
    """Return the guard's answer for one URL."""

    async def ask() -> Answer:
        with guard_of(settings) as guard:
            return await _ask(guard, url, settings.agent)

    return asyncio.run(ask())


def answer_each(urls: Sequence[str], settings: Settings, report: Callable[[Answer], None]) -> None:
    """Pass the guard's answers to `report`, in the order of the URLs; a bounded number are worked on concurrently."""
    asyncio.run(_answer_each(urls, settings, report))


async def _answer_each(
    urls: Sequence[str], settings: Settings, report: Callable[[Answer], None]
) -> None:
    semaphore = asyncio.Semaphore(AT_ONCE)

    async def ask(url: str) -> Answer:
        async with semaphore:
            return await _ask(guard, url, settings.agent)

    with guard_of(settings) as guard:
        tasks = [asyncio.ensure_future(ask(url)) for url in urls]
        for task in tasks:
            report(await task)


def fetched_policy(origin: Origin, settings: Settings) -> Policy:
    """Fetch an origin's policy, even if a fresh one is stored."""

    async def fetch() -> Policy:
        with guard_of(settings) as guard:
            return await guard.policy(origin, renew=True)

    return asyncio.run(fetch())


async def _ask(guard: Guard, url: str, agent: str) -> Answer:
    """Return the guard's answer. The guard may fetch a robots.txt, and records its decision.

    A URL without an origin needs no guard: its answer has no decision, and nothing is recorded.
    """
    read = read_url(url)
    if isinstance(read, Verdict):
        return answer_without_origin(url, read)
    origin, target = read
    question = Question(origin=origin, target=target, agent=agent)
    decision = guard.peek(question) or await guard.check(question)
    return answer_of(decision)


@contextlib.contextmanager
def guard_of(settings: Settings) -> Iterator[Guard]:
    """Open a guard for a command, and close it afterwards."""
    fetcher = direct_fetcher(settings, trusts_caller=True)
    guard = open_guard(settings, component=Component.CLI, runtime=AsyncioRuntime(), fetcher=fetcher)
    try:
        yield guard
    finally:
        guard.close()


# -- the policies of many origins ------------------------------------------------------------------


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
    """Get the origins' policies, `FETCHES` concurrently; pass them to `on_policy` in the origins' order.

    A slow origin delays the output of those behind it, but not their fetches until `WINDOW` wait.
    """
    semaphore = asyncio.Semaphore(FETCHES)
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
