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
from robots_guard.mitmproxy.ways import Client, client_of
from robots_guard.mitmproxy.wire import Wire

Address = tuple[str, int]


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


class Seen(NamedTuple):
    """A request as it is judged: what of it matters, and all of it, which is compared faster."""

    wire: Wire
    request: tuple[object, ...]

    @classmethod
    def of(cls, flow: http.HTTPFlow) -> Seen:
        """As it stands now."""
        return cls(Wire.of(flow), _as_it_is(flow.request))

    def is_all_of(self, flow: http.HTTPFlow) -> bool:
        """Whether nothing has changed since."""
        return _as_it_is(flow.request) == self.request


@dataclass(frozen=True, slots=True)
class Passed:
    """Let pass by `decision` as it was then, octet by octet; if any has changed, `wire` says whether it matters."""

    client: Client
    address: Address
    wire: Wire | None = None
    decision: Decision | None = None
    request: tuple[object, ...] = ()

    def is_still(self, flow: http.HTTPFlow) -> bool:
        """Whether the flow would be judged as it was."""
        return _as_it_is(flow.request) == self.request or Wire.of(flow) == self.wire


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
        self._passed: dict[Client, dict[str, Address]] = {}

    def of(self, flow: http.HTTPFlow) -> Stand | None:
        """How a flow stands; None if nobody has judged it."""
        return self._stands.get(flow.id)

    def grant(
        self,
        flow: http.HTTPFlow,
        wire: Wire | None = None,
        decision: Decision | None = None,
        *,
        changed: bool = False,
    ) -> None:
        """Let a flow reach the address it names now. `changed`: while it was judged; its `wire` is what was judged."""
        client, address = client_of(flow.client_conn), (flow.request.data.host, flow.request.data.port)
        self._stands[flow.id] = Passed(client, address, wire, decision, () if changed else _as_it_is(flow.request))
        self._passed.setdefault(client, {})[flow.id] = address

    def grant_tunnel(self, client: connection.Client, address: Address) -> None:
        """Let a client reach an address, whatever it says there, until it leaves."""
        self._passed.setdefault(client_of(client), {})["tunnel"] = address

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

    def update(self, client: connection.Client, change: Callable[[Decision], Decision]) -> None:
        """Go on with other decisions for what the client was let pass."""
        for flow_id in self._passed.get(client_of(client), ()):
            stand = self._stands.get(flow_id)  # a tunnel has none
            if isinstance(stand, Passed) and stand.decision is not None:
                self._stands[flow_id] = replace(stand, decision=change(stand.decision))

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
