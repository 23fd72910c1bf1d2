"""The enforcer: the last link of mitmproxy's addon chain, and the three gates a request must pass.

    requestheaders   decides, before a body is read or a connection made
    request          decides again if anything the verdict rests on has changed since
    server_connect   lets a connection out only for a client with a live permit

The law of this file: deny first. A refusal is set on entry and taken away by an explicit PASS only, because
mitmproxy forwards a request whose addon has raised. Whatever is missing, not ready or broken refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet

from mitmproxy import addonmanager, connection, ctx, exceptions, http
from mitmproxy.addons.upstream_auth import parse_upstream_auth
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.core.verdict import Action, Decision, Question, Reason, Verdict
from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.guard import Guard
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.fetcher import MitmFetcher, on_behalf_of
from robots_guard.mitmproxy.permits import Passed, Permits, Refused
from robots_guard.mitmproxy.replies import Reply, itself, reply_to, unready
from robots_guard.mitmproxy.uploads import Refusal
from robots_guard.mitmproxy.wire import UNREADABLE, Wire
from robots_guard.origin import Origin, parse_authority
from robots_guard.ports import Fetcher
from robots_guard.runtime import AsyncioRuntime
from robots_guard.settings import Settings, direct_fetcher, open_guard

log = logging.getLogger("robots_guard")

DOOR = "mitmproxy"
_OVERRIDES = ("x-original-url", "x-rewrite-url")
_FORWARD = (mode_specs.RegularMode, mode_specs.UpstreamMode)


class Enforcer:
    """Judges every flow. Usable as soon as it is loaded, and shut until it is configured without a fault.

    Settings come from mitmproxy's options, or are given by who has them already.
    """

    name = "robots_guard_enforcer"

    def __init__(self, settings: Settings | None = None) -> None:
        self._given = settings
        self._settings: Settings | None = None
        self._fault: str | None = "robots_guard is not configured"
        self._shut: str | None = None
        self._running = False
        self._guard: Guard | None = None
        self._fetcher: MitmFetcher | None = None
        self._permits = Permits()

    # -- coming and going ---------------------------------------------------------------------------------

    def load(self, loader: addonmanager.Loader) -> None:
        """Add our options."""
        if self._given is None:
            options.declare(loader)

    def configure(self, updated: AbstractSet[str]) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Take the settings over, or find out why not.

        Until the proxy runs, options come one by one, so a fault is only kept; `running` tells it. After that,
        raising undoes the change.
        """
        try:
            self._configure()
        except SettingsError as error:
            if self._running:
                raise exceptions.OptionsError(str(error)) from None
            self._fault = str(error)

    def _configure(self) -> None:
        if self._shut is not None:
            raise SettingsError(self._shut)
        options.insist(ctx.options)
        settings = self._given or options.settings_among(ctx.options)
        if self._running and settings != self._settings:
            raise SettingsError("robots_guard's options cannot be changed while the proxy runs: restart it")
        if settings != self._settings:
            self._close()
        self._settings = settings
        self._fault = None

    def shut(self, fault: str) -> None:
        """Refuse everything, for good, and say why when the proxy begins to run."""
        self._fault = self._shut = fault

    def running(self) -> None:
        """The last moment to complain: an error told here ends mitmproxy's start with exit status 1."""
        if self._running:
            return
        self._take_last_place()
        try:
            _, settings = self._ready()
            log.info("robots_guard: guarding %s, journal in %s", settings.agent, settings.journal)
        except SettingsError as error:
            self._fault = str(error)
            log.error("robots_guard: %s", error)
        self._running = True

    def done(self) -> None:
        """Release store and journal; from now on everything is refused."""
        self._fault = "robots_guard is shutting down"
        self._close()

    def _close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._guard = self._fetcher = None

    def _ready(self) -> tuple[Guard, Settings]:
        """The guard, opened when it is first needed. Raises SettingsError while there is a fault."""
        if self._fault is not None or self._settings is None:
            raise SettingsError(self._fault or "robots_guard is not configured")
        if self._guard is None:
            settings = self._settings
            fetcher = self._new_fetcher(settings)
            self._guard = open_guard(settings, door=DOOR, runtime=AsyncioRuntime(), fetcher=fetcher)
            self._fetcher = fetcher if isinstance(fetcher, MitmFetcher) else None
        return self._guard, self._settings

    def _new_fetcher(self, settings: Settings) -> Fetcher:
        if settings.fetch == "direct":  # whoever may use the proxy names the origins: none of them is trusted
            authorities = ctx.options.ssl_verify_upstream_trusted_ca
            return direct_fetcher(settings, trusts_asked=False, authorities=authorities)
        return MitmFetcher(self._permits, user_agent=settings.fetch_user_agent)

    def _take_last_place(self) -> None:
        """An addon behind us could change what we have judged. A new list, for the old one is being walked."""
        chain = ctx.master.addons.chain
        if chain and chain[-1] is not self:
            ctx.master.addons.chain = [*(addon for addon in chain if addon is not self), self]

    def _is_last(self) -> bool:
        return ctx.master.addons.chain[-1] is self

    def _outrun(self, flow: http.HTTPFlow) -> None:
        """Who is behind us now will have this hook after us, and could change whatever we let pass."""
        self._take_last_place()
        self._refuse(flow, unready("An addon was added behind the guard.", method=flow.request.method))

    def client_connected(self, client: connection.Client) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Be last before the first request comes: later, it costs a request to be so."""
        self._take_last_place()

    # -- first gate: before the body ----------------------------------------------------------------------

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Decide."""
        if self._is_ours(flow):
            return
        if flow.response is not None or flow.error is not None:
            self._permits.leave(flow)
            return
        if not self._is_last():
            self._outrun(flow)
            return
        if _is_for_us(flow):
            self._refuse(flow, itself(method=flow.request.method))
            return
        await self._decide(flow)

    async def _decide(self, flow: http.HTTPFlow) -> None:
        self._refuse(flow, unready("The guard could not reach a verdict.", method=flow.request.method))
        try:
            wire = Wire.of(flow)
            decision = await self._judge(flow, wire)
            if decision.verdict.action is Action.PASS:
                self._let_pass(flow, decision, wire)
            else:
                accept = flow.request.headers.get("accept", "")
                self._refuse(flow, reply_to(decision, method=flow.request.method, accept=accept))
            flow.metadata["robots_guard"] = _noted(decision)
        except SettingsError as error:
            self._refuse(flow, unready(f"The guard is not ready: {error}", method=flow.request.method))
        except Exception:
            log.exception("robots_guard failed; the request is refused")

    async def _judge(self, flow: http.HTTPFlow, wire: Wire) -> Decision:
        guard, settings = self._ready()
        question, verdict = wire.question(settings.agent)
        if verdict is not None:
            return guard.decide(question, verdict)
        with on_behalf_of(flow):
            return guard.peek(question) or await guard.check(question)

    def _let_pass(self, flow: http.HTTPFlow, decision: Decision, wire: Wire) -> None:
        wire = _settle_names(flow, decision.question.origin, wire)
        _strip_upgrade(flow.request.headers)
        _settle_credentials(flow)
        if self._settings is not None and self._settings.matching == "strict":
            _strip_overrides(flow.request.headers)
        self._permits.grant(flow, wire)
        flow.response = None

    def _refuse(self, flow: http.HTTPFlow, reply: Reply) -> None:
        response = Refusal.make(reply.status, reply.body, dict(reply.headers))
        if flow.request.method == "HEAD":
            del response.headers["content-length"]  # nobody knows what a GET would have been answered with
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        flow.response = response
        self._permits.refuse(flow, response)

    # -- second gate: the last hook before the wire -------------------------------------------------------

    async def request(self, flow: http.HTTPFlow) -> None:
        """Hold the flow against what was decided."""
        if self._is_ours(flow):
            return
        stand = self._permits.of(flow)
        if isinstance(stand, Refused):
            flow.response = stand.response
        elif flow.response is not None:
            self._permits.leave(flow)
        elif not isinstance(stand, Passed):
            await self._decide(flow)
        elif not flow.request.stream:  # a streamed one is on its way already, and cannot be changed
            await self._verify(flow, stand.wire)
        flow.request.trailers = None  # an HTTP/1 writer would pass their line breaks on

    async def _verify(self, flow: http.HTTPFlow, wire: Wire | None) -> None:
        if not self._is_last():
            self._outrun(flow)
        elif Wire.of(flow) != wire:
            await self._decide(flow)

    # -- third gate: connections --------------------------------------------------------------------------

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """No permit, no connection."""
        if data.server.error:
            return
        try:
            objection = self._permits.objection(data)
            if objection is not None:
                data.server.error = f"robots_guard: {objection}"
                self._record_connection(data)
        except Exception as error:
            log.exception("robots_guard failed; the connection is refused")
            data.server.error = f"robots_guard: internal error {type(error).__name__}"

    def _record_connection(self, data: server_hooks.ServerConnectionHookData) -> None:
        guard, settings = self._ready()
        host, port = data.server.address[:2] if data.server.address else (UNREADABLE, 443)
        question = Question(
            origin=_origin_of_address(host, port),
            target="/",
            agent=settings.agent,
            method="CONNECT",
            client=str(data.client.peername[0]) if data.client.peername else "",
        )
        guard.decide(question, Verdict(action=Action.DROP, reason=Reason.NOT_HTTP, detail=data.server.error))

    # -- afterwards ---------------------------------------------------------------------------------------

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """A tripwire: an answer to a flow nobody let pass means that a gate has failed."""
        if not self._is_ours(flow) and self._permits.of(flow) is None:
            log.error("robots_guard: %r was answered without a verdict; please report this", flow.request.url)
            flow.kill()

    def response(self, flow: http.HTTPFlow) -> None:
        """The flow is over."""
        self._over(flow)
        self._take_last_place()

    def error(self, flow: http.HTTPFlow) -> None:
        """The flow is over."""
        self._over(flow)

    def _over(self, flow: http.HTTPFlow) -> None:
        if not self._is_ours(flow):
            self._permits.release(flow)

    def client_disconnected(self, client: connection.Client) -> None:
        """Nothing stands open for a client that has gone."""
        self._permits.forget(client)

    def _is_ours(self, flow: http.HTTPFlow) -> bool:
        return self._fetcher is not None and self._fetcher.owns(flow)


def _is_for_us(flow: http.HTTPFlow) -> bool:
    """Whether a client has opened the proxy's own address as if it were a site: no site's trouble, nor a loop."""
    client, request = flow.client_conn, flow.request
    if not isinstance(client.proxy_mode, _FORWARD) or request.scheme != "http" or request.port != client.sockname[1]:
        return False
    own = str(client.sockname[0])
    return request.host == own or (request.host == "localhost" and own in ("127.0.0.1", "::1"))


def _settle_names(flow: http.HTTPFlow, origin: Origin, wire: Wire) -> Wire:
    """What goes out names the origin that was judged (RFC 9112 section 3.2.2). Returns the wire as it is then."""
    if wire.addressed and wire.host != origin.host:
        flow.request.data.host = origin.host  # a name was judged: go where it leads, not where the client says
        wire = wire._replace(host=origin.host)
    if flow.request.http_version.startswith("HTTP/1") and "host" not in flow.request.headers:
        flow.request.headers.insert(0, "Host", origin.authority)
        wire = wire._replace(hosts=(origin.authority,))
    return wire


def _settle_credentials(flow: http.HTTPFlow) -> None:
    """What a client says to a proxy ends here (RFC 9110 section 11.7.1); a parent proxy hears our own, if any."""
    headers = flow.request.headers
    headers.pop("proxy-connection", None)
    headers.pop("proxy-authorization", None)
    auth = ctx.options.upstream_auth if "upstream_auth" in ctx.options else None
    if auth and flow.request.scheme == "http" and isinstance(flow.client_conn.proxy_mode, mode_specs.UpstreamMode):
        headers["Proxy-Authorization"] = parse_upstream_auth(auth)  # was there already, not to be told from a client's


def _strip_overrides(headers: http.Headers) -> None:
    """Some servers (IIS rewriting, Symfony, Zend) go by these instead of the target: another page than was judged."""
    for name in _OVERRIDES:
        headers.pop(name, None)


def _strip_upgrade(headers: http.Headers) -> None:
    """What a connection becomes after another upgrade than to WebSocket, nobody here could judge."""
    if "upgrade" not in headers or headers["upgrade"].strip().lower() == "websocket":
        return
    del headers["upgrade"]
    headers.pop("http2-settings", None)
    kept = [part for part in headers.get("connection", "").split(",") if part.strip().lower() != "upgrade"]
    headers.pop("connection", None)
    if any(part.strip() for part in kept):
        headers["connection"] = ",".join(kept).strip()


def _origin_of_address(host: str, port: int) -> Origin:
    host = f"[{host}]" if ":" in host else host
    try:
        return parse_authority("https" if port == 443 else "http", f"{host}:{port}")
    except MalformedURL:
        return Origin("http", UNREADABLE, port)


def _noted(decision: Decision) -> dict[str, str]:
    """For other addons and for saved flows."""
    verdict = decision.verdict
    return {"action": str(verdict.action), "reason": str(verdict.reason), "id": decision.id}
