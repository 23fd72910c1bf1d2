"""Descriptions: a mitmproxy request, as what it will put on the wire."""

from __future__ import annotations

from mitmproxy import connection, http
from mitmproxy.proxy import mode_specs

from robots_guard.gateway.wire import Wire

# Modes in which the client's system has resolved the name, so that the proxy sees only an address.
_ADDRESSED = (
    mode_specs.TransparentMode,
    mode_specs.WireGuardMode,
    mode_specs.LocalMode,
    mode_specs.Socks5Mode,
)


def wire_of(request: http.Request, client: connection.Client) -> Wire:
    """Describe a client's request as it is now."""
    data, mode = request.data, client.proxy_mode
    is_named = data.scheme == b"https" and not isinstance(mode, mode_specs.ReverseMode)
    return Wire.read(
        data.headers.fields,
        method=data.method,
        scheme=data.scheme,
        host=data.host,
        port=data.port,
        target=data.path,
        version=data.http_version,
        authority=data.authority,
        sni=client.sni if is_named else None,
        addressed=isinstance(mode, _ADDRESSED),
        client=address_of(client),
    )


def address_of(client: connection.Client) -> str:
    """A client's address; empty if it is unknown."""
    return str(client.peername[0]) if client.peername else ""
