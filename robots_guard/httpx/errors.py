"""Refusals as httpx's users expect them: each is a `RequestRefused` and an `httpx.TransportError`.

A program that handles what httpx raises (`except httpx.HTTPError`) then handles a refusal like any
other request that got no response, instead of ending with an unknown exception.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx

from robots_guard.core.verdict import Decision
from robots_guard.gateway.errors import (
    RequestDeferred,
    RequestDisallowed,
    RequestRefused,
    ResponseRefused,
)


class HttpxDisallowed(RequestDisallowed, httpx.TransportError):
    """The request may not be made."""

    def __init__(self, decision: Decision) -> None:
        RequestDisallowed.__init__(self, decision)
        self._request = None  # httpx sets it


class HttpxDeferred(RequestDeferred, httpx.TransportError):
    """The request may not be made yet; `retry_after` says when."""

    def __init__(self, decision: Decision) -> None:
        RequestDeferred.__init__(self, decision)
        self._request = None  # httpx sets it


class HttpxResponseRefused(ResponseRefused, httpx.TransportError):
    """The response may not be used."""

    def __init__(self, decision: Decision) -> None:
        ResponseRefused.__init__(self, decision)
        self._request = None  # httpx sets it


@contextlib.contextmanager
def as_transport_errors() -> Iterator[None]:
    """Raise a refusal as one of these classes."""
    try:
        yield
    except httpx.TransportError:
        raise
    except RequestRefused as refusal:
        raise _as_transport_error(refusal) from None


def _as_transport_error(refusal: RequestRefused) -> httpx.TransportError:
    if isinstance(refusal, ResponseRefused):
        return HttpxResponseRefused(refusal.decision)
    if isinstance(refusal, RequestDeferred):
        return HttpxDeferred(refusal.decision)
    return HttpxDisallowed(refusal.decision)
