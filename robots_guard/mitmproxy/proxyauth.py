"""Users of the proxy. A client that can connect crawls in the operator's name, and reaches what `allow_private` names.

`proxyauth` is spelt as mitmproxy's option: USER:PASSWORD, @FILE in htpasswd's format, or `any`,
which accepts any user name. What checks it raises SettingsError.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mitmproxy import http
from mitmproxy.proxy import mode_specs

from robots_guard.audit.privacy import DEFAULT
from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.options import reachable_hosts

WITHOUT_PASSWORD = ("", "any")
REALM = "robots_guard"  # a password dialog shows it
_CHALLENGES = ("Proxy-Authenticate", "WWW-Authenticate")


def validate_proxyauth(proxyauth: str, *, ldap: bool = False) -> None:
    """Check that `proxyauth` names users in a format that is safe."""
    if proxyauth.startswith("ldap") and not ldap:
        raise SettingsError(
            "--proxyauth ldap... blocks during each lookup: use proxyauth=@FILE, an htpasswd file"
        )
    if proxyauth.startswith("@"):
        _validate_htpasswd(Path(proxyauth[1:]))
    elif proxyauth not in WITHOUT_PASSWORD and ":" not in proxyauth:
        raise SettingsError(
            "--proxyauth names no user: write USER:PASSWORD, or @FILE in htpasswd's format"
        )


def _validate_htpasswd(path: Path) -> None:
    """Check that each line has a user and a hash: without a hash, the user would need no password."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SettingsError(
            f"--proxyauth @{path}: {why}: name a file in htpasswd's format"
        ) from None
    users = [
        (at, line) for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")
    ]
    for at, line in users:
        user, _, secret = line.partition(":")
        if not (user.strip() and secret.strip()):
            raise SettingsError(
                f"--proxyauth @{path}: line {at} is not USER:HASH: write it with htpasswd"
            )
    if not users:
        raise SettingsError(f"--proxyauth @{path} names no user: add users with htpasswd")


def require_auth_off_loopback(host: str, modes: Iterable[str], proxyauth: str) -> None:
    """Require users with passwords for an address that other machines can reach. WireGuard has keys of its own."""
    wide = reachable_hosts(host, [_parse_mode(spec) for spec in modes])
    if wide and proxyauth in WITHOUT_PASSWORD:
        place = wide[0] or "on all addresses"
        raise SettingsError(
            f"--listen {place} is open to other machines: set users with --proxyauth USER:PASSWORD or @HTPASSWD"
        )


def _parse_mode(mode: str) -> mode_specs.ProxyMode:
    try:
        return mode_specs.ProxyMode.parse(mode)
    except ValueError as error:
        modes = "regular, upstream:URL, reverse:URL, socks5, transparent, local or wireguard"
        shown = DEFAULT.text(mode)
        if shown != mode:  # mitmproxy's error could quote the password
            raise SettingsError(
                f"--mode {shown}: a mode has no credentials: give those of another proxy with"
                " --set upstream_auth=USER:PASSWORD"
            ) from None
        raise SettingsError(f"--mode {mode}: {error}: use {modes}") from None


def authentication() -> object:
    """mitmproxy's own addon for users, in this program's name.

    Its module is imported only if users are set: it imports an LDAP client, which is slow.
    """
    from mitmproxy.addons.proxyauth import ProxyAuth

    class Authentication(ProxyAuth):
        """mitmproxy's addon, whose challenges name this proxy."""

        name = "proxyauth"  # as mitmproxy's, which this replaces

        def authenticate_http(self, f: http.HTTPFlow) -> bool:
            """Authenticate a request; if that fails, set the response that asks for credentials."""
            is_authenticated = super().authenticate_http(f)
            if f.response is not None:
                for field in _CHALLENGES:
                    if field in f.response.headers:
                        f.response.headers[field] = f'Basic realm="{REALM}"'
            return is_authenticated

    return Authentication()
