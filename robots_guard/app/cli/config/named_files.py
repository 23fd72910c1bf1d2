"""Checks what a configuration names: files, the form of a store's URL, and addresses to listen on.

Nothing is created, changed or connected to. What needs an extra that is not installed here is not
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from robots_guard.app.cli.options import address
from robots_guard.audit.key_files import read_signer
from robots_guard.configuration import Configuration
from robots_guard.configuration.mistakes import section_of_valid, settings_of_valid
from robots_guard.configuration.settings import CLOCKS, ProxySettings, Settings
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.gateway.identity import agents_in
from robots_guard.guard.overrides import look_at_overrides
from robots_guard.guard.stores import look_at

Check = Callable[[Any], Iterable[str] | None]


def mistakes_in_named(configuration: Configuration) -> Iterator[str]:
    """Yield the mistakes in what the valid configuration of a component names, each with the place
    of the name."""
    settings = settings_of_valid(configuration)
    yield from _found(configuration, settings, _CHECKS)
    own = section_of_valid(configuration)
    yield from _found(configuration, own, _OWN_CHECKS.get(configuration.component, {}))


def _found(configuration: Configuration, values: Any, checks: Mapping[str, Check]) -> Iterator[str]:
    for name, check in checks.items():
        configured = configuration.values.get(name)
        if configured is None or not getattr(values, name, None):
            continue
        for sentence in _sentences(check, values):
            yield f"{configured.source}: {_without_dashes(name, sentence)}"


def _sentences(check: Check, values: Any) -> list[str]:
    try:
        return list(check(values) or ())
    except MissingExtra:
        return []  # the file may be for a machine that has it
    except SettingsError as error:
        return [str(error)]


def _without_dashes(name: str, sentence: str) -> str:
    """The sentence with the name as it is written in a file."""
    return sentence.replace(f"--{name.replace('_', '-')}", name, 1)


# -- settings -----------------------------------------------------------------------------------------


def _check_store(settings: Settings) -> None:
    store = look_at(settings.store, insist=False)
    if store is not None:
        store.close()


def _check_overrides(settings: Settings) -> Iterator[str]:
    path = Path(settings.overrides).expanduser()
    found = look_at_overrides(path, settings.terms(), CLOCKS.now())
    for which, why in (*found.faults, *found.expired(CLOCKS.now())):
        yield f"overrides: {str(path)!r}, override {which!r}: {why}"


def _check_agents(settings: Settings) -> None:
    if isinstance(settings, ProxySettings):
        agents_in(Path(settings.agents).expanduser())


def _check_signing_key(settings: Settings) -> None:
    read_signer(Path(settings.audit_signing_key).expanduser())


_CHECKS: Mapping[str, Check] = {
    "store": _check_store,
    "overrides": _check_overrides,
    "agents": _check_agents,
    "audit_signing_key": _check_signing_key,
}


# -- what only one component has ----------------------------------------------------------------------


def _check_listen(own: Any) -> None:
    address(own.listen, type(own)().listen)


def _check_data_plane(own: Any) -> None:
    address(own.data_plane, type(own)().data_plane, "--data-plane")


def _check_socket(name: str, own: Any) -> None:
    from robots_guard.gateway.listeners import address_of

    address_of(getattr(own, name), f"--{name}", allow_remote=own.allow_remote)


def _check_proxyauth(own: Any) -> None:
    from robots_guard.mitmproxy.proxyauth import validate_proxyauth

    validate_proxyauth(own.proxyauth)


def _check_upstream_ca(own: Any) -> None:
    from robots_guard.gateway.authorities import validate_pem

    validate_pem(Path(own.upstream_ca).expanduser())


_OWN_CHECKS: Mapping[str, Mapping[str, Check]] = {
    "proxy": {
        "listen": _check_listen,
        "proxyauth": _check_proxyauth,
        "upstream_ca": _check_upstream_ca,
    },
    "serve": {
        "envoy": partial(_check_socket, "envoy"),
        "icap": partial(_check_socket, "icap"),
        "sds": partial(_check_socket, "sds"),
        "data_plane": _check_data_plane,
        "upstream_ca": _check_upstream_ca,
    },
    "console": {"listen": _check_listen},
}
