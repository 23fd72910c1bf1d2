"""Connections: what is not a request. Tunnels, handshakes, and the third gate, at which each connection must stop.

The law of this file: no connection leaves the proxy unless a permit speaks for it and its address is one the
operator allows; whatever is let out on another ground is on record.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod

from mitmproxy import connection, ctx, http, tls
from mitmproxy.proxy import server_hooks

from robots_guard.core.verdict import Action, Decision, Question, Reason, Verdict
from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.guard import Guard
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.alpn import Spoken
from robots_guard.mitmproxy.fetcher import on_behalf_of
from robots_guard.mitmproxy.passthrough import Passthrough
from robots_guard.mitmproxy.permits import Permits
from robots_guard.mitmproxy.ways import PREFIX, Addresses, Ways
from robots_guard.mitmproxy.wire import UNREADABLE, Wire
from robots_guard.mitmproxy.write_gate import WriteGate
from robots_guard.origin import Origin, parse_authority
from robots_guard.settings import ProxySettings, parts

log = logging.getLogger("robots_guard")


class Connections(ABC):
    """The hooks of connections."""

    def __init__(self, settings: ProxySettings) -> None:
        self._permits = Permits()
        self.write_gate = WriteGate(self._permits, self._record_unsent, self._leaves)
        self._spoken = Spoken()
        self._relaxed: dict[str, str] = {}
        self._go_by(settings)

    def _go_by(self, settings: ProxySettings) -> None:
        self._ways = Ways(settings, _listening)
        self._passthrough = Passthrough(parts(settings.passthrough))

    @abstractmethod
    def _ready(self) -> tuple[Guard, ProxySettings]:
        """The guard. Raises SettingsError while there is a fault."""

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """A tunnel is not refused, for clients hide why; what is asked for in it is judged."""
        self._ways.entered(flow.client_conn)

    async def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Before a client's TLS: whether we look into it, and what we speak."""
        try:
            origin = self._passthrough.origin(data)
            if origin is not None and await self._may_pass_through(data.context.client, origin):
                self._permits.grant_tunnel(data.context.client, (origin.host, origin.port))
                data.ignore_connection = True
            else:
                self._spoken.suggest(data)
        except Exception:
            log.exception("robots_guard failed; the connection is looked into")

    async def _may_pass_through(self, client: connection.Client, origin: Origin) -> bool:
        guard, settings = self._ready()
        question = _connecting(client, origin, settings.agent)
        refusal = await self._ways.verdict(client, origin)
        if refusal is not None:
            guard.decide(question, refusal)
            return False
        with on_behalf_of(client):
            decision = guard.peek(question) or await guard.check(question)
        if decision.verdict.action is not Action.PASS:
            return False
        released = guard.decide(question, let_by(f"passthrough={origin.host}", "TLS that nobody looked into"))
        return released.verdict.action is Action.PASS

    @abstractmethod
    def _leaves(self, decision: Decision) -> Decision:
        """A request is written now: the decision, with its turn counted from now."""

    async def tls_established_server(self, data: tls.TlsData) -> None:
        """An origin has said what it speaks."""
        self._spoken.heard(data)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """Most often a client that does not trust us; nothing of it has gone out."""
        with contextlib.suppress(SettingsError):
            guard, settings = self._ready()
            address = data.context.server.address
            origin = _origin_of_address(*address[:2]) if address else Origin("https", UNREADABLE, 443)
            question = _connecting(data.context.client, origin._replace(scheme="https"), settings.agent)
            guard.decide(question, _refused(Reason.NOT_INTERCEPTED, data.conn.error or "no TLS with the client"))

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """No permit, no connection; none either to where the operator does not want us."""
        if data.server.error:
            return
        try:
            self._gate(data)
        except Exception as error:
            log.exception("robots_guard failed; the connection is refused")
            data.server.error = f"{PREFIX}internal error {type(error).__name__}"

    def _gate(self, data: server_hooks.ServerConnectionHookData) -> None:
        objection = self._permits.objection(data)
        opaque = ",".join(sorted(options.OPAQUE & self._relaxed.keys()))
        if objection is not None and opaque:
            self._abide_by(let_by(f"allow_unsafe={opaque}", objection), data)
        elif objection is not None:
            self._abide_by(_refused(Reason.NOT_HTTP, objection), data)
        if not data.server.error and (objection := self._ways.objection_to_connecting(data)) is not None:
            self._abide_by(_refused(Reason.DESTINATION_REFUSED, objection), data)

    def _abide_by(self, verdict: Verdict, data: server_hooks.ServerConnectionHookData) -> None:
        """Record a verdict on a connection; what cannot be recorded is refused, too."""
        guard, settings = self._ready()
        host, port = data.server.address[:2] if data.server.address else (UNREADABLE, 443)
        question = _connecting(data.client, _origin_of_address(host, port), settings.agent)
        verdict = guard.decide(question, verdict).verdict
        if verdict.action is not Action.PASS:
            data.server.error = PREFIX + (verdict.detail or verdict.reason)

    def _record_unsent(self, request: http.Request, client: connection.Client, why: str) -> Decision:
        """Put on record that a request was stopped at the write."""
        log.warning("robots_guard: %s, and is not sent: %s", why, request.pretty_url)
        guard, settings = self._ready()
        question, _ = Wire.of(request, client).question(settings.agent)
        return guard.decide(question, _refused(Reason.NOT_JUDGED, why))


def _listening() -> Addresses:
    servers = ctx.master.addons.get("proxyserver")
    return servers.listen_addrs() if servers is not None else ()


def let_by(setting: str, why: str) -> Verdict:
    """What passes because an operator said so, by which setting."""
    return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=setting, detail=why)


def _connecting(client: connection.Client, origin: Origin, agent: str) -> Question:
    """The question of a connection that is not a request."""
    peer = str(client.peername[0]) if client.peername else ""
    return Question(origin=origin, target="/", agent=agent, method="CONNECT", client=peer)


def _origin_of_address(host: str, port: int) -> Origin:
    host = f"[{host}]" if ":" in host else host
    try:
        return parse_authority("https" if port == 443 else "http", f"{host}:{port}")
    except MalformedURL:
        return Origin("http", UNREADABLE, port)


def _refused(reason: Reason, why: str) -> Verdict:
    return Verdict(action=Action.DROP, reason=reason, detail=why)
