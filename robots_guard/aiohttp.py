"""The aiohttp integration: a client middleware that judges every request, each hop of a redirect
included.

    async with robots_guard.aiohttp.middleware("mybot") as guarded:
        async with aiohttp.ClientSession(middlewares=[guarded]) as session:
            ...

docs/python.md is the user documentation.

A request is judged before a connection is made for it, and again when its first byte is about to be
written. aiohttp gives each hop of a redirect, and each repetition of a failed request, to its
middlewares, so that each is judged. A middleware behind this one may change a request, or send it
several times: therefore `send`, by which aiohttp writes a request to a connection, is replaced in
the judged request. What is then written is judged there, if it is not the same. A request object
that such a middleware makes itself is not seen; none is made behind a guard that is the last
middleware. After a request with a body, the connection is not used again, because a server that
does not read the body takes it for its next request.

The guard fetches robots.txt by a client of its own, never by the session.

Each refusal is also an `aiohttp.ClientError`, so that a program handles it like any other request
that got no response.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from multidict import CIMultiDict

from robots_guard.client.async_guard import AsyncGuard
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.decisions.component import Component
from robots_guard.decisions.response import ResponseHead
from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)
from robots_guard.gateway.wire import Wire

__all__ = [
    "AiohttpDeferred",
    "AiohttpDisallowed",
    "AiohttpResponseRefused",
    "GuardMiddleware",
    "middleware",
]

_SCHEMES = {"ws": "http", "wss": "https"}  # a WebSocket is opened by a request of HTTP
_FRAMING = frozenset(("content-length", "transfer-encoding"))


def wire_of(request: aiohttp.ClientRequest) -> Wire:
    """Read a request as it will be written now."""
    url = request.url
    scheme = _SCHEMES.get(url.scheme, url.scheme)
    target = url.raw_path_qs
    if request.method == hdrs.METH_CONNECT:
        target = url.authority  # refused: it has no path
    fields = tuple(
        (_encoded(name), _encoded(value))
        for name, value in request.headers.items()
        if _plain(name) not in _FRAMING
    )
    return Wire.read(
        fields,
        method=_encoded(request.method),
        scheme=_encoded(scheme),
        host=url.raw_host or "",
        port=url.port or 0,
        target=_encoded(target),
        version=f"HTTP/{request.version.major}.{request.version.minor}".encode(),
        authority=b"",
        sni=request.server_hostname,
        addressed=False,
        client="",
    )


def frame(request: aiohttp.ClientRequest, authority: str) -> bool:
    """Produce the Host field and the framing of a request (RFC 9112 section 6); return whether it
    has a body.

    The fields of its caller are replaced: aiohttp would write them unchanged beside a body that is
    framed otherwise. CGI and WSGI take Content_Length for Content-Length.
    """
    length = _body_length(request)
    kept = [(name, value) for name, value in request.headers.items() if not _is_produced(name)]
    headers = CIMultiDict([("Host", authority), *kept])
    request.chunked = None
    if length is None:
        request.chunked = True
        request.version = aiohttp.HttpVersion11  # HTTP/1.0 has no chunked coding
        headers[hdrs.TRANSFER_ENCODING] = "chunked"
    elif length or request.method not in request.GET_METHODS:
        headers[hdrs.CONTENT_LENGTH] = str(length)
    if length != 0:
        headers[hdrs.CONNECTION] = "close"
    request.headers = headers
    return length != 0


class CheckedTransport:
    """A stand-in for the transport of a connection, until the head of a request is written to it.

    It writes only the request line, Host and framing that the request has now: a trace
    (`on_request_headers_sent`) or a request class of a project can still change them. `refuse` makes
    the exception for any other head.
    """

    def __init__(
        self, request: aiohttp.ClientRequest, protocol: Any, refuse: Callable[[], Exception]
    ) -> None:
        self._head = _head_of(request)
        self._refuse = refuse
        self._protocol = protocol
        self._transport = protocol.transport
        protocol.transport = self

    def write(self, data: bytes) -> None:
        """Write the head. Raises what `refuse` makes."""
        if self._protocol.transport is self:  # else the connection is lost
            self._protocol.transport = self._transport
        head, end, _ = bytes(data).partition(b"\r\n\r\n")
        if not end or _judged_lines(head) != self._head:
            raise self._refuse()
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Write the head. Raises what `refuse` makes."""
        self.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the connection's own transport."""
        return getattr(self._transport, name)


def _head_of(request: aiohttp.ClientRequest) -> list[bytes]:
    """The lines of the head that are judged, as they are to be written."""
    is_absolute = request.proxy and not request.is_ssl()
    target = str(request.url) if is_absolute else request.url.raw_path_qs
    version = request.version
    lines = [f"{request.method} {target} HTTP/{version.major}.{version.minor}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if _is_produced(name)]
    return [_encoded(line) for line in lines]


def _judged_lines(head: bytes) -> list[bytes]:
    """The request line of a written head, and each field that `frame` produces."""
    line, *fields = head.split(b"\r\n")
    names = [field.partition(b":")[0].strip().decode("latin-1") for field in fields]
    produced = [field for name, field in zip(names, fields, strict=True) if _is_produced(name)]
    return [line, *produced]


def is_connected_to_origin(request: aiohttp.ClientRequest, connection: Connection) -> bool:
    """Whether a connection was made for the request's origin, which a component may have changed
    meanwhile."""
    return connection._key[:3] == request.connection_key[:3]  # noqa: SLF001  (not public)


def end_after_response(connection: Connection) -> None:
    """Do not use a connection again after its response."""
    if connection.protocol is not None:
        connection.protocol.force_close()


def response_head(response: aiohttp.ClientResponse) -> ResponseHead:
    """Return the status and the fields of a response."""
    fields = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
    ]
    return ResponseHead(status=response.status, headers=fields, method=response.method)


def _body_length(request: aiohttp.ClientRequest) -> int | None:
    """The length of the body in bytes; None if it is not known before it has been sent."""
    body = request.body
    if not body:
        return 0
    if request.compress:
        return None
    return body.size


def _is_produced(name: str) -> bool:
    plain = _plain(name)
    return plain in _FRAMING or plain == "host"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


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
