"""Refusals as httpx's users expect them: each is a `RequestRefused` and an `httpx.TransportError`.

A program that handles what httpx raises (`except httpx.HTTPError`) then handles a refusal like any
other request that got no response, instead of ending with an unknown exception.
"""

from __future__ import annotations

import httpx

from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)


class HttpxDisallowed(RequestDisallowed, httpx.TransportError):
    """The request may not be made."""


class HttpxDeferred(RequestDeferred, httpx.TransportError):
    """The request may not be made yet; `retry_after` says when."""


class HttpxResponseRefused(ResponseRefused, httpx.TransportError):
    """The response may not be used."""


TRANSPORT_ERRORS = RefusalClasses(HttpxDisallowed, HttpxDeferred, HttpxResponseRefused)
