"""Client destinations: which destinations the clients of each mode of mitmproxy may reach.

Invariant: a name is checked with the verdict, so that a refusal can be explained, and again when
the connection resolves it, which defeats DNS rebinding.

The requests in a TLS connection that is not intercepted cannot be judged. So passthrough is limited
to hosts the operator has named, and only while their robots.txt allows the agent to fetch `/`.
Every such connection is recorded.
"""

from __future__ import annotations

import contextlib
from functools import partial

from mitmproxy import connection, optmanager, tls
from mitmproxy.proxy import mode_specs, server_hooks

from robots_guard.decisions.addresses import literal
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.gateway.destinations import DestinationPolicy, NotLookedUp
from robots_guard.mitmproxy.patches.connections import check_resolution
from robots_guard.origin import Origin, parse_authority

PREFIX = "robots_guard: "
ITSELF = ("robots_guard", 0)  # the peer name of the proxy's own fetches; no socket has such a name

Client = tuple[object, float | None]


def client_of(client: connection.Client) -> Client:
    """A client connection's identity. It is not the id: a replay works on a copy, which has a new one."""
    return (client.peername and client.peername[:2], client.timestamp_start)


def address_of(client: connection.Client) -> str:
    """A client's address; empty if it is unknown."""
    return str(client.peername[0]) if client.peername else ""


class ClientDestinations:
    """The destinations that the operator allows, by client.

    `reverse_targets` are the destinations of reverse modes. They are open to the clients of that
    mode, and to the proxy itself for their robots.txt.
    """

    reverse_targets: frozenset[tuple[str, int]] = frozenset()

    def __init__(self, policy: DestinationPolicy) -> None:
        self._policy = policy
        self._tunnels: set[Client] = set()

    # -- tunnels ------------------------------------------------------------------------------------------

    def open_tunnel(self, client: connection.Client) -> None:
        """Note that a client has opened a tunnel. It stays in it until it disconnects."""
        self._tunnels.add(client_of(client))

    def close_tunnel(self, client: connection.Client) -> None:
        """Forget the tunnel of a client that has disconnected."""
        self._tunnels.discard(client_of(client))

    # -- before a verdict ---------------------------------------------------------------------------------

    async def verdict(self, client: connection.Client, origin: Origin) -> Verdict | None:
        """The refusal of a request to this origin, or None."""
        try:
            return self.known_verdict(client, origin)
        except NotLookedUp:
            has_parent = _has_parent(client)
            return _refusal(
                await self._policy.objection_to_host(origin.host, has_parent=has_parent)
            )

    def known_verdict(self, client: connection.Client, origin: Origin) -> Verdict | None:
        """What `verdict` returns, if it is known without a lookup. Raises NotLookedUp."""
        objection = self._policy.objection_to_port(
            origin.port, in_tunnel=client_of(client) in self._tunnels
        )
        if objection is None and not self._is_chosen_by_operator(client, origin.host, origin.port):
            has_parent = _has_parent(client)
            objection = self._policy.known_objection_to_host(origin.host, has_parent=has_parent)
        return _refusal(objection)

    def _is_chosen_by_operator(self, client: connection.Client, host: str, port: int) -> bool:
        """Whether the operator has chosen the destination for this client, or the proxy itself fetches from it."""
        mode = client.proxy_mode
        if isinstance(mode, mode_specs.ReverseMode):
            return _canonical(mode) == (host, port)
        return client.peername == ITSELF and (host, port) in self.reverse_targets

    def objection_to_hop(self, origin: Origin) -> str | None:
        """Why a redirect of a robots.txt may not lead to the port of this origin, or None.

        An https origin is checked like a tunnel, because a client would need one.
        """
        if (origin.host, origin.port) in self.reverse_targets:
            return None
        return self._policy.objection_to_port(origin.port, in_tunnel=origin.scheme == "https")

    # -- when a connection is made ------------------------------------------------------------------------

    def objection_to_connecting(self, data: server_hooks.ServerConnectionHookData) -> str | None:
        """Why this connection may not be made, or None; the addresses of a name are checked when it is resolved."""
        check_resolution(None)
        if data.server.address is None or isinstance(
            data.client.proxy_mode, mode_specs.UpstreamMode
        ):
            return None
        host, port = data.server.address[:2]
        if self._is_chosen_by_operator(data.client, host, port):
            return None
        objection = partial(self._policy.objection_to_addresses, port=port)
        address = literal(host)
        if address is not None:
            return objection((address,))
        check_resolution(objection)
        return None


def _has_parent(client: connection.Client) -> bool:
    return isinstance(client.proxy_mode, mode_specs.UpstreamMode)


def _refusal(objection: str | None) -> Verdict | None:
    if objection is None:
        return None
    return Verdict(action=Action.DROP, reason=Reason.DESTINATION_REFUSED, detail=objection)


def reverse_targets(options: optmanager.OptManager) -> frozenset[tuple[str, int]]:
    """The hosts and ports that the reverse modes of these options lead to."""
    modes = [
        mode_specs.ProxyMode.parse(spec) for spec in (options.mode if "mode" in options else ())
    ]
    return frozenset(_canonical(mode) for mode in modes if isinstance(mode, mode_specs.ReverseMode))


def _canonical(mode: mode_specs.ReverseMode) -> tuple[str, int]:
    """The host and port of a reverse mode, in the canonical spelling of origins."""
    host, port = mode.address
    with contextlib.suppress(MalformedURL):
        host = parse_authority("http", f"[{host}]" if ":" in host else host).host
    return host, port


class Passthrough:
    """Hosts whose TLS is not intercepted, because their clients accept only the site's certificate.

    `*.example.com` is every name below example.com. Raises SettingsError for an invalid name.
    """

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._hosts = frozenset(map(_canonical_name, hosts))

    def origin(self, data: tls.ClientHelloData) -> Origin | None:
        """The origin of a handshake if it is one of these hosts and the SNI agrees; else None."""
        address, sni = data.context.server.address, data.client_hello.sni
        if not self._hosts or address is None:
            return None
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        try:
            origin = parse_authority("https", f"{host}:{address[1]}")
            named = parse_authority("https", sni).host if sni else origin.host
        except MalformedURL:
            return None
        if named == origin.host and self._contains(origin.host):
            return origin
        return None

    def _contains(self, host: str) -> bool:
        labels = host.split(".")
        below = (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
        return host in self._hosts or any(each in self._hosts for each in below)


def _canonical_name(host: str) -> str:
    """The spelling in which hosts are compared. Raises SettingsError for a host that can never match."""
    below = "*." if host.startswith("*.") else ""
    try:
        origin = parse_authority("https", host.removeprefix("*."))
    except MalformedURL:
        origin = None
    if origin is None or origin.port != 443 or "*" in origin.host:
        raise SettingsError(
            f"passthrough: {host!r} is not a host: write a name alone, such as example.com or *.example.com"
        )
    return below + origin.host
