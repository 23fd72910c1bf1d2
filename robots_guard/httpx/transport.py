"""The transports: they judge each request, and hand it to the transport that they wrap.

httpx gives each hop of a redirect to its transport, so that each is judged. httpcore announces that
it writes a request (the extension `trace`): there the request is compared with what was judged, and
its turn is counted. A wrapped transport that is not httpx's own may announce nothing, so with it the
turn is also counted before it is called.

The guard fetches robots.txt by a client of its own, never by these transports.

Each refusal is also an `httpx.TransportError`. A program that handles what httpx raises (`except
httpx.HTTPError`) then handles it like any other request that got no response, instead of ending
with an unknown exception.
"""

from __future__ import annotations

from contextlib import aclosing, closing, nullcontext
from functools import partial
from typing import Any, Self

import httpx

from robots_guard.client.async_guard import AsyncGuard
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.client.sync_guard import SyncGuard
from robots_guard.decisions.component import Component
from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)
from robots_guard.httpx.outgoing import JudgedCall, is_governed, response_head


class HttpxDisallowed(RequestDisallowed, httpx.TransportError):
    """The request may not be made."""


class HttpxDeferred(RequestDeferred, httpx.TransportError):
    """The request may not be made yet; `retry_after` says when."""


class HttpxResponseRefused(ResponseRefused, httpx.TransportError):
    """The response may not be used."""


TRANSPORT_ERRORS = RefusalClasses(HttpxDisallowed, HttpxDeferred, HttpxResponseRefused)
_WRITES = ("http11.send_request_headers.started", "http2.send_request_headers.started")


class Transport(httpx.BaseTransport):
    """A transport for `httpx.Client`. It may be used from any thread.

    `wrapped` sends what is permitted: by default an `httpx.HTTPTransport()`. The settings are those of
    `robots_guard.open_sync`. Or give it an open `guard`, which its caller closes.

    Requests raise HttpxDisallowed, HttpxDeferred and HttpxResponseRefused, which are
    `httpx.TransportError`.
    """

    def __init__(
        self,
        agent: str | None = None,
        *,
        wrapped: httpx.BaseTransport | None = None,
        guard: SyncGuard | None = None,
        config: str | None = None,
        **settings: Any,
    ) -> None:
        _check_arguments(guard, agent, config, settings)
        self.guard = guard or SyncGuard(open_gate(Component.HTTPX, agent, config, settings))
        self._own = nullcontext() if guard else closing(self.guard)
        self._wrapped = wrapped or httpx.HTTPTransport()
        self._announces = isinstance(self._wrapped, httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request if it may be made. Raises the errors that the class names."""
        if _is_handed_on(request, self.guard):
            return self._wrapped.handle_request(request)
        run, gate = self.guard.run, self.guard.gate
        judged = JudgedCall(request, gate.settings.agent, writes_target=self._announces)
        with TRANSPORT_ERRORS.raised():
            passage = run(partial(gate.admit, judged.question, judged.verdict))
            if not self._announces:
                run(passage.use_ahead)
            response = self._wrapped.handle_request(
                judged.outgoing(partial(self._trace, request, judged, passage))
            )
            try:
                run(partial(passage.judge_response, response_head(request, response)))
            except BaseException:
                response.close()
                raise
        return response

    def _trace(
        self, request: httpx.Request, judged: JudgedCall, passage: Passage, event: str, info: Any
    ) -> None:
        """Receive what httpcore announces."""
        trace = request.extensions.get("trace")
        if trace is not None:
            trace(event, info)
        if _is_written(event, info):
            with TRANSPORT_ERRORS.raised():
                _check_written(judged, self.guard.gate, info["request"])
                self.guard.run(passage.use)

    def close(self) -> None:
        """Close the wrapped transport, and the guard if it is the transport's own."""
        with self._own:
            self._wrapped.close()

    def __enter__(self) -> Self:
        """Enter the wrapped transport."""
        self._wrapped.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave the wrapped transport, and close the guard if it is the transport's own."""
        with self._own:
            self._wrapped.__exit__(*error)


class AsyncTransport(httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient` in a program that runs asyncio; see `Transport`. The
    settings are those of `robots_guard.open`."""

    def __init__(
        self,
        agent: str | None = None,
        *,
        wrapped: httpx.AsyncBaseTransport | None = None,
        guard: AsyncGuard | None = None,
        config: str | None = None,
        **settings: Any,
    ) -> None:
        _check_arguments(guard, agent, config, settings)
        self.guard = guard or AsyncGuard(open_gate(Component.HTTPX, agent, config, settings))
        self._own = nullcontext() if guard else aclosing(self.guard)
        self._wrapped = wrapped or httpx.AsyncHTTPTransport()
        self._announces = isinstance(self._wrapped, httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request if it may be made. Raises the errors that `Transport` names."""
        if _is_handed_on(request, self.guard):
            return await self._wrapped.handle_async_request(request)
        gate = self.guard.gate
        judged = JudgedCall(request, gate.settings.agent, writes_target=self._announces)
        with TRANSPORT_ERRORS.raised():
            passage = await gate.admit(judged.question, judged.verdict)
            if not self._announces:
                await passage.use_ahead()
            response = await self._wrapped.handle_async_request(
                judged.outgoing(partial(self._trace, request, judged, passage))
            )
            try:
                await passage.judge_response(response_head(request, response))
            except BaseException:
                await response.aclose()
                raise
        return response

    async def _trace(
        self, request: httpx.Request, judged: JudgedCall, passage: Passage, event: str, info: Any
    ) -> None:
        """Receive what httpcore announces."""
        trace = request.extensions.get("trace")
        if trace is not None:
            await trace(event, info)
        if _is_written(event, info):
            with TRANSPORT_ERRORS.raised():
                _check_written(judged, self.guard.gate, info["request"])
                await passage.use()

    async def aclose(self) -> None:
        """Close the wrapped transport, and the guard if it is the transport's own."""
        async with self._own:
            await self._wrapped.aclose()

    async def __aenter__(self) -> Self:
        """Enter the wrapped transport."""
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Leave the wrapped transport, and close the guard if it is the transport's own."""
        async with self._own:
            await self._wrapped.__aexit__(*error)


def _check_arguments(
    guard: object, agent: str | None, config: str | None, settings: dict[str, Any]
) -> None:
    if guard is not None and (agent is not None or config is not None or settings):
        raise TypeError("a transport has either a guard or settings: leave out one of them")


def _is_handed_on(request: httpx.Request, guard: object) -> bool:
    """Whether a request is handed on as it is: no robots.txt governs its scheme, or it comes from a
    transport with the same guard, which wraps this one, has judged it, and compares what is written."""
    trace = request.extensions.get("trace")
    judge = getattr(getattr(trace, "func", None), "__self__", None)
    return getattr(judge, "guard", None) is guard or not is_governed(request)


def _is_written(event: str, info: Any) -> bool:
    """Whether httpcore writes the request next. A CONNECT to a proxy is not the request."""
    return event in _WRITES and info["request"].method != b"CONNECT"


def _check_written(judged: JudgedCall, gate: Gate, written: Any) -> None:
    """Compare a request that httpcore writes next with the judged one. Raises RequestDisallowed."""
    why = judged.difference(written)
    if why is not None:
        raise RequestDisallowed(gate.refuse_unjudged(judged.question, why))
