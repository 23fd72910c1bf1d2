"""Options: robots_guard's settings among mitmproxy's options, and mitmproxy's own options that bypass the guard.

Invariant: an unsafe option stops the start, with one sentence that names the option and its safe
value, unless the operator has allowed it by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Optional

from mitmproxy import addonmanager, optmanager
from mitmproxy.proxy import mode_specs

from robots_guard.configuration import Configuration, read_configuration, settings_from
from robots_guard.configuration.elsewhere import invocation_of
from robots_guard.configuration.settings import PROXY_NAMES, SETTINGS, ProxySettings
from robots_guard.decisions.addresses import literal
from robots_guard.decisions.component import Component
from robots_guard.errors import SettingsError
from robots_guard.invocation import Invocation

SPELLING = "robots_guard_{}"
CONFIG = SPELLING.format("config")

# mitmproxy's defaults send unjudged bytes to origins: these values replace them, and are then required.
SAFE_DEFAULTS = {
    "connection_strategy": "lazy",  # eager: TCP and TLS to the origin before the first hook of the request
    "rawtcp": False,  # true: bytes in a tunnel that do not look like HTTP are forwarded without being judged
    "http3": False,  # true: QUIC, whose path to the origin has not been tested
}
# mitmproxy's default lets any client fill the memory: this value replaces it unless the operator has set one.
BODY_LIMIT = "64m"  # of a request or response that is kept in memory
_SAFE_VALUES = {
    **SAFE_DEFAULTS,
    "validate_inbound_headers": True,  # false: request smuggling
    "ssl_insecure": False,  # true: a robots.txt that anybody on the network path could have written
}
_MUST_BE_UNSET = {
    "ignore_hosts": "forwards tunnels without judging them",
    "allow_hosts": "forwards every other tunnel without judging it",
    "tcp_hosts": "forwards tunnels without judging them",
    "udp_hosts": "forwards datagrams without judging them",
    "stream_large_bodies": "sends a body to the origin before the request is complete",
    "map_local": "answers requests from files",
    "map_remote": "sends a judged request elsewhere",
    "modify_headers": "changes a judged request",
    "modify_body": "changes a judged request",
}
#: With one of these, bytes that belong to no request are sent to origins.
OPAQUE = frozenset(
    (*SAFE_DEFAULTS, "ignore_hosts", "allow_hosts", "tcp_hosts", "udp_hosts", "mode")
) - {"http3"}
_UNSAFE_NAMES = (*_SAFE_VALUES, *_MUST_BE_UNSET, "proxyauth", "emudhra", "emudhra_old", "mode")
_OPTIONAL_TEXT: Any = Optional[str]  # noqa: UP045  (mitmproxy compares with typing.Optional, another object than X | None)
_MODES = ("regular", "upstream", "socks5", "transparent", "local", "wireguard")


def declare(loader: addonmanager.Loader) -> None:
    """Add robots_guard's settings to mitmproxy's options. One that is not set comes from the
    configuration: files and the environment.

    Numbers are declared as text: mitmproxy reads no fractions, and does not name an option that it
    cannot read.
    """
    for name, setting in SETTINGS.items():
        kind, default = (bool, setting.default) if setting.is_switch else (_OPTIONAL_TEXT, None)
        loader.add_option(SPELLING.format(name), kind, default, setting.summary)
    loader.add_option(CONFIG, _OPTIONAL_TEXT, None, _CONFIG_HELP)


_CONFIG_HELP = "The configuration file to read, and no other; an empty name: none."


def configuration_of(config: str | None) -> Configuration:
    """What files and environment say; `config` names the only file. Raises SettingsError."""
    return read_configuration(Component.PROXY, config=config)


def read_settings(
    options: optmanager.OptManager,
    configuration: Callable[[str | None], Configuration] = configuration_of,
) -> ProxySettings:
    """The settings among the options and in the configuration.

    Raises SettingsError, also for an unknown robots_guard option.
    """
    given = {**_given(options), **_unknown(options)}
    return settings_from(configuration(_config(options)), given, SPELLING, ProxySettings)


def read_invocation(
    options: optmanager.OptManager,
    configuration: Callable[[str | None], Configuration] = configuration_of,
) -> Invocation:
    """Return what printed commands must name to use the same audit log and store. Raises
    SettingsError."""
    return invocation_of(configuration(_config(options)), _given(options))


def _config(options: optmanager.OptManager) -> str | None:
    return getattr(options, CONFIG) if CONFIG in options else None


def _given(options: optmanager.OptManager) -> dict[str, Any]:
    """The settings that the operator has set as options, be it to their defaults."""
    unset = {name for name, option in options.items() if option.value is optmanager.unset}
    names = [name for name in _declared(options) if SPELLING.format(name) not in unset]
    chosen = {name: getattr(options, SPELLING.format(name)) for name in names}
    return {name: value for name, value in chosen.items() if value is not None}


def _declared(options: optmanager.OptManager) -> list[str]:
    return [name for name in PROXY_NAMES if SPELLING.format(name) in options]


def _unknown(options: optmanager.OptManager) -> dict[str, Any]:
    """The unknown robots_guard options: mitmproxy silently keeps unknown options for addons loaded later."""
    prefix = SPELLING.format("")
    unknown = {name: value for name, value in options.deferred.items() if name not in options}
    return {
        name.removeprefix(prefix): value
        for name, value in unknown.items()
        if name.startswith(prefix)
    }


def apply_safe_defaults(options: optmanager.OptManager) -> None:
    """Replace mitmproxy's unsafe defaults. An option that the operator has set is left to `check_options`."""
    if "body_size_limit" in options and not options.body_size_limit:
        options.update(body_size_limit=BODY_LIMIT)
    defaults = {name for name, option in options.items() if option.value is optmanager.unset}
    options.update(**{name: value for name, value in SAFE_DEFAULTS.items() if name in defaults})


def check_options(
    options: optmanager.OptManager, allowed: AbstractSet[str] = frozenset()
) -> dict[str, str]:
    """Return the unsafe options that are set and allowed, each with the reason why it is unsafe.

    Raises SettingsError for an unsafe option that is not allowed.
    """
    for name in allowed - set(_UNSAFE_NAMES):
        names = ", ".join(_UNSAFE_NAMES)
        raise SettingsError(
            f"allow_unsafe: {name!r} is not one of mitmproxy's unsafe options ({names})"
        )
    relaxed = {}
    for name, why, remedy in _objections(options):
        if name not in allowed:
            raise SettingsError(f"{why}: {remedy}")
        relaxed[name] = why
    return relaxed


def _objections(options: optmanager.OptManager) -> Iterator[tuple[str, str, str]]:
    """The unsafe options that are set: name, why it is unsafe, and the remedy."""
    for name, safe in _SAFE_VALUES.items():
        if name in options and getattr(options, name) != safe:
            yield _objection(
                options, name, "bypasses robots_guard", f"use {name}={_as_set_value(safe)}"
            )
    for name, why in _MUST_BE_UNSET.items():
        if name in options and getattr(options, name):
            yield _objection(options, name, why, "leave it unset")
    for name in ("emudhra", "emudhra_old"):
        if name in options and getattr(options, name):
            yield _objection(options, name, "signs with a publicly known key", "leave it unset")
    if "proxyauth" in options and (options.proxyauth or "").startswith("ldap"):
        why = "lets users write LDAP filters, and blocks during each lookup"
        yield (
            "proxyauth",
            f"mitmproxy's option proxyauth=ldap... {why}",
            "use proxyauth=@FILE, an htpasswd file",
        )
    for spec in options.mode if "mode" in options else ():
        if not _is_judged_mode(spec):
            why = f"mitmproxy's option mode={spec} carries traffic that is not HTTP"
            yield "mode", why, f"use one of {', '.join(_MODES)}"


def _objection(
    options: optmanager.OptManager, name: str, why: str, remedy: str
) -> tuple[str, str, str]:
    return name, f"mitmproxy's option {name}={_as_set_value(getattr(options, name))} {why}", remedy


def _as_set_value(value: object) -> str:
    """A value as it is written after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def reachable_hosts(host: str, modes: Iterable[mode_specs.ProxyMode]) -> list[str]:
    """The hosts to listen on that other machines can reach; an empty one stands for all addresses.

    `host` is that of modes without a host of their own. WireGuard has keys of its own.
    """
    hosts = [
        mode.listen_host(host) for mode in modes if not isinstance(mode, mode_specs.WireGuardMode)
    ]
    return [each for each in hosts if not _is_loopback(each)]


def _is_loopback(host: str) -> bool:
    address = literal(host.strip("[]"))
    if address is None:
        return host == "localhost"
    return address.is_loopback


def open_listener(options: optmanager.OptManager) -> str | None:
    """Where a proxy listens that any machine can use without credentials; None if it does not."""
    if "proxyauth" in options and options.proxyauth:
        return None
    hosts = reachable_hosts(options.listen_host, _parsed(options.mode))
    if not hosts:
        return None
    return hosts[0] or "all addresses"


def _parsed(specs: Iterable[str]) -> Iterator[mode_specs.ProxyMode]:
    """The modes that can be parsed; mitmproxy itself reports the others."""
    for spec in specs:
        with contextlib.suppress(ValueError):
            yield mode_specs.ProxyMode.parse(spec)


def _is_judged_mode(spec: str) -> bool:
    """Whether the guard sees every request of a mode. mitmproxy itself reports a mode that cannot be parsed."""
    try:
        mode = mode_specs.ProxyMode.parse(spec)
    except ValueError:
        return True
    if isinstance(mode, mode_specs.ReverseMode):
        return mode.scheme in ("http", "https")
    return mode.type_name in _MODES
