"""The httpx integration: transports that judge every request, each hop of a redirect included.

    client = httpx.Client(transport=robots_guard.httpx.Transport("mybot"))
    client = httpx.AsyncClient(transport=robots_guard.httpx.AsyncTransport("mybot"))

docs/python.md is the user documentation.

httpx gives each hop of a redirect to its transport, so that each is judged. The target is the one
that httpcore writes: the URL's, or the extension `target`. The request that is handed on to the
wrapped transport is a copy: Host, target and the framing of its body are produced from what was
judged. After a request with a body, an HTTP/1 connection is not used again, because a server that
does not read the body takes it for its next request.

httpcore announces that it writes a request (the extension `trace`): there the request is compared
with what was judged, and its turn is counted. A wrapped transport that is not httpx's own may
announce nothing, so with it the turn is also counted before it is called.

The guard fetches robots.txt by a client of its own, never by these transports.

Each refusal is also an `httpx.TransportError`. A program that handles what httpx raises (`except
httpx.HTTPError`) then handles it like any other request that got no response, instead of ending
with an unknown exception.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, nullcontext
from functools import partial
from typing import Any, Self

from robots_guard.errors import MissingExtra

try:
    import httpx
except ImportError as error:
    # mitmproxy 11, the newest on Python 3.11, needs another h11 (docs/python.md)
    needed_for = "the transport for httpx (on Python 3.11 in an environment without mitmproxy)"
    raise MissingExtra("httpx", needed_for) from error

from robots_guard.client.async_guard import AsyncGuard
from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.client.sync_guard import SyncGuard
from robots_guard.decisions.component import Component
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Question, Verdict
from robots_guard.gateway.errors import (
    RefusalClasses,
    RequestDeferred,
    RequestDisallowed,
    ResponseRefused,
)
from robots_guard.gateway.wire import Fields, Wire
from robots_guard.origin import Origin

__all__ = [
    "AsyncTransport",
    "HttpxDeferred",
    "HttpxDisallowed",
    "HttpxResponseRefused",
    "Transport",
]

_SCHEMES = {b"ws": b"http", b"wss": b"https"}  # a WebSocket is opened by a request of HTTP
_PRODUCED = frozenset((b"host", b"content-length", b"transfer-encoding"))
_EXPECTS_LENGTH = ("POST", "PUT", "PATCH")  # RFC 9110 section 8.6


class JudgedCall:
    """A request as it was read for its verdict.

    It is a copy: what its caller changes while it waits for its turn is not sent.

    `writes_target`: the wrapped transport is httpx's own, which writes the extension `target`.
    Another one may not know it, so it does not get it, and the URL's target counts.
    """

    def __init__(self, request: httpx.Request, agent: str, *, writes_target: bool) -> None:
        request = _copy(request)
        self._request = request
        self._writes_target = writes_target
        self._target = _target(request, writes_target=writes_target)
        self._wire = _wire(request, self._target)
        self.question: Question
        self.verdict: Verdict | None
        self.question, self.verdict = self._wire.question(agent)
        if self.verdict is None:
            self.verdict = _objection_to_length(request)

    def outgoing(self, trace: Any) -> httpx.Request:
        """Return the request to hand on. `trace` replaces its extension of that name."""
        request = self._request
        length = _body_length(request)
        extensions = {**request.extensions, "trace": trace}
        # Only if the caller has set it: httpcore also writes it to a proxy, without the origin.
        if extensions.pop("target", None) is not None and self._writes_target:
            extensions["target"] = self._target
        return httpx.Request(
            request.method,
            request.url,
            headers=_fields(request, self.question.origin, length),
            stream=_counted(request.stream, length),
            extensions=extensions,
        )

    def difference(self, written: Any) -> str | None:
        """Why a request that httpcore writes next is not this one; None if it is."""
        url = self._request.url
        target: bytes = written.url.target
        if target != self._target and target != self._absolute_target():
            return "the target differs from the judged one"
        destination = (written.url.scheme, written.url.host, written.url.port)
        is_proxied = target == self._absolute_target()
        if not is_proxied and destination != (url.raw_scheme, url.raw_host, url.port):
            return "the connection goes to another origin than the judged one"
        hosts = [value for name, value in written.headers if name.lower() == b"host"]
        if hosts != [self._authority]:
            return "the Host field differs from the judged one"
        if written.method != self._request.method.encode("latin-1"):
            return "the method differs from the judged one"
        return None

    @property
    def _authority(self) -> bytes:
        return self.question.origin.authority.encode()

    def _absolute_target(self) -> bytes:
        """The target as httpcore writes it for a proxy (RFC 9112 section 3.2.2)."""
        url = self._request.url
        port = b"" if url.port is None else b":%d" % url.port
        return b"%b://%b%b%b" % (url.raw_scheme, _bracketed(url.raw_host), port, self._target)


def is_governed(request: httpx.Request) -> bool:
    """Whether a robots.txt governs a request (RFC 9309 section 2.3)."""
    return _scheme(request) in (b"http", b"https")


def response_head(request: httpx.Request, response: httpx.Response) -> ResponseHead:
    """Return the status and the fields of a response."""
    fields = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw
    ]
    return ResponseHead(status=response.status_code, headers=fields, method=request.method)


def _copy(request: httpx.Request) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        stream=request.stream,
        extensions=dict(request.extensions),
    )


def _target(request: httpx.Request, *, writes_target: bool) -> bytes:
    if request.method == "CONNECT":
        return request.url.netloc  # refused: it has no path
    given = request.extensions.get("target") if writes_target else None
    if given is None:
        return request.url.raw_path
    if isinstance(given, str):
        return given.encode("ascii", "backslashreplace")
    return bytes(given)


def _wire(request: httpx.Request, target: bytes) -> Wire:
    url = request.url
    sni = request.extensions.get("sni_hostname")
    if isinstance(sni, bytes):
        sni = sni.decode("ascii", "backslashreplace")
    scheme = _scheme(request)
    fields: Fields = tuple(request.headers.raw)
    host = url.raw_host.decode("ascii", "backslashreplace")
    return Wire.read(
        fields,
        method=request.method.encode("latin-1", "backslashreplace"),
        scheme=scheme,
        host=host,
        port=url.port or (443 if scheme == b"https" else 80),
        target=target,
        version=b"HTTP/1.1",  # httpx's Host field becomes the :authority of HTTP/2
        authority=b"",
        sni=sni,
        addressed=False,
        client="",
    )


def _scheme(request: httpx.Request) -> bytes:
    return _SCHEMES.get(request.url.raw_scheme, request.url.raw_scheme)


def _bracketed(host: bytes) -> bytes:
    return b"[%b]" % host if b":" in host else host


# -- the framing of the body (RFC 9112 section 6) ---------------------------------------------------


def _values(request: httpx.Request, sought: bytes) -> list[bytes]:
    return [value for name, value in request.headers.raw if name.lower() == sought]


def _objection_to_length(request: httpx.Request) -> Verdict | None:
    """The refusal of a length that readers could understand differently."""
    lengths = _values(request, b"content-length")
    if not lengths or (len(lengths) == 1 and lengths[0].isdigit()):
        return None
    detail = "the Content-Length is not one number"
    return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=detail)


def _body_length(request: httpx.Request) -> int | None:
    """The length of the body in bytes; None if it is not known before it has been sent."""
    if isinstance(request.stream, httpx.ByteStream):
        return sum(len(part) for part in request.stream)
    lengths = _values(request, b"content-length")
    if not lengths or _values(request, b"transfer-encoding"):
        return None
    return int(lengths[0])


def _fields(request: httpx.Request, origin: Origin, length: int | None) -> httpx.Headers:
    """The fields that are written. CGI and WSGI take Content_Length for Content-Length."""
    kept = [
        field
        for field in request.headers.raw
        if field[0].lower().replace(b"_", b"-") not in _PRODUCED
    ]
    if length != 0:
        kept = [field for field in kept if field[0].lower() not in (b"connection", b"upgrade")]
        kept.append((b"Connection", b"close"))
    if length is None:
        kept.append((b"Transfer-Encoding", b"chunked"))
    elif length or request.method in _EXPECTS_LENGTH or _values(request, b"content-length"):
        kept.append((b"Content-Length", b"%d" % length))
    return httpx.Headers([(b"Host", origin.authority.encode()), *kept])


def _counted(stream: Any, length: int | None) -> Any:
    if length is None or isinstance(stream, httpx.ByteStream):
        return stream
    return CountedBody(stream, length)


class CountedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of exactly `length` bytes. A longer or shorter one raises LocalProtocolError before a
    byte too many is sent: HTTP/2 would frame it, and a server that forwards the request over HTTP/1
    would rely on the length."""

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts of the body."""
        left = self._length
        for part in self._stream:
            left = _left_after(part, left)
            yield part
        _check_end(left)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body."""
        left = self._length
        async for part in self._stream:
            left = _left_after(part, left)
            yield part
        _check_end(left)

    def close(self) -> None:
        """Close the body."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the body."""
        await self._stream.aclose()


def _left_after(part: bytes, left: int) -> int:
    if len(part) > left:
        raise httpx.LocalProtocolError("the body is longer than its Content-Length")
    return left - len(part)


def _check_end(left: int) -> None:
    if left:
        raise httpx.LocalProtocolError("the body is shorter than its Content-Length")


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
