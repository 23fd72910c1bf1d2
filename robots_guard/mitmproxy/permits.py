"""Permits: the flows that may reach an origin, kept from the verdict until the flow has ended.

Invariant: no connection leaves the proxy unless a flow of that very client has been permitted and
has not ended. Permits know nothing of robots.txt. They are checked in `server_connect`, the one
hook that sees raw TCP, UDP, ignored hosts, early connections and replays alike.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.gateway.wire import Wire
from robots_guard.mitmproxy.destinations import Client, client_of
from robots_guard.mitmproxy.wire import Approved, wire_of

Address = tuple[str, int]


class Destination(NamedTuple):
    """The address a connection leads to; `tls` is None for a tunnel, whose content is not inspected."""

    host: str
    port: int
    tls: bool | None

    def is_of(self, server: connection.Server) -> bool:
        """Whether a connection leads to this destination."""
        if server.address is None or server.address[:2] != (self.host, self.port):
            return False
        return self.tls is None or self.tls == server.tls


def _snapshot(request: http.Request) -> tuple[object, ...]:
    """All of a request but its body. Header fields are a tuple, so comparing is cheap."""
    data = request.data
    return (
        data.headers.fields,
        data.path,
        data.host,
        data.port,
        data.method,
        data.scheme,
        data.authority,
        data.http_version,
    )


def destination_of(request: http.Request) -> Destination:
    """The destination mitmproxy connects to for a request."""
    data = request.data
    return Destination(data.host, data.port, tls=data.scheme == b"https")


class JudgedRequest(NamedTuple):
    """A request as it was judged: the parts the verdict rests on, and a snapshot that is faster to compare.

    `held` is how many seconds the request was held, because it was deferred for a short time.
    """

    wire: Wire
    request: tuple[object, ...]
    held: float = 0.0

    @classmethod
    def of(cls, flow: http.HTTPFlow) -> JudgedRequest:
        """Capture a flow's request as it is now."""
        return cls(wire_of(flow.request, flow.client_conn), _snapshot(flow.request))


class PassedFlow(NamedTuple):
    """A flow that a decision permitted, as it was then. The proxy's own fetches have no decision.

    `request` is a snapshot of the request, `approved` what the verdict rests on; only a change of
    the latter matters. `sealed` is the object that may be written, set after the last hook before
    the wire. `is_sent`: it was written. `held` is that of `JudgedRequest`.
    """

    client: Client
    approved: Approved
    request: tuple[object, ...]
    decision_id: str = ""
    sealed: http.Request | None = None
    is_sent: bool = False
    held: float = 0.0

    def is_still(self, request: http.Request, client: connection.Client) -> bool:
        """Whether the request would still get the same verdict."""
        return _snapshot(request) == self.request or wire_of(request, client) == self.approved.wire


class RefusedFlow(NamedTuple):
    """A flow that was refused with this response."""

    client: Client
    response: http.Response


class AnsweredFlow(NamedTuple):
    """A flow that another component of the proxy answered before it was judged."""

    client: Client


FlowState = PassedFlow | RefusedFlow | AnsweredFlow


class Permits:
    """The state of each live flow. `on_release` is called with the id of a decision that no flow has any more."""

    def __init__(self, on_release: Callable[[str], None] = lambda _: None) -> None:
        self._on_release = on_release
        self._states: dict[str, FlowState] = {}
        self._permitted: dict[Client, dict[str, Destination]] = {}
        self._sealed: dict[int, str] = {}  # the flow of a request, by the identity of the object

    def state_of(self, flow: http.HTTPFlow) -> FlowState | None:
        """The state of a flow; None if it has not been judged."""
        return self._states.get(flow.id)

    def sealed_permit(self, request: http.Request) -> PassedFlow | None:
        """The permit by which this very object may be written; None if there is none any more."""
        state = self._states.get(self._sealed.get(id(request), ""))
        if isinstance(state, PassedFlow) and state.sealed is request:
            return state
        return None

    def grant(
        self,
        flow: http.HTTPFlow,
        approved: Approved,
        request: tuple[object, ...],
        decision_id: str = "",
        held: float = 0.0,
    ) -> None:
        """Let a flow reach the origin it was judged for; `request` is the snapshot of that moment."""
        data, host = flow.request.data, approved.origin.host
        if data.host != host:  # another spelling: connect to the host of the verdict
            data.host = host
            approved, request = replace(approved, wire=approved.wire._replace(host=host)), ()
        client = client_of(flow.client_conn)
        self._states[flow.id] = PassedFlow(client, approved, request, decision_id, held=held)
        self._permitted.setdefault(client, {})[flow.id] = destination_of(flow.request)

    def seal(self, flow: http.HTTPFlow) -> None:
        """Allow the request to be written as it is now. No further hook is called before that."""
        state = self._states[flow.id]
        assert isinstance(state, PassedFlow)
        self._unseal(state)
        self._states[flow.id] = state._replace(sealed=flow.request)
        self._sealed[id(flow.request)] = flow.id

    def _unseal(self, state: PassedFlow) -> None:
        if state.sealed is not None:
            self._sealed.pop(id(state.sealed), None)

    def grant_tunnel(self, client: connection.Client, address: Address) -> None:
        """Let a client reach an address with any bytes until it disconnects."""
        self._permitted.setdefault(client_of(client), {})["tunnel"] = Destination(
            *address, tls=None
        )

    def under_way(self, apart_from: AbstractSet[str]) -> int:
        """The number of permitted flows that have not ended, without those with the ids in `apart_from`."""
        passed = (
            flow_id for flow_id, state in self._states.items() if isinstance(state, PassedFlow)
        )
        return sum(flow_id not in apart_from for flow_id in passed)

    def refuse(self, flow: http.HTTPFlow, response: http.Response) -> None:
        """Record that the flow was refused with this response."""
        self.release(flow)
        self._states[flow.id] = RefusedFlow(client_of(flow.client_conn), response)

    def refuse_sealed(self, request: http.Request, response: http.Response) -> None:
        """Record that the flow of a sealed request was refused with this response."""
        flow_id = self._sealed[id(request)]
        client = self._states[flow_id].client
        self._release(flow_id)
        self._states[flow_id] = RefusedFlow(client, response)

    def mark_answered_elsewhere(self, flow: http.HTTPFlow) -> None:
        """Record that another component has answered the flow."""
        self.release(flow)
        self._states[flow.id] = AnsweredFlow(client_of(flow.client_conn))

    def release(self, flow: http.HTTPFlow) -> None:
        """Drop the state of a flow that has ended or is judged anew."""
        self._release(flow.id)

    def _release(self, flow_id: str) -> None:
        state = self._states.pop(flow_id, None)
        if isinstance(state, PassedFlow):
            self._end(state)
            live = self._permitted.get(state.client, {})
            live.pop(flow_id, None)
            if not live:
                self._permitted.pop(state.client, None)

    def forget(self, client: connection.Client) -> None:
        """Drop all permits and states of a client that has disconnected."""
        gone = client_of(client)
        self._permitted.pop(gone, None)
        for flow_id in [flow_id for flow_id, state in self._states.items() if state.client == gone]:
            state = self._states.pop(flow_id)
            if isinstance(state, PassedFlow):
                self._end(state)

    def _end(self, state: PassedFlow) -> None:
        self._unseal(state)
        self._on_release(state.decision_id)

    def unsent(self, client: connection.Client) -> list[str]:
        """The ids of the decisions on the client's requests that wait for a connection."""
        states = [
            self._states.get(flow_id) for flow_id in self._permitted.get(client_of(client), ())
        ]
        return [
            state.decision_id
            for state in states  # a tunnel has no state
            if isinstance(state, PassedFlow)
            and state.sealed is not None
            and not state.is_sent
            and state.decision_id
        ]

    def send(self, request: http.Request, mark_sent: Callable[[str], bool]) -> bool:
        """Mark a sealed request as sent. Returns False if `mark_sent` does: it must not be written."""
        flow_id = self._sealed[id(request)]
        state = self._states[flow_id]
        assert isinstance(state, PassedFlow)
        self._states[flow_id] = state._replace(is_sent=True)
        return not state.decision_id or mark_sent(state.decision_id)

    def objection(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None."""
        live = self._permitted.get(client_of(data.client))
        if not live:
            return "no permitted HTTP request for this connection"
        mode = data.client.proxy_mode
        if isinstance(mode, mode_specs.UpstreamMode):
            is_permitted = (
                data.server.address is not None and data.server.address[:2] == mode.address
            )
        else:
            is_permitted = any(destination.is_of(data.server) for destination in live.values())
        if is_permitted:
            return None
        return "the destination was not permitted"

    def __len__(self) -> int:
        """The number of tracked flows."""
        return len(self._states)
