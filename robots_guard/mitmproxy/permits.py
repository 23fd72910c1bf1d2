"""Permits: who may reach an origin, kept from the verdict until the flow has ended.

The law of this file: no connection leaves the proxy unless a flow of that very client has been let pass and is
not over. It knows no robots.txt; it is asked by `server_connect`, the one hook that sees raw TCP, UDP, ignored
hosts, early connections and replays alike.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.core.verdict import Decision
from robots_guard.mitmproxy.outgoing import Approved
from robots_guard.mitmproxy.ways import Client, client_of
from robots_guard.mitmproxy.wire import Wire

Address = tuple[str, int]


class Destination(NamedTuple):
    """Where a connection leads; `tls` is None for a tunnel, whose content is not inspected."""

    host: str
    port: int
    tls: bool | None

    def is_of(self, server: connection.Server) -> bool:
        """Whether a connection leads here."""
        if server.address is None or server.address[:2] != (self.host, self.port):
            return False
        return self.tls is None or self.tls == server.tls


def _as_it_is(request: http.Request) -> tuple[object, ...]:
    """Everything of a request that is not its body. Header fields are a tuple, so comparing is cheap."""
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
    """Where mitmproxy connects for a request."""
    data = request.data
    return Destination(data.host, data.port, tls=data.scheme == b"https")


class Seen(NamedTuple):
    """A request as it is judged: what of it matters, and all of it, which is compared faster."""

    wire: Wire
    request: tuple[object, ...]

    @classmethod
    def of(cls, flow: http.HTTPFlow) -> Seen:
        """As it stands now."""
        return cls(Wire.of(flow.request, flow.client_conn), _as_it_is(flow.request))


@dataclass(frozen=True, slots=True)
class Passed:
    """A flow that `decision` has let pass, as it was then.

    `request` is all of the request, `approved` what the verdict rests on; only a change of the latter matters.
    `sealed` is the object that may be written; it is set after the last hook before the wire. `is_sent`: it has been.
    """

    client: Client
    approved: Approved
    request: tuple[object, ...]
    decision: Decision | None = None
    sealed: http.Request | None = None
    is_sent: bool = False

    def is_still(self, request: http.Request, client: connection.Client) -> bool:
        """Whether the request would be judged as it was."""
        return _as_it_is(request) == self.request or Wire.of(request, client) == self.approved.wire


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused with this very response."""

    client: Client
    response: http.Response


@dataclass(frozen=True, slots=True)
class Answered:
    """Answered inside the proxy by another component, before we were asked."""

    client: Client


Stand = Passed | Refused | Answered


class Permits:
    """How each live flow stands."""

    def __init__(self) -> None:
        self._stands: dict[str, Stand] = {}
        self._passed: dict[Client, dict[str, Destination]] = {}
        self._sealed: dict[int, str] = {}  # the flow of a request, by the identity of the object

    def of(self, flow: http.HTTPFlow) -> Stand | None:
        """How a flow stands; None if nobody has judged it."""
        return self._stands.get(flow.id)

    def of_sealed(self, request: http.Request) -> Passed | None:
        """The permit by which this very object may be written; None if there is none any more."""
        stand = self._stands.get(self._sealed.get(id(request), ""))
        return stand if isinstance(stand, Passed) and stand.sealed is request else None

    def grant(
        self, flow: http.HTTPFlow, approved: Approved, request: tuple[object, ...], decision: Decision | None = None
    ) -> None:
        """Let a flow reach the origin it was judged for; `request` is all of it, as it was seen then."""
        data, host = flow.request.data, approved.origin.host
        if data.host != host:  # another spelling: the connection goes where the verdict points
            data.host = host
            approved, request = replace(approved, wire=approved.wire._replace(host=host)), ()
        client = client_of(flow.client_conn)
        self._stands[flow.id] = Passed(client, approved, request, decision)
        self._passed.setdefault(client, {})[flow.id] = destination_of(flow.request)

    def seal(self, flow: http.HTTPFlow) -> None:
        """Allow the request to be written as it is: no further hook is called before that."""
        stand = self._stands[flow.id]
        assert isinstance(stand, Passed)
        self._unseal(stand)
        self._stands[flow.id] = replace(stand, sealed=flow.request)
        self._sealed[id(flow.request)] = flow.id

    def _unseal(self, stand: Passed) -> None:
        if stand.sealed is not None:
            self._sealed.pop(id(stand.sealed), None)

    def grant_tunnel(self, client: connection.Client, address: Address) -> None:
        """Let a client reach an address, whatever it says there, until it leaves."""
        self._passed.setdefault(client_of(client), {})["tunnel"] = Destination(*address, tls=None)

    def under_way(self, apart_from: AbstractSet[str]) -> int:
        """How many flows have been let pass and are not over, but for those with these ids."""
        passed = (flow_id for flow_id, stand in self._stands.items() if isinstance(stand, Passed))
        return sum(flow_id not in apart_from for flow_id in passed)

    def refuse(self, flow: http.HTTPFlow, response: http.Response) -> None:
        """Answer a flow ourselves."""
        self.release(flow)
        self._stands[flow.id] = Refused(client_of(flow.client_conn), response)

    def leave(self, flow: http.HTTPFlow) -> None:
        """Another component has answered the flow."""
        self.release(flow)
        self._stands[flow.id] = Answered(client_of(flow.client_conn))

    def release(self, flow: http.HTTPFlow) -> None:
        """The flow is over, or is judged anew."""
        stand = self._stands.pop(flow.id, None)
        if isinstance(stand, Passed):
            self._unseal(stand)
            live = self._passed.get(stand.client, {})
            live.pop(flow.id, None)
            if not live:
                self._passed.pop(stand.client, None)

    def forget(self, client: connection.Client) -> None:
        """The client has gone: whatever stood open for it is closed."""
        gone = client_of(client)
        self._passed.pop(gone, None)
        for flow_id in [flow_id for flow_id, stand in self._stands.items() if stand.client == gone]:
            stand = self._stands.pop(flow_id)
            if isinstance(stand, Passed):
                self._unseal(stand)

    def with_turns(self, client: connection.Client) -> list[tuple[str, Decision]]:
        """The client's requests that have taken a turn and wait for a connection: their flows, and their decisions."""
        stands = [(flow_id, self._stands.get(flow_id)) for flow_id in self._passed.get(client_of(client), ())]
        return [
            (flow_id, stand.decision)
            for flow_id, stand in stands  # a tunnel has none
            if isinstance(stand, Passed) and stand.sealed is not None and not stand.is_sent
            if stand.decision is not None and stand.decision.turn is not None
        ]

    def decide(self, flow_id: str, decision: Decision) -> None:
        """Go on with another decision for a flow, if it is still let pass."""
        stand = self._stands.get(flow_id)
        if isinstance(stand, Passed):
            self._stands[flow_id] = replace(stand, decision=decision)

    def send(self, request: http.Request, leaves: Callable[[Decision], Decision]) -> bool:
        """A sealed request is written now; whether it may be, by what `leaves` says of its decision."""
        flow_id = self._sealed[id(request)]
        stand = self._stands[flow_id]
        assert isinstance(stand, Passed)
        decision = leaves(stand.decision) if stand.decision is not None else None
        had_turn = stand.decision is not None and stand.decision.turn is not None
        self._stands[flow_id] = replace(stand, decision=decision, is_sent=True)
        return decision is None or not had_turn or decision.is_due

    def objection(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None."""
        live = self._passed.get(client_of(data.client))
        if not live:
            return "no permitted HTTP request for this connection"
        mode = data.client.proxy_mode
        if isinstance(mode, mode_specs.UpstreamMode):
            may = data.server.address is not None and data.server.address[:2] == mode.address
        else:
            may = any(destination.is_of(data.server) for destination in live.values())
        return None if may else "the destination was not permitted"

    def __len__(self) -> int:
        """How many flows stand somehow."""
        return len(self._stands)
