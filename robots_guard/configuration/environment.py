"""The configuration in the environment: `ROBOTS_GUARD_` and a name, such as ROBOTS_GUARD_AGENT, or
a section and a name, such as ROBOTS_GUARD_PROXY_LISTEN.

A variable with that prefix that names nothing is an error, as an unknown option is: a misspelt
setting must not be ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from robots_guard.configuration.files import VARIABLE
from robots_guard.configuration.sections import SECTIONS, homes_of, settings_in
from robots_guard.configuration.settings import SETTINGS
from robots_guard.configuration.source import Source, Value
from robots_guard.errors import SettingsError
from robots_guard.invocation import ALL_SETTINGS
from robots_guard.text import nearest, restored

PREFIX = "ROBOTS_GUARD_"
#: What Kubernetes sets in each pod for a service whose name begins with robots-guard.
_OF_KUBERNETES = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def variables_of(section: str) -> dict[str, str]:
    """Return the variable of each name in a section; "" is the top level."""
    within = f"{section.upper()}_" if section else ""
    return {name: f"{PREFIX}{within}{name.upper()}" for name in settings_in(section)}


def values_in(environ: Mapping[str, str], section: str) -> dict[str, Value]:
    """Return the values for a component. Those of its section win over those for all.

    Raises SettingsError for a variable that names nothing; the error suggests the nearest one.
    """
    _check_names(environ)
    found = dict(_found(environ, ""))
    if section:
        found.update(_found(environ, section))
    return found


def _found(environ: Mapping[str, str], section: str) -> Iterator[tuple[str, Value]]:
    for name, variable in variables_of(section).items():
        if environ.get(variable):
            yield name, Value(_text(name, environ[variable]), Source("environment", variable))


def _text(name: str, value: str) -> str:
    """The value as the operator wrote it. File names stay as the locale decoded them: the system
    encodes them back."""
    if name in SETTINGS and SETTINGS[name].extra.get("is_sent"):
        return restored(value)
    return value


def _check_names(environ: Mapping[str, Any]) -> None:
    given = {name for name in environ if name.startswith(PREFIX) and name != VARIABLE}
    if not given:
        return
    general = list(variables_of("").values())
    known = {*general, *(name for each in SECTIONS for name in variables_of(each).values())}
    for name in sorted(given - known):
        if _OF_KUBERNETES.fullmatch(name.removeprefix(PREFIX)):
            continue
        homes = [variables_of(section)[_stem(name)] for section in homes_of(_stem(name))]
        if homes:
            raise SettingsError(f"{name} belongs to one component: set {' or '.join(homes)}")
        near = nearest(_stem(name), [_stem(each) for each in _in_order(general, known)], _variable)
        raise SettingsError(f"unknown setting {name}: {near}; {ALL_SETTINGS}")


def _in_order(general: list[str], known: set[str]) -> list[str]:
    """The known variables: first those that are for all components."""
    return [*general, *sorted(known - set(general))]


def _stem(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def _variable(stem: str) -> str:
    return PREFIX + stem.upper()
