"""Fetches robots.txt through mitmproxy's own outgoing stack: the way the pages travel.

Same upstream proxy and its credentials, same CA and client-certificate options, same address to connect from. One
hop and no more: redirects are the core's. The machinery is mitmproxy's ReplayHandler, which is no public
interface; all that is known of it is known here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mitmproxy import connection, ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.proxy import commands, events, mode_specs, server_hooks
from mitmproxy.proxy.layers.http._hooks import HttpResponseHeadersHook
from mitmproxy.proxy.layers.tls import TlsEstablishedServerHook
from mitmproxy.utils import human

from robots_guard.core.access import Failed, Failure, Fetched, FetchOutcome, Get
from robots_guard.core.addresses import is_public, literal
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.fetch.decoding import Plain, Undecodable, decoder
from robots_guard.fetch.fields import BadFields, joined
from robots_guard.fetch.framing import Framing
from robots_guard.mitmproxy.outgoing import Approved
from robots_guard.mitmproxy.patches.received import ShownTo
from robots_guard.mitmproxy.permits import Permits, Seen
from robots_guard.mitmproxy.ways import ITSELF, PREFIX
from robots_guard.origin import Origin, split_url
from robots_guard.rep.paths import malformed

_PRIVATE = "{} is not public, and a public site redirected there"
HEAD_CAP = 256 * 1024  # octets beside the body: heads, chunk sizes, TLS records

_REGULAR = "regular"

_way_out: ContextVar[str | None] = ContextVar("robots_guard_way_out", default=None)


def _usual_way() -> str:
    """Without a request to go by, never past a parent proxy."""
    return next((spec for spec in ctx.options.mode if spec.startswith("upstream:")), _REGULAR)


@contextmanager
def on_behalf_of(client: connection.Client) -> Iterator[None]:
    """Fetches that begin in here, also in tasks begun in here, go the way this client's requests would go."""
    mode = client.proxy_mode
    # A reverse mode would put credentials and a Host of its own into our request: only a parent proxy matters.
    spec = mode.full_spec if isinstance(mode, mode_specs.UpstreamMode) else _REGULAR
    token = _way_out.set(spec)
    try:
        yield
    finally:
        _way_out.reset(token)


class MitmFetcher:
    """The Fetcher of the proxy, under the operator's own name. `own` are the ids of its flows under way.

    Not under that of the request which was first to need the file: a client could choose a name that a site answers
    otherwise, and the answer holds for every client.
    """

    via = "mitmproxy"
    _numbers = itertools.count(1)

    def __init__(self, permits: Permits, *, user_agent: str) -> None:
        self._permits = permits
        self._user_agent = user_agent
        self.own: set[str] = set()

    def owns(self, flow: http.HTTPFlow) -> bool:
        """Whether a flow is a fetch of ours. Known by its id, because anybody can write metadata into a flow."""
        return flow.id in self.own

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop."""
        try:
            origin, target = split_url(get.url)
            if fault := malformed(target):
                return Failed(failure=Failure.PROTOCOL, detail=f"malformed target: {fault}")
            spelt = literal(origin.host)
            if get.public_only and spelt is not None and not is_public(spelt):
                return Failed(failure=Failure.REFUSED, detail=_PRIVATE.format(spelt))
            return await self._fetch(origin, target, get, _way_out.get() or _usual_way())
        except (MalformedURL, NotGoverned) as error:
            return Failed(failure=Failure.PROTOCOL, detail=str(error))
        except Exception as error:  # noqa: BLE001  a Fetcher never raises
            return Failed(failure=Failure.INTERNAL, detail=type(error).__name__)

    async def _fetch(self, origin: Origin, target: str, get: Get, mode: str) -> FetchOutcome:
        flow = self._flow(origin, target, (("User-Agent", self._user_agent), *get.headers), mode)
        self.own.add(flow.id)
        seen = Seen.of(flow)
        self._permits.grant(flow, Approved(origin, seen.wire), seen.request)
        self._permits.seal(flow)
        try:
            return await _Hop(flow, mode, get).outcome()
        finally:
            self._permits.release(flow)
            self.own.discard(flow.id)

    def _flow(self, origin: Origin, target: str, fields: tuple[tuple[str, str], ...], mode: str) -> http.HTTPFlow:
        client = connection.Client(
            peername=ITSELF,
            sockname=ITSELF,
            timestamp_start=-float(next(self._numbers)),  # with the name above, no other client's identity
            alpn_offers=[b"h2", b"http/1.1"],
            proxy_mode=mode_specs.ProxyMode.parse(mode),
        )
        flow = http.HTTPFlow(client, connection.Server(address=(origin.host, origin.port)))
        flow.request = _request(origin, target, fields)
        flow.is_replay = "request"  # proxyauth asks nothing of a replay
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
        headers=http.Headers([(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]),
        content=b"",
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=0.0,
    )


def _parent(mode: str) -> str:
    """Host and port of the parent proxy of a mode, without credentials; empty if there is none."""
    spec = mode_specs.ProxyMode.parse(mode)
    return human.format_address(spec.address) if isinstance(spec, mode_specs.UpstreamMode) else ""


class _Options(ShownTo):
    """mitmproxy's options with another mode: a ReplayHandler looks at the first one only. What an answer over HTTP/1
    is made of is shown to `framing`, None while no such answer has begun. `had_fin`: the peer has ended
    its side of the TCP connection, which did not break."""

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
    """One request and its answer, with a deadline that moves on as the phases pass and a cap on what is read."""

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
        self._octets = 0
        self._fields: dict[str, str] = {}
        self._body = Plain(0)
        self._content = 0  # bytes that mitmproxy gave as content
        self._undecodable = ""
        self._deadline = asyncio.timeout(None)
        self._end = 0.0

    async def outcome(self) -> FetchOutcome:
        """Run to the end, the cap or the deadline; no connection outlives this."""
        self._end = asyncio.get_running_loop().time() + self._limits.total
        try:
            async with self._deadline:
                self._allow(self._limits.connect)
                await self.replay()
        except TimeoutError:
            return Failed(failure=Failure.TIMEOUT, detail=f"no answer in time ({self._phase})")
        finally:
            await self._hang_up()
        return self._answer() or self._failure()

    def _allow(self, seconds: float) -> None:
        """So long for the next phase, but never beyond the end."""
        if not self._deadline.expired() and not self.done.is_set():
            self._deadline.reschedule(min(self._end, asyncio.get_running_loop().time() + seconds))

    async def _hang_up(self) -> None:
        handlers = [transport.handler for transport in self.transports.values() if transport.handler]
        for handler in handlers:
            handler.cancel()
        if handlers:
            await asyncio.wait(handlers, timeout=1.0)

    # -- what mitmproxy tells us on the way ---------------------------------------------------------------

    async def handle_hook(self, hook: commands.StartHook) -> None:
        """Note how far we are; then let the addons have their hook."""
        if isinstance(hook, server_hooks.ServerConnectedHook):
            self._arrived(hook.data.server)
            self._reached("TLS" if self._tls else "answer")
        elif isinstance(hook, TlsEstablishedServerHook):
            self._reached("answer")
        await super().handle_hook(hook)
        if isinstance(hook, server_hooks.ServerConnectHook):
            self._refused = hook.data.server.error is not None
        elif isinstance(hook, HttpResponseHeadersHook) and self.flow.response is not None:
            self._allow(self._limits.total)
            self._take(self.flow.response)

    def _arrived(self, server: connection.Server) -> None:
        """Look at the address before anything is sent to it; behind another proxy only a host that spells one."""
        address = literal(self.flow.request.host if self._parent else (server.peername or ("",))[0])
        self._public = None if address is None else is_public(address)
        if self._public_only and self._public is False:
            self._private = _PRIVATE.format(address)
            self.done.set()

    def _reached(self, phase: str) -> None:
        self._phase = phase
        if phase == "answer":
            self._allow(self._limits.first_byte)

    def _take(self, response: http.Response) -> None:
        """The body goes to our sink; only that of a 2xx says anything."""
        try:
            self._fields = joined(response.headers.fields)
            coding = self._fields.get("content-encoding", "") if 200 <= response.status_code < 300 else ""
            self._body = decoder(coding, self._limits.max_body)
        except (BadFields, Undecodable) as error:
            self._undecodable = str(error)
        response.stream = self._sink

    def _sink(self, data: bytes) -> bytes:
        """Keep what fits; stop the hop at the cap. Nobody else gets the body."""
        self._content += len(data)
        try:
            if data:
                self._body.feed(data)
            else:
                self._body.end()
        except Undecodable as error:
            self._undecodable = str(error)
        if self._undecodable or self._body.truncated:
            self.done.set()
        return b""

    async def server_event(self, event: events.Event) -> None:
        """mitmproxy bounds no head; the deadline bounds its time, this its size. To the wrong address nothing goes."""
        if self._private:
            return
        if isinstance(event, events.DataReceived):
            self._octets += len(event.data)
            if self._octets > self._limits.max_body + HEAD_CAP:
                self.done.set()
                return
        elif isinstance(event, events.ConnectionClosed):
            self._options.had_fin = self._has_fin(event.connection)
        await super().server_event(event)

    def _has_fin(self, ended: connection.Connection) -> bool:
        """Whether a connection ended by the peer's FIN. mitmproxy reports a reset, or our hanging up, likewise."""
        transport = self.transports.get(ended)
        reader = transport and transport.reader
        return isinstance(reader, asyncio.StreamReader) and reader.at_eof() and reader.exception() is None

    def log(self, message: str, level: int = 20, exc_info: Any = None) -> None:
        """Only what is wrong with mitmproxy itself is worth a line."""
        if level >= 40:
            super().log(message, level, exc_info)

    # -- what it came to ----------------------------------------------------------------------------------

    def _answer(self) -> Fetched | Failed | None:
        response = self.flow.response
        if self._private:
            return Failed(failure=Failure.REFUSED, detail=self._private)
        if response is None or self._phase != "answer":
            return None
        if response.status_code == 407 and self._parent:  # of the way, not of the site (RFC 9110 section 15.5.8)
            return Failed(failure=Failure.REFUSED, detail=f"the parent proxy {self._parent} asks for credentials (407)")
        if self._undecodable:
            return Failed(failure=Failure.PROTOCOL, detail=self._undecodable)
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
        )

    def _objection(self) -> str:
        """What the framing of the answer says against it; over HTTP/2 there is none to ask."""
        framing = self._options.framing
        return framing.objection(truncated=self._body.truncated, content=self._content) if framing else ""

    def _failure(self) -> Failed:
        detail = self.flow.error.msg if self.flow.error else "no answer from the origin"
        return Failed(failure=self._kind(detail), detail=detail)

    def _kind(self, detail: str) -> Failure:
        if self._refused or (self._phase == "connect" and self.flow.response is not None):
            return Failure.REFUSED  # by the gate, or answered inside the proxy by another component
        if detail.startswith(PREFIX):
            return Failure.REFUSED  # its name leads where we may not go
        if detail.startswith("Upstream proxy "):
            return Failure.REFUSED  # mitmproxy's sentence for a CONNECT the parent does not want; it names both
        if self._phase == "connect":
            return Failure.DNS if detail.startswith("[Errno -") else Failure.CONNECT  # getaddrinfo's are negative
        if self._phase == "TLS":
            return Failure.TLS
        return Failure.RESET if detail.startswith(("server closed", "[Errno")) else Failure.PROTOCOL
