"""Users: who may use the proxy. Whoever can connect crawls in our name, and reaches what `allow_private` names.

`proxyauth` is spelt as mitmproxy's option: USER:PASSWORD, @FILE in htpasswd's format, or `any`, which takes anybody who
gives a name. Every function raises SettingsError.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mitmproxy.proxy import mode_specs

from robots_guard.core.addresses import literal
from robots_guard.errors import SettingsError

ANYBODY = ("", "any")


def insist_on_users(proxyauth: str, *, ldap: bool = False) -> None:
    """It names somebody."""
    if proxyauth.startswith("ldap") and not ldap:
        raise SettingsError("--proxyauth ldap... blocks while it asks: use proxyauth=@FILE, an htpasswd file")
    if proxyauth.startswith("@"):
        _insist_on_file(Path(proxyauth[1:]))
    elif proxyauth not in ANYBODY and ":" not in proxyauth:
        raise SettingsError("--proxyauth names nobody: write USER:PASSWORD, or @FILE in htpasswd's format")


def _insist_on_file(path: Path) -> None:
    """A line without a hash lets its user in without a password."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SettingsError(f"--proxyauth @{path}: {why}: name a file in htpasswd's format") from None
    users = [(at, line) for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    for at, line in users:
        user, _, secret = line.partition(":")
        if not (user.strip() and secret.strip()):
            raise SettingsError(f"--proxyauth @{path}: line {at} is not USER:HASH: have htpasswd write it")
    if not users:
        raise SettingsError(f"--proxyauth @{path} names nobody: add users with htpasswd")


def insist_on_closed(host: str, modes: Iterable[str], proxyauth: str) -> None:
    """An address that others can reach is for those who are known. WireGuard has keys."""
    parsed = [_parsed(spec) for spec in modes]
    hosts = [mode.listen_host(host) for mode in parsed if not isinstance(mode, mode_specs.WireGuardMode)]
    wide = [each for each in hosts if not _is_loopback(each)]
    if wide and proxyauth in ANYBODY:
        place = wide[0] or "on all addresses"
        raise SettingsError(
            f"--listen {place} lets others in: say who may use the proxy with --proxyauth USER:PASSWORD or @HTPASSWD"
        )


def _parsed(mode: str) -> mode_specs.ProxyMode:
    try:
        return mode_specs.ProxyMode.parse(mode)
    except ValueError as error:
        modes = "regular, upstream:URL, reverse:URL, socks5, transparent, local or wireguard"
        raise SettingsError(f"--mode {mode}: {error}: use {modes}") from None


def _is_loopback(host: str) -> bool:
    address = literal(host.strip("[]"))
    return host == "localhost" if address is None else address.is_loopback
