"""Refusals as aiohttp's users expect them: each is a `RequestRefused` and an `aiohttp.ClientError`.

A program that handles what aiohttp raises then handles a refusal like any other request that got no
response.
"""

from __future__ import annotations

import aiohttp

from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)


class AiohttpDisallowed(RequestDisallowed, aiohttp.ClientError):
    """The request may not be made."""


class AiohttpDeferred(RequestDeferred, aiohttp.ClientError):
    """The request may not be made yet; `retry_after` says when."""


class AiohttpResponseRefused(ResponseRefused, aiohttp.ClientError):
    """The response may not be used."""


CLIENT_ERRORS = RefusalClasses(AiohttpDisallowed, AiohttpDeferred, AiohttpResponseRefused)
