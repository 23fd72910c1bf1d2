"""A program that uses the Python API, for mypy: it is checked with the package, and never run."""

from __future__ import annotations

from typing import assert_type

import robots_guard
from robots_guard import Permission, RequestDeferred, SyncGuard


async def ask(url: str) -> bool:
    """Ask as docs/python.md does."""
    assert_type(robots_guard.__version__, str)
    async with robots_guard.open("mybot", store="memory:") as guard:
        permission = await guard.can_fetch(url)
        assert_type(permission, Permission)
        assert_type(permission.line, int | None)
        assert_type(await guard.admit(url), robots_guard.Passage)
        async with guard.turn(url) as passage:
            await passage.respond(200)
        return bool(permission)


def ask_sync(guard: SyncGuard, url: str) -> float:
    """Ask without asyncio."""
    try:
        with guard.turn(url) as passage:
            passage.respond(429, retry_after="5")
    except RequestDeferred as refusal:
        return refusal.retry_after
    return guard.can_fetch(url).wait or 0.0
