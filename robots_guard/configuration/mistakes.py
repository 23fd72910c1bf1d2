"""All mistakes in configuration files at once, each as a sentence that begins with its place.

A program that reads the configuration ends with the first mistake. An operator who writes a file
wants to see every one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from robots_guard.configuration.config_file import ConfigFile
from robots_guard.configuration.configuration import (
    Configuration,
    section_from,
    settings_from,
    value_from,
    values_of,
)
from robots_guard.configuration.environment import values_in
from robots_guard.configuration.sections import GENERAL, SECTIONS, own_options, section_of
from robots_guard.configuration.settings import Settings, kind_of
from robots_guard.configuration.source import Value
from robots_guard.errors import SettingsError

COMPONENTS = (GENERAL, *SECTIONS)
#: What a file may lack: an option may give it, or another user's home directory.
_ASSUMED = {"agent": "mybot", "store": "memory:", "audit_log": "audit_log"}

Values = dict[str, Value]


def valid_parts(
    files: Sequence[ConfigFile], environ: Mapping[str, str], *, has_variables: bool
) -> tuple[list[str], dict[str, Configuration]]:
    """Return the mistakes in files, of which later ones win, and the configuration of each
    component without them. With `has_variables`, those in the environment are part of it."""
    found: dict[str, None] = {}  # in order, each once
    configurations = {}
    for component in COMPONENTS:
        values: Values = {}
        for file in files:
            mistakes, valid = _valid_values(file, component, environ)
            found.update(dict.fromkeys(mistakes))
            values |= valid
        if has_variables:
            mistakes, valid = _valid_variables(component, environ)
            found.update(dict.fromkeys(mistakes))
            values |= valid
        whole = Configuration(
            component=component,
            values=values,
            files=tuple(file.path for file in files),
            environ=environ,
        )
        mistakes, configurations[component] = _consistent(whole)
        found.update(dict.fromkeys(mistakes))
    return list(found), configurations


def _valid_values(
    file: ConfigFile, component: str, environ: Mapping[str, str]
) -> tuple[list[str], Values]:
    """The mistakes in the names and types of one component's values, and the other values."""
    mistakes, valid = [], Values()
    for part in _parts_of(file, component):
        try:
            values = values_of(part, section_of(component))
            for name, value in values.items():
                _check_type(component, name, value, environ)
        except SettingsError as error:
            mistakes.append(str(error))
        else:
            valid |= values
    return mistakes, valid


def _valid_variables(component: str, environ: Mapping[str, str]) -> tuple[list[str], Values]:
    """The same of the environment. A variable that names nothing hides mistakes in the others."""
    mistakes, valid = [], Values()
    try:
        values = values_in(environ, section_of(component))
    except SettingsError as error:
        return [str(error)], valid
    for name, value in values.items():
        try:
            _check_type(component, name, value, environ)
        except SettingsError as error:
            mistakes.append(str(error))
        else:
            valid[name] = value
    return mistakes, valid


def _parts_of(file: ConfigFile, component: str) -> Iterator[ConfigFile]:
    """A file for each entry that a component reads: first those at the top level."""
    for name, value in file.table.items():
        if name not in SECTIONS or not isinstance(value, Mapping):
            yield file._replace(table={name: value})
    section = file.table.get(component)
    if isinstance(section, Mapping):
        for name, value in section.items():
            yield file._replace(table={component: {name: value}})


def _check_type(component: str, name: str, value: Value, environ: Mapping[str, str]) -> None:
    """Raise SettingsError for a value of another type, or a reference to nothing."""
    alone = Configuration(component=component, values={name: value}, environ=environ)
    if name in own_options(section_of(component)):
        section_from(alone, {}, "{}", SECTIONS[component])
    else:
        value_from(alone, name)


def _consistent(configuration: Configuration) -> tuple[list[str], Configuration]:
    """The mistakes in values that have the right type, and the configuration without them."""
    mistakes: list[str] = []
    kind = kind_of(configuration.component)
    values = dict(configuration.values)
    while True:
        rest = replace(configuration, values=values)
        try:
            settings_from(rest, {}, "{}", kind, defaults=_ASSUMED)
        except SettingsError as error:
            mistakes.append(str(error))
            culprit = _culprit(str(error), values)
            if culprit is None:
                return mistakes, replace(configuration, values={})
            del values[culprit]
        else:
            return mistakes, rest


def _culprit(sentence: str, values: Values) -> str | None:
    """The name with whose place an error begins."""
    named = [
        name for name, value in values.items() if sentence.startswith(value.source.spell(name))
    ]
    return max(named, key=len, default=None)


def settings_of_valid(configuration: Configuration) -> Settings:
    """Return the settings of a configuration without mistakes."""
    return settings_from(
        configuration, {}, "{}", kind_of(configuration.component), defaults=_ASSUMED
    )


def section_of_valid(configuration: Configuration) -> Any:
    """Return what only this component has, of a configuration without mistakes; None if it has
    nothing of its own."""
    kind = SECTIONS.get(configuration.component)
    if kind is None:
        return None
    return section_from(configuration, {}, "{}", kind)


def place_of(mistake: str) -> tuple[str, int]:
    """Return the file and the line with which a mistake begins, to sort by."""
    path, _, rest = mistake.partition(":")
    line = rest.partition(":")[0]
    return path, int(line) if line.isdigit() else 0
