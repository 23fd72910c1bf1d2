"""Hooks of the enforcer, called as mitmproxy's addon manager calls them."""

from __future__ import annotations

from collections.abc import Awaitable


async def finish(hook: Awaitable[None] | None) -> None:
    """Await what a hook has returned, if anything remains to be awaited."""
    if hook is not None:
        await hook
