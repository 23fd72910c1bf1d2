"""Connections: the hooks of tunnels, TLS handshakes and connections to origins, which are the third gate.

Invariant: no connection leaves the proxy unless it has a permit and the operator allows its
address. A connection that is allowed for any other reason is recorded.
"""

from __future__ import annotations

import contextlib
import logging

from cachetools import TTLCache
from mitmproxy import connection, http, tls
from mitmproxy.proxy import server_hooks

from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.guard.fetch.plain_errors import CLOSED, DISTRUSTED, in_plain_words
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.destinations import PREFIX
from robots_guard.mitmproxy.fetcher import on_behalf_of
from robots_guard.mitmproxy.permits import Permits
from robots_guard.mitmproxy.service import Service, bypassed_by, dropped_for
from robots_guard.origin import UNREADABLE, Origin, parse_authority

_MAX_ORIGINS = 8192
_BOTH = frozenset((b"h2", b"http/1.1"))
_REMEMBERED_FOR = 3600.0  # after which an origin is offered HTTP/2 once more


class AlpnCache:
    """The protocol each origin chose, by host and port.

    The proxy connects to an origin only when a request is permitted, so a client has agreed on
    HTTP/2 with the proxy before it is known whether the origin speaks it. If it does not, mitmproxy
    makes a new connection for each request. So the origin's choice is remembered, and the next
    client is offered the protocol that its origin speaks.
    """

    def __init__(self) -> None:
        self._last: TTLCache[tuple[str, int], bytes] = TTLCache(
            _MAX_ORIGINS, _REMEMBERED_FOR, timer=CLOCKS.monotonic
        )

    def remember(self, data: tls.TlsData) -> None:
        """Remember an origin's choice, unless it was not offered HTTP/2."""
        address = data.context.server.address
        if address is not None and b"h2" in (data.conn.alpn_offers or ()):
            self._last[address[0], address[1]] = data.conn.alpn or b""

    def offer(self, data: tls.ClientHelloData) -> None:
        """Offer a client that speaks both protocols the one that its origin is known to speak."""
        address = data.context.server.address
        if address is None or not set(data.client_hello.alpn_protocols) >= _BOTH:
            return
        if self._last.get((address[0], address[1]), b"h2") != b"h2":
            data.context.client.alpn = b"http/1.1"


log = logging.getLogger("robots_guard")


class Connections:
    """An addon with the hooks of mitmproxy that concern connections. It is part of the enforcer."""

    name = "robots_guard_connections"
    unhaltable = True  # as the enforcer

    def __init__(self, service: Service, permits: Permits) -> None:
        self._service = service
        self._permits = permits
        self._alpn = AlpnCache()

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Accept a tunnel: clients hide the reason of a refused one. The requests in it are judged."""
        self._service.destinations.open_tunnel(flow.client_conn)

    async def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Decide whether a client's TLS is intercepted, and which protocol it is offered."""
        try:
            origin = self._service.passthrough.origin(data)
            if origin is not None and await self._may_pass_through(data.context.client, origin):
                self._permits.grant_tunnel(data.context.client, (origin.host, origin.port))
                data.ignore_connection = True
            else:
                self._alpn.offer(data)
        except Exception:
            log.exception("robots_guard failed; the connection is intercepted")

    async def _may_pass_through(self, client: connection.Client, origin: Origin) -> bool:
        guard = self._service.guard_or_raise().guard
        question = self._service.question_of(client, origin)
        refusal = await self._service.destinations.verdict(client, origin)
        if refusal is not None:
            guard.decide(question, refusal)
            return False
        with on_behalf_of(client):
            decision = guard.peek(question) or await guard.check(question)
        if decision.verdict.action is not Action.PASS:
            return False
        released = guard.decide(
            question, bypassed_by(f"passthrough={origin.host}", "TLS that was not inspected")
        )
        return released.verdict.action is Action.PASS

    async def tls_established_server(self, data: tls.TlsData) -> None:
        """Remember the protocol that an origin has chosen."""
        self._alpn.remember(data)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """Record a failed handshake: usually the client does not trust the proxy's CA. Nothing was sent."""
        with contextlib.suppress(SettingsError):
            guard = self._service.guard_or_raise().guard
            address = data.context.server.address
            origin = _origin_of_address(*address[:2]) if address else UNREADABLE._replace(port=443)
            client = data.context.client
            question = self._service.question_of(client, origin._replace(scheme="https"))
            guard.decide(
                question,
                dropped_for(Reason.NOT_INTERCEPTED, _describe_client_fault(data.conn.error or "")),
            )

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Refuse a connection without a permit, or to an address that the operator does not allow."""
        if data.server.error:
            return
        try:
            self._gate(data)
        except Exception as error:
            log.exception("robots_guard failed; the connection is refused")
            data.server.error = f"{PREFIX}internal error {type(error).__name__}"

    def _gate(self, data: server_hooks.ServerConnectionHookData) -> None:
        objection = self._permits.objection(data)
        opaque = ",".join(sorted(options.OPAQUE & self._service.relaxed.keys()))
        if objection is not None and opaque:
            self._enforce(bypassed_by(f"allow_unsafe={opaque}", objection), data)
        elif objection is not None:
            self._enforce(dropped_for(Reason.NOT_HTTP, objection), data)
        if (
            not data.server.error
            and (objection := self._service.destinations.objection_to_connecting(data)) is not None
        ):
            self._enforce(dropped_for(Reason.DESTINATION_REFUSED, objection), data)

    def _enforce(self, verdict: Verdict, data: server_hooks.ServerConnectionHookData) -> None:
        """Record a verdict on a connection and enforce it. One that cannot be recorded is refused, too."""
        guard = self._service.guard_or_raise().guard
        host, port = data.server.address[:2] if data.server.address else (UNREADABLE.host, 443)
        question = self._service.question_of(data.client, _origin_of_address(host, port))
        verdict = guard.decide(question, verdict).verdict
        if verdict.action is not Action.PASS:
            data.server.error = PREFIX + (verdict.detail or verdict.reason)


_REMEDY = "see robots-guard proxy ca"


def _describe_client_fault(error: str) -> str:
    """Why a client's handshake failed, in words."""
    words = in_plain_words(error) or error or "no TLS with the client"
    if words == DISTRUSTED:
        return f"the client does not trust the proxy's certificate: {_REMEDY}"
    if words == CLOSED:  # Node, for one, sends no alert
        return (
            "the client closed the connection during the TLS handshake, as some do that do not"
            f" trust the proxy's certificate: {_REMEDY}"
        )
    return f"TLS with the client failed: {words}"


def _origin_of_address(host: str, port: int) -> Origin:
    host = f"[{host}]" if ":" in host else host
    try:
        return parse_authority("https" if port == 443 else "http", f"{host}:{port}")
    except MalformedURL:
        return UNREADABLE._replace(port=port)
