"""The fetcher of robots.txt through mitmproxy's own outgoing stack, which is also the route of pages.

It uses the same upstream proxy and credentials, the same CA and client-certificate options, and the
same local address. It fetches one hop only: the guard follows redirects. It builds on mitmproxy's
ReplayHandler, which is not a public interface; this module is the only one that relies on its
internals.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mitmproxy import connection, ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.proxy import commands, events, mode_specs, server_hooks
from mitmproxy.proxy.layers.http._hooks import (
    HttpRequestHook,
    HttpResponseHeadersHook,
    HttpResponseHook,
)
from mitmproxy.proxy.layers.tls import TlsEstablishedServerHook
from mitmproxy.utils import human

from robots_guard.decisions.access import Failed, Failure, Fetched, FetchOutcome, Get, Scope
from robots_guard.decisions.addresses import is_public, literal
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.guard.fetch.content_coding import Plain, Undecodable, decoder
from robots_guard.guard.fetch.framing import INHERITED, BadFields, Framing, joined
from robots_guard.guard.fetch.plain_errors import (
    SELF_SIGNED,
    UNKNOWN_AUTHORITY,
    in_plain_words,
    scope_of,
)
from robots_guard.mitmproxy.destinations import ITSELF, PREFIX
from robots_guard.mitmproxy.options import SPELLING
from robots_guard.mitmproxy.patches.http1 import ReceivesBytes
from robots_guard.mitmproxy.permits import JudgedRequest, Permits
from robots_guard.mitmproxy.wire import Approved
from robots_guard.origin import Origin, split_url
from robots_guard.protocol.paths import malformed

_PRIVATE = "{} is not public, and a public site redirected there"
HEAD_CAP = 256 * 1024  # bytes besides the body: heads, chunk sizes, TLS records

# mitmproxy's message for a CONNECT that the parent refuses; it names both.
_BY_PARENT = "Upstream proxy "
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")

_REGULAR = "regular"

_mode: ContextVar[str | None] = ContextVar("robots_guard_way_out", default=None)


def _default_mode() -> str:
    """The mode of a fetch that no client's request caused: through the parent proxy if there is one."""
    return next((spec for spec in ctx.options.mode if spec.startswith("upstream:")), _REGULAR)


@contextmanager
def on_behalf_of(client: connection.Client) -> Iterator[None]:
    """Route fetches that start in this context, or in tasks created in it, like this client's requests."""
    mode = client.proxy_mode
    # A reverse mode would add credentials and a Host of its own to the request, so only a parent proxy matters.
    spec = mode.full_spec if isinstance(mode, mode_specs.UpstreamMode) else _REGULAR
    token = _mode.set(spec)
    try:
        yield
    finally:
        _mode.reset(token)


class MitmFetcher:
    """The proxy's Fetcher. `own` are the ids of its flows that have not ended.

    The User-Agent is the operator's, not the first client's: a client could choose a name for which
    a site serves another robots.txt, which would then bind every client.
    """

    via = "mitmproxy"
    _numbers = itertools.count(1)

    def __init__(self, permits: Permits, *, user_agent: str) -> None:
        self._permits = permits
        self._user_agent = user_agent
        self.own: set[str] = set()

    @property
    def route(self) -> str:
        """The parent proxy of a fetch that starts now."""
        return _parent(_mode.get() or _default_mode())

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop and return its outcome."""
        outcome = await self._outcome(get)
        if isinstance(outcome, Failed):
            return outcome.on_route(self.route)
        return outcome

    async def _outcome(self, get: Get) -> FetchOutcome:
        try:
            origin, target = split_url(get.url)
            if fault := malformed(target):
                return Failed(failure=Failure.PROTOCOL, detail=f"malformed target: {fault}")
            spelt = literal(origin.host)
            if get.public_only and spelt is not None and not is_public(spelt):
                return Failed(failure=Failure.REFUSED, detail=_PRIVATE.format(spelt))
            return await self._fetch(origin, target, get, _mode.get() or _default_mode())
        except (MalformedURL, NotGoverned) as error:
            return Failed(failure=Failure.PROTOCOL, detail=str(error))
        except Exception as error:  # noqa: BLE001  a Fetcher never raises
            return Failed(failure=Failure.INTERNAL, detail=type(error).__name__)

    async def _fetch(self, origin: Origin, target: str, get: Get, mode: str) -> FetchOutcome:
        flow = self._flow(origin, target, (("User-Agent", self._user_agent), *get.headers), mode)
        self.own.add(flow.id)
        seen = JudgedRequest.of(flow)
        self._permits.grant(flow, Approved(origin, seen.wire), seen.request)
        self._permits.seal(flow)
        try:
            return await _Hop(flow, mode, get).outcome()
        finally:
            self._permits.release(flow)
            self.own.discard(flow.id)

    def _flow(
        self, origin: Origin, target: str, fields: tuple[tuple[str, str], ...], mode: str
    ) -> http.HTTPFlow:
        client = connection.Client(
            peername=ITSELF,
            sockname=ITSELF,
            # With the name above, a unique client identity.
            timestamp_start=-float(next(self._numbers)),
            alpn_offers=[b"h2", b"http/1.1"],
            proxy_mode=mode_specs.ProxyMode.parse(mode),
        )
        flow = http.HTTPFlow(client, connection.Server(address=(origin.host, origin.port)))
        flow.request = _request(origin, target, fields)
        flow.is_replay = "request"  # proxyauth does not check replays
        flow.metadata["robots_guard"] = "robots.txt"
        return flow


def _request(origin: Origin, target: str, fields: tuple[tuple[str, str], ...]) -> http.Request:
    headers = (
        ("Host", origin.authority),
        ("Accept", "text/plain, */*;q=0.5"),
        ("Accept-Encoding", "identity"),
        *fields,
    )
    return http.Request(
        host=origin.host,
        port=origin.port,
        method=b"GET",
        scheme=origin.scheme.encode(),
        authority=b"",
        path=target.encode("latin-1"),
        http_version=b"HTTP/1.1",
        headers=http.Headers(
            [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
        ),
        content=b"",
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=0.0,
    )


def _parent(mode: str) -> str:
    """The host and port of a mode's parent proxy, without credentials; empty if there is none."""
    spec = mode_specs.ProxyMode.parse(mode)
    if isinstance(spec, mode_specs.UpstreamMode):
        return human.format_address(spec.address)
    return ""


def _authorities_option() -> str:
    """The option that names the authorities of sites: the command has its own name for it."""
    if SPELLING.format("agent") in ctx.options:
        return "ssl_verify_upstream_trusted_ca"
    return "--upstream-ca"


class _Options(ReceivesBytes):
    """mitmproxy's options with another mode, because a ReplayHandler uses only the first one.

    `framing` receives the bytes of a response over HTTP/1; it is None while none has begun.
    `had_fin` means that the peer has closed its side of the TCP connection in an orderly way.
    """

    def __init__(self, mode: str) -> None:
        self.mode = [mode]
        self.framing: Framing | None = None
        self.had_fin = False

    def receive(self, received: bytes) -> None:
        self.framing = self.framing or Framing()
        self.framing.feed(received)

    def closed(self, *, notified: bool | None) -> None:
        if self.framing is not None:
            self.framing.closed(clean=self.had_fin if notified is None else notified)

    def __getattr__(self, name: str) -> Any:
        return getattr(ctx.options, name)


class _Hop(ReplayHandler):
    """One request and its response, with a deadline that each phase extends and a cap on the bytes that are read."""

    def __init__(self, flow: http.HTTPFlow, mode: str, get: Get) -> None:
        self._options = _Options(mode)
        super().__init__(flow, self._options)  # type: ignore[arg-type]  # a view of the options, see above
        self._limits = get.limits
        self._parent = _parent(mode)
        self._public_only = get.public_only
        self._public: bool | None = None
        self._private = ""
        self._tls = flow.request.scheme == "https"
        self._phase = "connect"
        self._refused = False
        self._received = 0
        self._own = dict(flow.request.headers)  # before other addons have changed them
        self._fields: dict[str, str] = {}
        self._body = Plain(0)
        self._content = 0  # bytes that mitmproxy delivered as content
        self._fault = ""  # why the response is unusable
        self._deadline = asyncio.timeout(None)
        self._end = 0.0

    async def outcome(self) -> FetchOutcome:
        """Run to the end, the cap or the deadline. No connection stays open afterwards."""
        self._end = asyncio.get_running_loop().time() + self._limits.total
        try:
            async with self._deadline:
                self._allow(self._limits.connect)
                await self.replay()
        except TimeoutError:
            return Failed(failure=Failure.TIMEOUT, detail=f"no answer in time ({self._phase})")
        finally:
            await self._hang_up()
        return self._result() or self._failure()

    def _allow(self, seconds: float) -> None:
        """Give the next phase this many seconds, but never more than the total allows."""
        if not self._deadline.expired() and not self.done.is_set():
            self._deadline.reschedule(min(self._end, asyncio.get_running_loop().time() + seconds))

    async def _hang_up(self) -> None:
        handlers = [
            transport.handler for transport in self.transports.values() if transport.handler
        ]
        for handler in handlers:
            handler.cancel()
        if handlers:
            await asyncio.wait(handlers, timeout=1.0)

    # -- events from mitmproxy ----------------------------------------------------------------------------

    async def handle_hook(self, hook: commands.StartHook) -> None:
        """Track the phase, and call the addons' hooks."""
        if isinstance(hook, server_hooks.ServerConnectedHook):
            self._check_address(hook.data.server)
            self._enter_phase("TLS" if self._tls else "answer")
        elif isinstance(hook, TlsEstablishedServerHook):
            self._enter_phase("answer")
        elif isinstance(hook, HttpResponseHook):
            self._end_body()
        await super().handle_hook(hook)
        if isinstance(hook, HttpRequestHook):
            self._remove_foreign_fields()
        if isinstance(hook, server_hooks.ServerConnectHook):
            self._refused = hook.data.server.error is not None
        elif isinstance(hook, HttpResponseHeadersHook) and self.flow.response is not None:
            self._allow(self._limits.total)
            self._read_head(self.flow.response)

    def _remove_foreign_fields(self) -> None:
        """Undo the changes of other addons to the fields, except to those that identify the crawler."""
        headers = self.flow.request.headers
        for name in {name.lower() for name in headers} - INHERITED - {"host"}:
            del headers[name]
        for name, value in self._own.items():
            if name.lower() not in INHERITED | {"host"}:
                headers[name] = value

    def _check_address(self, server: connection.Server) -> None:
        """Check the address before anything is sent to it. Behind a parent proxy, only a literal one is known."""
        peer = server.peername or ("",)
        address = literal(self.flow.request.host if self._parent else peer[0])
        self._public = None if address is None else is_public(address)
        if self._public_only and self._public is False:
            self._private = _PRIVATE.format(address)
            self.done.set()

    def _enter_phase(self, phase: str) -> None:
        self._phase = phase
        if phase == "answer":
            self._allow(self._limits.first_byte)

    def _read_head(self, response: http.Response) -> None:
        """Read the fields, and stream the body to `_sink`. Only the body of a 2xx response is decoded."""
        try:
            self._fields = joined(response.headers.fields)
            coding = ""
            if 200 <= response.status_code < 300:
                coding = self._fields.get("content-encoding", "")
            self._body = decoder(coding, self._limits.max_body)
        except (BadFields, Undecodable) as error:
            self._fault = str(error)
        response.stream = self._sink

    def _sink(self, data: bytes) -> bytes:
        """Keep data up to the cap, then stop the hop. The body is not passed on.

        Empty data is not the end of the body: it may be an empty DATA frame (RFC 9113 section 6.1).
        """
        self._content += len(data)
        try:
            self._body.feed(data)
        except Undecodable as error:
            self._fault = str(error)
        if self._fault or self._body.truncated:
            self.done.set()
        return b""

    def _end_body(self) -> None:
        """Finish decoding: the response is complete."""
        try:
            self._body.end()
        except Undecodable as error:
            self._fault = str(error)

    async def server_event(self, event: events.Event) -> None:
        """Bound the size of heads, which mitmproxy does not. Send nothing to an address that must be public."""
        if self._private:
            return
        if isinstance(event, events.DataReceived):
            self._received += len(event.data)
            if self._received > self._limits.max_body + HEAD_CAP:
                self._give_up()
                return
        elif isinstance(event, events.ConnectionClosed):
            self._options.had_fin = self._is_fin(event.connection)
        await super().server_event(event)

    def _give_up(self) -> None:
        """Fail a response with more bytes than one within the cap can have, unless it has already ended."""
        if not self.done.is_set():
            self._fault = "the response takes more bytes on the wire than its content may have"
            self.done.set()

    def _is_fin(self, ended: connection.Connection) -> bool:
        """Whether a connection ended by the peer's FIN. mitmproxy reports a reset or a local close the same way."""
        transport = self.transports.get(ended)
        reader = transport and transport.reader
        return (
            isinstance(reader, asyncio.StreamReader)
            and reader.at_eof()
            and reader.exception() is None
        )

    def log(self, message: str, level: int = 20, exc_info: Any = None) -> None:
        """Log only errors of mitmproxy itself."""
        if level >= 40:
            super().log(message, level, exc_info)

    # -- the outcome --------------------------------------------------------------------------------------

    def _result(self) -> Fetched | Failed | None:
        response = self.flow.response
        if self._private:
            return Failed(failure=Failure.REFUSED, detail=self._private)
        if response is None or self._phase != "answer":
            return None
        # The response is the parent's, not the site's (RFC 9110 section 15.5.8).
        if response.status_code == 407 and self._parent:
            return Failed(
                failure=Failure.REFUSED,
                detail=f"the parent proxy {self._parent} asks for credentials (407)",
                about=Scope.ROUTE,
            )
        if self._fault:
            return Failed(failure=Failure.PROTOCOL, detail=self._fault)
        if self.flow.error and not self._body.truncated:
            return None
        if objection := self._objection():
            return Failed(failure=Failure.PROTOCOL, detail=objection)
        return Fetched(
            status=response.status_code,
            headers=self._fields,
            body=bytes(self._body.body) if 200 <= response.status_code < 300 else b"",
            truncated=self._body.truncated,
            tls_verified=self._tls and not ctx.options.ssl_insecure,
            public=self._public,
            relay="" if self._tls else self._parent,
        )

    def _objection(self) -> str:
        """The fault in the framing of a response over HTTP/1; empty if there is none."""
        framing = self._options.framing
        if framing is None:
            return ""
        return framing.objection(truncated=self._body.truncated, content=self._content)

    def _failure(self) -> Failed:
        detail = self.flow.error.msg if self.flow.error else "no answer from the origin"
        words = in_plain_words(detail) or detail
        if words in (SELF_SIGNED, UNKNOWN_AUTHORITY):
            words += f"; to trust its authority, name it with {_authorities_option()}"
        return Failed(
            failure=self._failure_kind(detail), detail=words, about=self._failure_scope(detail)
        )

    def _failure_scope(self, detail: str) -> Scope | None:
        if detail.startswith(_BY_PARENT):
            return Scope.ROUTE
        numbers = _ERRNO.findall(detail)
        scopes = {scope_of([OSError(int(number), "")]) for number in numbers}
        return scopes.pop() if len(scopes) == 1 else None

    def _failure_kind(self, detail: str) -> Failure:
        if self._refused or (self._phase == "connect" and self.flow.response is not None):
            return Failure.REFUSED  # by the gate, or answered inside the proxy by another component
        if detail.startswith(PREFIX):
            return Failure.REFUSED  # the name resolves to a refused address
        if detail.startswith(_BY_PARENT):
            return Failure.REFUSED
        if self._phase == "connect":
            if detail.startswith("[Errno -"):  # getaddrinfo's are negative
                return Failure.DNS
            return Failure.CONNECT
        if self._phase == "TLS":
            return Failure.TLS
        if detail.startswith(("server closed", "[Errno")):
            return Failure.RESET
        return Failure.PROTOCOL
