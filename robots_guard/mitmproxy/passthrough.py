"""Passthrough: hosts whose TLS goes through uninspected, because their clients accept no certificate but the site's.

What is asked for in there nobody can judge. So it is for hosts the operator has named, and only while their
robots.txt lets the agent fetch `/`; every such connection is on record.
"""

from __future__ import annotations

from mitmproxy import tls

from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.origin import Origin, parse_authority


class Passthrough:
    """Hosts by name; `*.example.com` is everything below example.com. Raises SettingsError for what is no host."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._hosts = frozenset(map(_canonical, hosts))

    def origin(self, data: tls.ClientHelloData) -> Origin | None:
        """The origin a handshake is for, if it is one of these and every name in it is the same; else None."""
        address, sni = data.context.server.address, data.client_hello.sni
        if not self._hosts or address is None:
            return None
        try:
            origin = parse_authority(
                "https", f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            )
            named = parse_authority("https", sni).host if sni else origin.host
        except MalformedURL:
            return None
        return origin if named == origin.host and self._names(origin.host) else None

    def _names(self, host: str) -> bool:
        labels = host.split(".")
        below = (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
        return host in self._hosts or any(each in self._hosts for each in below)


def _canonical(host: str) -> str:
    """As hosts are compared; raises SettingsError for what none could ever equal."""
    below = "*." if host.startswith("*.") else ""
    try:
        origin = parse_authority("https", host.removeprefix("*."))
    except MalformedURL:
        origin = None
    if origin is None or origin.port != 443 or "*" in origin.host:
        raise SettingsError(f"passthrough: {host!r} is no host: write a name alone, as in example.com or *.example.com")
    return below + origin.host
