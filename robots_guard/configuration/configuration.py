"""The configuration of one component: what the files and the environment say, and settings from it.

Invariant: an error about a value names the place of that value, and never quotes a secret.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from robots_guard.audit.privacy import DEFAULT, is_secret_name
from robots_guard.configuration.config_file import ConfigFile
from robots_guard.configuration.environment import values_in
from robots_guard.configuration.files import read_files
from robots_guard.configuration.sections import SECTIONS, homes_of, section_of, settings_in
from robots_guard.configuration.settings import (
    Setting,
    Settings,
    Spelling,
    checked,
    described,
    names_of,
    require_known,
    respelled,
    settings_of,
    speller,
)
from robots_guard.configuration.source import FILE, Source, Value, is_reference, resolve
from robots_guard.decisions.component import PROXIES
from robots_guard.errors import SettingsError
from robots_guard.guard.stores import FORMS, is_store
from robots_guard.invocation import ALL_SETTINGS
from robots_guard.text import nearest

_LIST = 'write a list such as ["a", "b"]'

S = TypeVar("S", bound=Settings)
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What files and environment say, for one component. `files` are those that were read, from
    the least to the most specific."""

    component: str
    values: Mapping[str, Value] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_configuration(
    component: str,
    *,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Configuration:
    """Read the configuration of a component: "proxy", "scrapy", "console", "cli" or another.

    `config` names the only file to be read; "" means none. `directory` is where the search for a
    project's file begins; by default it is the working directory.

    Raises SettingsError, which names the file and the line, or the variable.
    """
    section = section_of(component)
    values: dict[str, Value] = {}
    found = read_files(config, environ, directory)
    for file in found:
        values |= values_of(file, section)
    values |= values_in(environ, section)
    files = tuple(file.path for file in found)
    return Configuration(component=component, values=values, files=files, environ=environ)


def values_of(file: ConfigFile, section: str) -> dict[str, Value]:
    """Return the values of a file for a component. Those of its section win over those for all.

    Raises SettingsError for the first name in the file that means nothing there.
    """
    _check_names(file)
    found = _entries(file, "", file.table)
    if section and section in file.table:
        found |= _entries(file, section, file.table[section])
    return found


def _entries(file: ConfigFile, section: str, table: Mapping[str, Any]) -> dict[str, Value]:
    settings = settings_in(section)
    found = {}
    for name in settings.keys() & table.keys():
        keys = (section, name) if section else (name,)
        source = Source("file", str(file.path), file.lines.get(keys, 0))
        value = _anchored(table[name], settings[name], file.path.parent)
        found[name] = Value(value, source)
    return found


def _anchored(value: Any, setting: Setting, folder: Path) -> Any:
    """The value, with a relative path in it made absolute: it is relative to the folder."""
    if not isinstance(value, str) or not value:
        return value
    form = setting.extra.get("path")
    before, path = "", value
    if value.startswith(FILE):
        before, path = FILE, value.removeprefix(FILE)
    elif form == "store" and value.startswith("sqlite:///") and ":memory:" not in value:
        before, path = "sqlite:///", value.removeprefix("sqlite:///")
    elif form == "credentials" and value.startswith("@"):
        before, path = "@", value.removeprefix("@")
    elif form == "socket" and value.startswith("unix:"):
        before, path = "unix:", value.removeprefix("unix:")
    elif form != "file" or is_reference(value):
        return value
    if not path or path.startswith("~"):
        return value
    return before + str(folder / path)


# -- names ------------------------------------------------------------------------------------------


def _check_names(file: ConfigFile) -> None:
    """Raise SettingsError for the first name in a file that means nothing there."""
    for name, value in file.table.items():
        if name in SECTIONS:
            _check_section(file, name, value)
        elif name not in settings_in(""):
            raise SettingsError(f"{file.place(name)}: {_objection(name, value)}")
        elif objection := _objection_to_type(name, value):
            raise SettingsError(f"{file.place(name)}: {objection}")


def _check_section(file: ConfigFile, section: str, table: Any) -> None:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{file.place(section)}: {section} is a section: write [{section}]")
    known = settings_in(section)
    for name, value in table.items():
        where = file.place(section, name)
        if name not in known:
            raise SettingsError(f"{where}: {_objection_within(section, name)}")
        if objection := _objection_to_type(name, value):
            raise SettingsError(f"{where}: {objection}")


def _objection_to_type(name: str, value: Any) -> str | None:
    """Why no setting can have a value of this TOML type, with the remedy; None if one can."""
    if isinstance(value, Mapping):
        return f"{name} is a setting and no section: write {name} = ..."
    for part in value if isinstance(value, list) else (value,):
        if isinstance(part, date | time):
            return f"{name} {part} is a date or a time, which no setting is: put it in quotes"
        if isinstance(part, float) and math.isnan(part):
            return f"{name} nan is not a number: write one such as 30 or 0.5"
        if isinstance(part, Mapping | list):
            return f"{name} has a part that is neither text nor a number: {_LIST}"
    return None


def _objection(name: str, value: Any) -> str:
    """Why a name is wrong at the top level of a file, and the remedy."""
    homes = homes_of(name)
    if homes:
        return f"{name} belongs to a section: put it below {_headers(homes)}"
    if isinstance(value, Mapping):
        near = nearest(name, tuple(SECTIONS), lambda each: f"[{each}]")
        if value.keys() <= settings_in("").keys():
            near += "; write what belongs to no section above the first one"
        return f"unknown section [{name}]: {near}"
    names = tuple(settings_in(""))
    return f"unknown setting {name}: {nearest(name, names)}; {ALL_SETTINGS}"


def _objection_within(section: str, name: str) -> str:
    """Why a name is wrong in a section, and the remedy."""
    homes = [*homes_of(name), *(each for each in PROXIES if name in names_of(each))]
    if homes:
        return f"{name} has no meaning in [{section}]: put it below {_headers(homes)}"
    near = nearest(name, tuple(settings_in(section)))
    return f"unknown setting {name} in [{section}]: {near}; {ALL_SETTINGS}"


def _headers(sections: list[str]) -> str:
    return " or ".join(f"[{section}]" for section in sections)


# -- settings ---------------------------------------------------------------------------------------


def settings_from(
    configuration: Configuration,
    given: Mapping[str, Any],
    spelling: Spelling = "{}",
    kind: type[S] = Settings,  # type: ignore[assignment]  # the default is one
    defaults: Mapping[str, Any] = {},
) -> S:
    """Build settings from a configuration and `given` values, which win over it: options, a
    framework's settings or keyword arguments. `defaults` replace the defaults of the settings.

    Raises SettingsError, which names the place of the faulty value; `spelling` is how the framework
    writes the name of a given one.
    """
    require_known(given, spelling, kind)  # the place of another value would name its own source
    merged = _merge(configuration, given, spelling, described(kind), defaults)
    try:
        settings = settings_of(merged.values, merged.spell, kind)
    except SettingsError as error:
        raise SettingsError(merged.without_secrets(str(error))) from None
    if not merged.references:
        return settings
    return msgspec.structs.replace(settings, references=tuple(merged.references.items()))


def section_from(
    configuration: Configuration, given: Mapping[str, Any], spelling: Spelling, kind: type[T]
) -> T:
    """Build the values of a section (`SECTIONS`) from a configuration and `given` values, which win
    over it.

    Raises SettingsError, which names the place of the faulty value.
    """
    settings = described(kind)
    values = _checked(_merge(configuration, given, spelling, settings, {}), settings)
    return msgspec.convert(values, kind, strict=False)


def value_from(
    configuration: Configuration, name: str, given: Any = None, spelling: Spelling = "{}"
) -> Any:
    """Return the value of one setting: given, configured, or None.

    Raises SettingsError, which names the place of the faulty value.
    """
    setting = settings_in("")[name]
    chosen = {} if given is None else {name: given}
    merged = _merge(configuration, chosen, spelling, {name: setting}, {})
    value = _checked(merged, {name: setting}).get(name)
    if value is None:
        return None
    return msgspec.convert(value, setting.annotated, strict=False)


def _checked(merged: _Merged, settings: Mapping[str, Setting]) -> dict[str, Any]:
    try:
        return checked(merged.values, settings)
    except SettingsError as error:
        sentence = respelled(str(error), merged.spell, settings)
        raise SettingsError(merged.without_secrets(sentence)) from None


def shown(name: str, value: Any) -> str:
    """Return a value of the configuration as it may be printed: a reference as it was written, a
    URL without its secrets, and nothing of a secret."""
    if is_reference(value):
        return str(value)
    if _has(name, "is_secret"):
        return _HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(_shown_part(name, each) for each in value)
    return _shown_part(name, value)


def _shown_part(name: str, value: Any) -> str:
    """One text of a list, or a single value, as it may be printed."""
    if _has(name, "is_pairs"):
        return _shown_pair(value)
    return DEFAULT.text(str(value))


def _shown_pair(value: Any) -> str:
    """A text NAME=VALUE as it may be printed; nothing of anything else."""
    if not isinstance(value, str):
        return _HIDDEN
    name, _, _ = value.partition("=")
    if is_secret_name(name):
        return f"{name}={_HIDDEN}"
    return DEFAULT.text(value)


def _quoted(name: str, value: Any) -> str:
    """A value as an error may quote it."""
    if _has(name, "is_secret") or _has(name, "is_pairs"):
        return shown(name, value)
    if isinstance(value, str):
        return repr(DEFAULT.text(value))
    return DEFAULT.text(repr(value))


def _has(name: str, attribute: str) -> bool:
    """Whether a name has an attribute in `Meta.extra`, in any section."""
    found = (settings_in(section).get(name) for section in ("", *SECTIONS))
    return any(setting.extra.get(attribute) for setting in found if setting is not None)


_HIDDEN = "(hidden)"


class _Merged(NamedTuple):
    """Values with references resolved, the text of each reference, and how to name each value."""

    values: dict[str, Any]
    references: dict[str, str]
    spell: Callable[[str], str]

    def without_secrets(self, sentence: str) -> str:
        """The sentence with each value that was referred to replaced by its reference, and each
        other one as it may be quoted."""
        for name, reference in self.references.items():
            secret = str(self.values[name])
            sentence = sentence.replace(repr(secret), repr(reference)).replace(secret, reference)
        for name in self.values.keys() - self.references.keys():
            value = self.values[name]
            if value and not isinstance(value, bool):
                sentence = sentence.replace(repr(value), _quoted(name, value))
        return sentence


def _merge(
    configuration: Configuration,
    given: Mapping[str, Any],
    spelling: Spelling,
    settings: Mapping[str, Setting],
    defaults: Mapping[str, Any],
) -> _Merged:
    """Merge values of rising precedence. Raises SettingsError for a reference to nothing."""
    configured = {
        name: each
        for name, each in configuration.values.items()
        if name in settings and name not in given
    }
    spell_given = speller(spelling)

    def spell(name: str) -> str:
        if name not in configured:
            return spell_given(name)
        source = configured[name].source
        if source.name == spell_given(name):  # Scrapy's settings have the names of the variables
            return str(source)
        return source.spell(name)

    values = {**defaults, **{name: each.value for name, each in configured.items()}, **given}
    references = {
        name: value
        for name, value in values.items()
        if is_reference(value) and name in settings and settings[name].type is str
    }
    for name, reference in references.items():
        try:
            values[name] = resolve(reference, configuration.environ)
        except SettingsError as error:
            raise SettingsError(f"{spell(name)} {reference!r}: {error}") from None
        if name == "store" and not is_store(values[name]):  # whose error would quote it
            raise SettingsError(
                f"{spell(name)} {reference!r}: its value is not the URL of a store: use {FORMS}"
            )
    return _Merged(values, references, spell)
