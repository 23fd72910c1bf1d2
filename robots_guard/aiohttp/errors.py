"""Refusals as aiohttp's users expect them: each is a `RequestRefused` and an `aiohttp.ClientError`.

A program that handles what aiohttp raises then handles a refusal like any other request that got no
response.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import aiohttp

from robots_guard.gateway.errors import (
    RequestDeferred,
    RequestDisallowed,
    RequestRefused,
    ResponseRefused,
)


class AiohttpDisallowed(RequestDisallowed, aiohttp.ClientError):
    """The request may not be made."""


class AiohttpDeferred(RequestDeferred, aiohttp.ClientError):
    """The request may not be made yet; `retry_after` says when."""


class AiohttpResponseRefused(ResponseRefused, aiohttp.ClientError):
    """The response may not be used."""


@contextlib.contextmanager
def as_client_errors() -> Iterator[None]:
    """Raise a refusal as one of these classes."""
    try:
        yield
    except aiohttp.ClientError:
        raise
    except RequestRefused as refusal:
        raise _as_client_error(refusal) from None


def _as_client_error(refusal: RequestRefused) -> aiohttp.ClientError:
    if isinstance(refusal, ResponseRefused):
        return AiohttpResponseRefused(refusal.decision)
    if isinstance(refusal, RequestDeferred):
        return AiohttpDeferred(refusal.decision)
    return AiohttpDisallowed(refusal.decision)
