"""The middleware: it judges each request before a connection is made for it, and again when its first
byte is about to be written.

aiohttp gives each hop of a redirect, and each repetition of a failed request, to its middlewares, so
that each is judged. A middleware behind this one may change a request, or send it several times:
therefore `send`, by which aiohttp writes a request to a connection, is replaced in the judged
request. What is then written is judged there, if it is not the same. A request object that such a
middleware makes itself is not seen; none is made behind a guard that is the last middleware.

The guard fetches robots.txt by a client of its own, never by the session.

Each refusal is also an `aiohttp.ClientError`, so that a program handles it like any other request
that got no response.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import aiohttp
from aiohttp.connector import Connection

from robots_guard.aiohttp.outgoing import (
    CheckedTransport,
    end_after_response,
    frame,
    is_connected_to_origin,
    response_head,
    wire_of,
)
from robots_guard.client.async_guard import AsyncGuard
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.decisions.component import Component
from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)
from robots_guard.gateway.wire import Wire


class AiohttpDisallowed(RequestDisallowed, aiohttp.ClientError):
    """The request may not be made."""


class AiohttpDeferred(RequestDeferred, aiohttp.ClientError):
    """The request may not be made yet; `retry_after` says when."""


class AiohttpResponseRefused(ResponseRefused, aiohttp.ClientError):
    """The response may not be used."""


CLIENT_ERRORS = RefusalClasses(AiohttpDisallowed, AiohttpDeferred, AiohttpResponseRefused)
MAX_ROUNDS = 6  # of judging a request that is changed meanwhile
CHANGED = "a trace or a request class would write something other than what was judged"


def middleware(
    agent: str | None = None,
    *,
    guard: AsyncGuard | None = None,
    config: str | None = None,
    **settings: Any,
) -> GuardMiddleware:
    """Make a client middleware with a guard of its own, which its `async with` block or `aclose`
    closes; or with an open `guard`, which its caller closes.

    The settings are those of `robots_guard.open`. Raises SettingsError.
    """
    if guard is None:
        opened = AsyncGuard(open_gate(Component.AIOHTTP, agent, config, settings))
        return GuardMiddleware(opened, is_own=True)
    if agent is not None or config is not None or settings:
        raise TypeError("a middleware has either a guard or settings: leave out one of them")
    return GuardMiddleware(guard, is_own=False)


class GuardMiddleware:
    """A client middleware of aiohttp. Requests raise AiohttpDisallowed, AiohttpDeferred and
    AiohttpResponseRefused, which are `aiohttp.ClientError`."""

    def __init__(self, guard: AsyncGuard, *, is_own: bool) -> None:
        self.guard = guard
        self._is_own = is_own

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request if it may be made."""
        judged = JudgedSend.of(request, self.guard.gate)
        if judged.is_in_use:  # this guard is listed twice
            return await handler(request)
        with CLIENT_ERRORS.raised(), judged.use():
            await judged.admit()
            response = await handler(request)
            try:
                await judged.receive(response)
            except BaseException:
                response.close()
                raise
        return response

    async def aclose(self) -> None:
        """Close the guard, if it is the middleware's own."""
        if self._is_own:
            await self.guard.aclose()

    async def __aenter__(self) -> Self:
        """Return the middleware."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the guard, if it is the middleware's own."""
        await self.aclose()


class JudgedSend:
    """The `send` of one request, which writes only what was judged.

    `is_in_use`: the middleware has been called with the request, and has not returned.
    """

    def __init__(self, gate: Gate, request: aiohttp.ClientRequest) -> None:
        self.is_in_use = False
        self.gate = gate
        self._request = request
        self._send = request.send
        self._wire: Wire | None = None
        self._passage: Passage | None = None
        # aiohttp has no hook at the write
        request.send = self._write  # type: ignore[method-assign,assignment]

    @classmethod
    def of(cls, request: aiohttp.ClientRequest, gate: Gate) -> JudgedSend:
        """Return the `JudgedSend` of a request, which a repeated request already has."""
        found = getattr(request.send, "__self__", None)
        if isinstance(found, cls) and found.gate is gate:
            return found
        return cls(gate, request)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Mark the request as being handled by the middleware."""
        self.is_in_use = True
        try:
            yield
        finally:
            self.is_in_use = False

    async def admit(self) -> Passage:
        """Judge the request as it is now, and wait for its turn. Raises RequestRefused."""
        wire = wire_of(self._request)
        question, verdict = wire.question(self.gate.settings.agent)
        self._wire = None
        self._passage = await self.gate.admit(question, verdict)
        self._wire = wire
        return self._passage

    async def receive(self, response: aiohttp.ClientResponse) -> None:
        """Judge the response. Raises ResponseRefused."""
        assert self._passage is not None
        await self._passage.judge_response(response_head(response))

    async def _write(self, connection: Connection) -> aiohttp.ClientResponse:
        """Write the request to a connection."""
        request = self._request
        with CLIENT_ERRORS.raised():
            passage = await self._use()
            if not is_connected_to_origin(request, connection):
                raise self._refusal("its connection goes to another origin than the judged one")
            if frame(request, passage.decision.question.origin.authority):
                end_after_response(connection)
            CheckedTransport(request, connection.protocol, partial(self._refusal, CHANGED))
            return await self._send(connection)

    async def _use(self) -> Passage:
        """Return the passage of the request as it is now, with its turn. Raises RequestRefused."""
        for _ in range(MAX_ROUNDS):
            passage = self._passage
            if passage is None or self._wire != wire_of(self._request):
                passage = await self.admit()
            await passage.use()
            if self._wire == wire_of(self._request):
                return passage
        raise self._refusal("other middlewares kept changing the request")

    def _refusal(self, why: str) -> RequestDisallowed:
        question, _ = wire_of(self._request).question(self.gate.settings.agent)
        return RequestDisallowed(self.gate.refuse_unjudged(question, why))
