"""The settings as options of a command, and back.

An option is named as its setting is (`--on-restricted` or `--on_restricted`), and may stand in the environment
as `ROBOTS_GUARD_ON_RESTRICTED`. A variable with that prefix that names no setting stops the start, as an unknown
option does: a misspelt choice must not be passed over in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from robots_guard.settings import NAMES, Settings, settings_of

PREFIX = "ROBOTS_GUARD_"
F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "agent": "The crawler's product token, as it stands after User-agent: in a robots.txt.",
    "store": "Where policies are shared: sqlite:///PATH, redis://HOST:PORT/DB, or memory: for this process only.",
    "journal": "The directory of the journal.",
    "journal_passes": "Record every PASS too.",
    "dialect": "How robots.txt is read: rfc9309, google, ..., or strictest(a, b).",
    "matching": "Which spellings of a URL count as the same: spec, standard or strict.",
    "on_restricted": "A robots.txt that answers 401 or 403: drop or allow.",
    "on_unreachable": "A robots.txt that cannot be had: defer, drop or allow.",
    "on_redirect_limit": "A robots.txt whose redirects lead nowhere: unreachable or allow.",
    "max_defer": "Seconds of trouble after which requests are dropped instead of deferred.",
    "decision_timeout": "Seconds a request may wait for its decision; after that it is deferred.",
    "connect_timeout": "Seconds for connecting to fetch a robots.txt.",
    "first_byte_timeout": "Seconds until the first byte of its answer.",
    "fetch_timeout": "Seconds for the whole fetch, redirects included.",
    "fetch": "How the proxy fetches: by its engine, as the pages travel, or direct.",
    "fetch_proxy": "The URL of an HTTP proxy for direct fetches.",
    "allow_private": "Networks (CIDRs, comma-separated) that direct fetches may reach though they are not public.",
    "user_agent": "The User-Agent header of our own fetches.",
}


def settings_options(command: F) -> F:
    """Give a command an option for each setting; all are None, or text, when it is called."""
    for name in reversed(NAMES):
        command = _option(name)(command)
    return command


_FETCHING = ("store", "journal", "connect_timeout", "first_byte_timeout", "fetch_timeout", "user_agent")


def fetch_options(command: F) -> F:
    """Give a command an option for each setting that fetching a policy depends on."""
    for name in reversed(_FETCHING):
        command = _option(name)(command)
    return command


def journal_option(command: F) -> F:
    """Give a command the option that names the journal's directory."""
    return _option("journal")(command)


def store_option(command: F) -> F:
    """Give a command the option that names the store."""
    return _option("store")(command)


def _option(name: str) -> Callable[[F], F]:
    flag = f"--{name.replace('_', '-')}"
    if name == "journal_passes":
        return click.option(f"{flag}/--no-journal-passes", name, envvar=_variable(name), default=None, help=_HELP[name])
    return click.option(flag, name, envvar=_variable(name), metavar=name.upper(), help=_HELP.get(name))


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def settings_from(values: dict[str, Any], **defaults: Any) -> Settings:
    """Settings from a command's parameters, which may hold others too. Raises SettingsError."""
    insist_on_known_variables()
    given = {name: values[name] for name in NAMES if values.get(name) is not None}
    return settings_of(defaults | given, "--{}")


def insist_on_known_variables() -> None:
    """Raises SettingsError, which names the variable and the nearest setting, for one of ours that is none."""
    strange = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in os.environ.items()
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX).lower() not in NAMES
    }
    if strange:
        settings_of(strange, _variable("{}"))
