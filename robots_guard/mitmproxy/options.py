"""Options: robots_guard's settings among mitmproxy's, and those of mitmproxy's own that would lead around us.

The law of this file: what is unsafe stops the start, with one sentence that names the option and the safe value,
unless the operator has allowed it by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Optional

import msgspec
from mitmproxy import addonmanager, optmanager
from mitmproxy.proxy import mode_specs

from robots_guard.errors import SettingsError
from robots_guard.settings import PROXY_NAMES, ProxySettings, settings_of

SPELLING = "robots_guard_{}"

# mitmproxy's defaults that send bytes to an origin nobody has judged: set by us, then kept so.
FORCED = {
    "connection_strategy": "lazy",  # eager: TCP and TLS to the origin before the first hook of the request
    "rawtcp": False,  # true: bytes in a tunnel that look unlike HTTP are passed on unseen
    "http3": False,  # true: QUIC, whose way to the origin nobody here has tested
}
# ... and one that lets any client fill the memory: set by us unless the operator has chosen.
BODY_LIMIT = "64m"  # of a request or an answer that is held in memory
_SAFE = {
    **FORCED,
    "validate_inbound_headers": True,  # false: request smuggling
    "ssl_insecure": False,  # true: a robots.txt anybody on the way could have written
}
_EMPTY = {
    "ignore_hosts": "passes tunnels on unseen",
    "allow_hosts": "passes every other tunnel on unseen",
    "tcp_hosts": "passes tunnels on unseen",
    "udp_hosts": "passes datagrams on unseen",
    "stream_large_bodies": "sends a body to the origin before its request has been seen whole",
    "map_local": "answers requests from files",
    "map_remote": "sends a judged request elsewhere",
    "modify_headers": "changes a judged request",
    "modify_body": "changes a judged request",
}
#: With one of these, bytes go out that belong to no request.
OPAQUE = frozenset((*FORCED, "ignore_hosts", "allow_hosts", "tcp_hosts", "udp_hosts", "mode")) - {"http3"}
_NAMES = (*_SAFE, *_EMPTY, "proxyauth", "emudhra", "emudhra_old", "mode")
_TEXT: Any = Optional[str]  # noqa: UP045  (mitmproxy compares with typing.Optional, another object than X | None)
_MODES = ("regular", "upstream", "socks5", "transparent", "local", "wireguard")


def declare(loader: addonmanager.Loader) -> None:
    """Add robots_guard's settings to mitmproxy's options. None stands for the default of docs/settings.md.

    Numbers go as text: mitmproxy reads no fractions, and does not say which option it cannot read.
    """
    for field in msgspec.structs.fields(ProxySettings):
        kind, default = (bool, field.default) if field.type is bool else (_TEXT, None)
        loader.add_option(SPELLING.format(field.name), kind, default, f"robots_guard's {field.name}, see its docs.")


def settings_among(options: optmanager.OptManager) -> ProxySettings:
    """The settings chosen. Raises SettingsError, also for a robots_guard option that does not exist."""
    chosen = {name: getattr(options, SPELLING.format(name)) for name in _declared(options)}
    values = {name: value for name, value in chosen.items() if value is not None}
    return settings_of({**values, **_unknown(options)}, SPELLING, ProxySettings)


def _declared(options: optmanager.OptManager) -> list[str]:
    return [name for name in PROXY_NAMES if SPELLING.format(name) in options]


def _unknown(options: optmanager.OptManager) -> dict[str, Any]:
    """mitmproxy keeps what it does not know for addons to come, and says nothing."""
    prefix = SPELLING.format("")
    unknown = {name: value for name, value in options.deferred.items() if name not in options}
    return {name.removeprefix(prefix): value for name, value in unknown.items() if name.startswith(prefix)}


def force(options: optmanager.OptManager) -> None:
    """Put mitmproxy's own unsafe defaults right. What an operator has set is not touched: `insist` speaks of it."""
    if "body_size_limit" in options and not options.body_size_limit:
        options.update(body_size_limit=BODY_LIMIT)
    defaults = {name for name, option in options.items() if option.value is optmanager.unset}
    options.update(**{name: value for name, value in FORCED.items() if name in defaults})


def insist(options: optmanager.OptManager, allowed: AbstractSet[str] = frozenset()) -> dict[str, str]:
    """Raises SettingsError if an option leads around robots_guard that is not allowed to. Gives those that are."""
    for name in allowed - set(_NAMES):
        raise SettingsError(f"allow_unsafe: {name!r} is none of mitmproxy's unsafe options ({', '.join(_NAMES)})")
    relaxed = {}
    for name, sentence, remedy in _objections(options):
        if name not in allowed:
            raise SettingsError(f"{sentence}: {remedy}")
        relaxed[name] = sentence
    return relaxed


def _objections(options: optmanager.OptManager) -> Iterator[tuple[str, str, str]]:
    """Name, sentence, remedy."""
    for name, safe in _SAFE.items():
        if name in options and getattr(options, name) != safe:
            yield _objection(options, name, "leads around robots_guard", f"use {name}={_spelt(safe)}")
    for name, why in _EMPTY.items():
        if name in options and getattr(options, name):
            yield _objection(options, name, why, "leave it unset")
    for name in ("emudhra", "emudhra_old"):
        if name in options and getattr(options, name):
            yield _objection(options, name, "signs with a key everybody has", "leave it unset")
    if "proxyauth" in options and (options.proxyauth or "").startswith("ldap"):
        why = "lets users write LDAP filters, and blocks while it asks"
        yield "proxyauth", f"mitmproxy's option proxyauth=ldap... {why}", "use proxyauth=@FILE, an htpasswd file"
    for spec in options.mode if "mode" in options else ():
        if not _is_inspected(spec):
            why = f"mitmproxy's option mode={spec} carries traffic that is not HTTP"
            yield "mode", why, f"use one of {', '.join(_MODES)}"


def _objection(options: optmanager.OptManager, name: str, why: str, remedy: str) -> tuple[str, str, str]:
    return name, f"mitmproxy's option {name}={_spelt(getattr(options, name))} {why}", remedy


def _spelt(value: object) -> str:
    """As it is written behind --set."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _is_inspected(spec: str) -> bool:
    """Whether a mode shows us every request. What cannot be parsed is mitmproxy's own to complain of."""
    try:
        mode = mode_specs.ProxyMode.parse(spec)
    except ValueError:
        return True
    if isinstance(mode, mode_specs.ReverseMode):
        return mode.scheme in ("http", "https")
    return mode.type_name in _MODES
