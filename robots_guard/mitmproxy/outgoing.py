"""Outgoing: what a request that may go is made to be, so that the origin reads in it what was judged.

Pure changes of one flow, after its verdict; nothing here decides anything.
"""

from __future__ import annotations

from mitmproxy import ctx, http
from mitmproxy.addons.upstream_auth import parse_upstream_auth
from mitmproxy.proxy import mode_specs

from robots_guard.mitmproxy.wire import Wire
from robots_guard.origin import Origin

_OVERRIDES = ("x-original-url", "x-rewrite-url")
_HOP = frozenset((b"upgrade", b"proxy-connection", b"proxy-authorization"))


def settle(flow: http.HTTPFlow, origin: Origin, wire: Wire, *, strict: bool) -> Wire:
    """All of it. Returns the wire as it is then."""
    headers = flow.request.headers
    wire = _settle_names(flow, origin, wire)
    if not _HOP.isdisjoint([name.lower() for name, _ in headers.fields]):
        _end_here(headers)
    if isinstance(flow.client_conn.proxy_mode, mode_specs.UpstreamMode):
        _add_credentials(flow)
    if strict:
        _strip_overrides(headers)
    return wire


def _settle_names(flow: http.HTTPFlow, origin: Origin, wire: Wire) -> Wire:
    """What goes out names the origin that was judged (RFC 9112 section 3.2.2). Returns the wire as it is then."""
    if wire.addressed and wire.host != origin.host:
        flow.request.data.host = origin.host  # a name was judged: go where it leads, not where the client says
        wire = wire._replace(host=origin.host)
    if flow.request.http_version.startswith("HTTP/1") and "host" not in flow.request.headers:
        flow.request.headers.insert(0, "Host", origin.authority)
        wire = wire._replace(hosts=(origin.authority,))
    return wire


def _end_here(headers: http.Headers) -> None:
    """What a client says to a proxy ends here (RFC 9110 section 11.7.1)."""
    headers.pop("proxy-connection", None)
    headers.pop("proxy-authorization", None)
    _strip_upgrade(headers)


def _add_credentials(flow: http.HTTPFlow) -> None:
    """A parent proxy hears our own, if any. They were there already, not to be told from a client's."""
    auth = ctx.options.upstream_auth if "upstream_auth" in ctx.options else None
    if auth and flow.request.scheme == "http":
        flow.request.headers["Proxy-Authorization"] = parse_upstream_auth(auth)


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
