"""Authentication of clients: mitmproxy's own, in this program's name.

It is imported only if users are set: mitmproxy's addon imports an LDAP client, which is slow.
"""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.addons import proxyauth

REALM = "robots_guard"
_CHALLENGES = ("Proxy-Authenticate", "WWW-Authenticate")


class Authentication(proxyauth.ProxyAuth):
    """mitmproxy's addon, whose challenges name this proxy: a password dialog shows the realm."""

    name = "proxyauth"  # as mitmproxy's, which this replaces

    def authenticate_http(self, f: http.HTTPFlow) -> bool:
        """Authenticate a request; if that fails, set the response that asks for credentials."""
        is_authenticated = super().authenticate_http(f)
        if f.response is not None:
            for field in _CHALLENGES:
                if field in f.response.headers:
                    f.response.headers[field] = f'Basic realm="{REALM}"'
        return is_authenticated
