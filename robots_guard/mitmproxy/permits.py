"""Permits: who may reach an origin, kept from the verdict until the flow has ended.

The law of this file: no connection leaves the proxy unless a flow of that very client has been let pass and is
not over. It knows no robots.txt; it is asked by `server_connect`, the one hook that sees raw TCP, UDP, ignored
hosts, early connections and replays alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from mitmproxy import connection, http
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.mitmproxy.wire import Wire

Address = tuple[str, int]
Client = tuple[object, float | None]


@dataclass(frozen=True, slots=True)
class Passed:
    """Let pass as `wire`; anything else must be judged again."""

    client: Client
    address: Address
    wire: Wire | None = None


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


def client_of(client: connection.Client) -> Client:
    """A client connection's identity. Not its id: a replay works on a copy, and a copy has a new one."""
    return (client.peername and client.peername[:2], client.timestamp_start)


class Permits:
    """How each live flow stands."""

    def __init__(self) -> None:
        self._stands: dict[str, Stand] = {}
        self._passed: dict[Client, dict[str, Address]] = {}

    def of(self, flow: http.HTTPFlow) -> Stand | None:
        """How a flow stands; None if nobody has judged it."""
        return self._stands.get(flow.id)

    def grant(self, flow: http.HTTPFlow, wire: Wire | None = None) -> None:
        """Let a flow reach the address it names now."""
        client, address = client_of(flow.client_conn), (flow.request.data.host, flow.request.data.port)
        self._stands[flow.id] = Passed(client, address, wire)
        self._passed.setdefault(client, {})[flow.id] = address

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
            live = self._passed.get(stand.client, {})
            live.pop(flow.id, None)
            if not live:
                self._passed.pop(stand.client, None)

    def forget(self, client: connection.Client) -> None:
        """The client has gone: whatever stood open for it is closed."""
        gone = client_of(client)
        self._passed.pop(gone, None)
        for flow_id in [flow_id for flow_id, stand in self._stands.items() if stand.client == gone]:
            del self._stands[flow_id]

    def objection(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None."""
        live = self._passed.get(client_of(data.client))
        if not live:
            return "no permitted HTTP request for this connection"
        address = data.server.address and data.server.address[:2]
        mode = data.client.proxy_mode
        permitted = (mode.address,) if isinstance(mode, mode_specs.UpstreamMode) else live.values()
        return None if address in permitted else "the destination was not permitted"

    def __len__(self) -> int:
        """How many flows stand somehow."""
        return len(self._stands)
