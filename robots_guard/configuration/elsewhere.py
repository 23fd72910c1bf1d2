"""What a shell in another directory finds of this configuration by itself, and what a command that
is pasted there must therefore name.

Such a shell finds the system's and the user's file. It has neither this process's working
directory, nor its options, nor, as far as is known, its environment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robots_guard.configuration.configuration import Configuration, read_configuration, shown
from robots_guard.configuration.environment import variables_of
from robots_guard.configuration.sections import GENERAL
from robots_guard.configuration.settings import USER_DEFAULTS
from robots_guard.configuration.source import FILE, VARIABLE, is_reference
from robots_guard.errors import SettingsError
from robots_guard.invocation import EVIDENCE, Invocation

_ROOT = Path("/")
_SQLITE = "sqlite:///"


def invocation_of(configuration: Configuration, given: Mapping[str, Any]) -> Invocation:
    """Return what printed commands must name so that they use the audit log and the store of this
    component. `given` values, such as options, win over the configuration."""
    elsewhere = _values(None)
    named: dict[str, str] = {}
    files: dict[str, str] = {}  # the file that gives a value to every component
    for name in EVIDENCE:
        value = given.get(name) or _configured(configuration, name)
        if not value:
            if name in elsewhere:
                named[name] = USER_DEFAULTS[name]()
            continue
        if elsewhere.get(name) == value:
            continue
        file = None if given.get(name) else _file_of(configuration, name)
        if file is not None and _values(file).get(name) == value:
            files[name] = file
        else:
            named[name] = _text(name, str(value))
    return _with_config(named, files, elsewhere)


def _with_config(
    named: dict[str, str], files: Mapping[str, str], elsewhere: Mapping[str, Any]
) -> Invocation:
    """The invocation. A file that is named is the only one that is read, so that what another file
    says must be named, too."""
    if not files:
        return Invocation(named)
    config = next(iter(files.values()))
    for name in EVIDENCE:
        if name not in named and files.get(name) != config and name in elsewhere:
            named[name] = _text(name, str(elsewhere[name]))
    return Invocation(named, config, frozenset(files))


def _configured(configuration: Configuration, name: str) -> Any:
    found = configuration.values.get(name)
    return found.value if found else None


def _file_of(configuration: Configuration, name: str) -> str | None:
    """The configuration file that a value comes from."""
    source = configuration.values[name].source
    return source.name if source.kind == "file" else None


def _values(config: str | None) -> dict[str, Any]:
    """The values that a command finds in a shell elsewhere, with a configuration file or without.
    A file that cannot be used gives none."""
    with contextlib.suppress(SettingsError):
        found = read_configuration(GENERAL, config=config, environ={}, directory=_ROOT)
        return {name: each.value for name, each in found.values.items()}
    return {}


def _text(name: str, value: str) -> str:
    """The text of an option. A secret is never printed: the variable that may have it is named."""
    if not is_reference(value) and shown(name, value) != value:
        return VARIABLE + variables_of("")[name]
    if value.startswith(VARIABLE):
        return value
    for prefix in (FILE, _SQLITE):
        if value.startswith(prefix):
            return prefix + _absolute(value.removeprefix(prefix))
    if name == "store":
        return value
    return _absolute(value)


def _absolute(path: str) -> str:
    if path.startswith("~"):
        return path
    return str(Path(path).absolute())
