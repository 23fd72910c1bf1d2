"""Passthrough: hosts whose TLS is not intercepted, because their clients accept only the site's certificate.

The requests inside cannot be judged. So passthrough is limited to hosts the operator has named, and
only while their robots.txt allows the agent to fetch `/`. Every such connection is recorded.
"""

from __future__ import annotations

from mitmproxy import tls

from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.origin import Origin, parse_authority


class Passthrough:
    """A set of host names; `*.example.com` is every name below example.com. Raises SettingsError for an invalid one."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._hosts = frozenset(map(_canonical, hosts))

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


def _canonical(host: str) -> str:
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
