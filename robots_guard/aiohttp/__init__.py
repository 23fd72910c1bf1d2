"""The aiohttp integration: a client middleware that judges every request, each hop of a redirect
included.

    async with robots_guard.aiohttp.middleware("mybot") as guarded:
        async with aiohttp.ClientSession(middlewares=[guarded]) as session:
            ...

docs/python.md is the user documentation.
"""

from robots_guard.aiohttp.middleware import (
    AiohttpDeferred,
    AiohttpDisallowed,
    AiohttpResponseRefused,
    GuardMiddleware,
    middleware,
)

__all__ = [
    "AiohttpDeferred",
    "AiohttpDisallowed",
    "AiohttpResponseRefused",
    "GuardMiddleware",
    "middleware",
]
