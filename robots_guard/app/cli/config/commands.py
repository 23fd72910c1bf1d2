"""The commands of `robots-guard config`: show, check and init."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from robots_guard.app.cli.config.schema import schema_text
from robots_guard.app.cli.config.template import template
from robots_guard.app.cli.group import CommandGroup, config_named, config_option
from robots_guard.app.cli.options import configuration
from robots_guard.app.cli.terminal import Rows, TableColumn, safe, write_encoded, write_line
from robots_guard.configuration import Configuration, Source, Value, shown
from robots_guard.configuration.config_file import ConfigFile
from robots_guard.configuration.files import NAME, read_files
from robots_guard.configuration.mistakes import COMPONENTS, place_of, valid_parts
from robots_guard.configuration.sections import GENERAL, SECTIONS, own_options, section_of
from robots_guard.configuration.settings import SETTINGS, USER_DEFAULTS, names_of
from robots_guard.errors import SettingsError
from robots_guard.text import counted

HAS_MISTAKES = 2  # the exit status of a mistake of the user
COLUMNS = (
    "name",
    TableColumn("value", folds=True),
    TableColumn("source", folds=True),
)
_DEFAULT = Source("default")


class ShownValue(NamedTuple):
    """A value as it is shown, and its source."""

    name: str
    text: str
    source: Source


@click.group(cls=CommandGroup, no_args_is_help=False)
def config() -> None:
    """Show and check the configuration, or write a new file."""


@config.command()
@config_option
@click.option(
    "--component",
    type=click.Choice(COMPONENTS),
    help="Only what this component uses; cli: the commands.",
)
@click.option("--all", "shows_all", is_flag=True, help="Show the defaults, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--schema",
    is_flag=True,
    help="Show what a file may contain instead: its JSON Schema, with which editors complete and check it.",
)
def show(component: str | None, *, shows_all: bool, as_json: bool, schema: bool) -> None:
    """Show the values that are in force, and where each comes from.

    Without --component, a value that is for one component only has the name of its section before
    its own. Options of other commands are not known here.
    """
    if schema:
        write_line(schema_text().rstrip("\n"))
        return
    general = configuration(component or GENERAL)
    values = list(_values_for(general, has_defaults=shows_all))
    if component is None:
        values += _values_of_sections(general, has_defaults=shows_all)
    if as_json:
        write_encoded(msgspec.json.encode(_as_data(general, values)))
        return
    rows = Rows(*COLUMNS)
    for each in values:
        rows.add([each.name, each.text, str(each.source)])
    rows.end()
    click.echo(f"robots-guard: {_about(general, values)}", err=True)


def _about(read: Configuration, values: list[ShownValue]) -> str:
    """Which files were read, for standard error."""
    said = "no configuration file is read"
    if read.files:
        said = f"read {', '.join(safe(str(path)) for path in read.files)}"
    if not values:
        said += "; every value is the default, which --all shows"
    return said


def _values_for(read: Configuration, *, has_defaults: bool) -> Iterator[ShownValue]:
    """The values of one component, in the order in which users see them."""
    for name in _names_for(read.component):
        value = read.values.get(name)
        if value is not None:
            yield ShownValue(name, shown(name, value.value), value.source)
        elif has_defaults:
            yield ShownValue(name, _default_text(read.component, name), _DEFAULT)


def _values_of_sections(general: Configuration, *, has_defaults: bool) -> Iterator[ShownValue]:
    """The values of all sections that differ from those for all components."""
    for section in SECTIONS:
        within = configuration(section)
        for each in _values_for(within, has_defaults=has_defaults):
            if not _is_general(each.name, within.values.get(each.name), general):
                yield each._replace(name=f"{section}.{each.name}")


def _is_general(name: str, value: Value | None, general: Configuration) -> bool:
    """Whether a value of a component is that of all components."""
    return name in _names_for(general.component) and value == general.values.get(name)


def _names_for(component: str) -> list[str]:
    """The names that a component has, in the order in which users see them."""
    return [*names_of(component), *own_options(section_of(component))]


def _default_text(component: str, name: str) -> str:
    """The value of a name that is not configured; empty if there is none."""
    if name in USER_DEFAULTS:
        with contextlib.suppress(SettingsError):  # a user without a home directory has none
            return USER_DEFAULTS[name]()
        return ""
    own = own_options(section_of(component))
    setting = own.get(name) or SETTINGS[name]
    return setting.default_text


def _as_data(read: Configuration, values: list[ShownValue]) -> dict[str, Any]:
    return {
        "component": read.component,
        "files": [str(path) for path in read.files],
        "values": [
            {
                "name": each.name,
                "value": each.text,
                "source": {
                    "kind": each.source.kind,
                    "name": each.source.name,
                    "line": each.source.line or None,
                },
            }
            for each in values
        ],
    }


@config.command()
@config_option
@click.argument("file", required=False)
def check(file: str | None) -> int:
    """Report every mistake in a configuration file, or in the files and variables that are found.

    Files that the configuration names are checked, too: overrides, agents, keys and certificates.

    Exit status: 0 there is no mistake, 2 there is one.
    """
    from robots_guard.app.cli.config.named_files import mistakes_in_named

    files = read_files(file or config_named(), os.environ, None)
    mistakes, configurations = valid_parts(files, os.environ, has_variables=file is None)
    for each in configurations.values():
        mistakes += mistakes_in_named(each)
    mistakes = sorted(dict.fromkeys(mistakes), key=place_of)
    for mistake in mistakes:
        write_line(safe(mistake))
    click.echo(f"robots-guard: {_names_of(files)}: {_number(len(mistakes))}", err=True)
    if mistakes:
        return HAS_MISTAKES
    return 0


def _names_of(files: list[ConfigFile]) -> str:
    """The names of the files that were checked."""
    if not files:
        return "there is no configuration file"
    return ", ".join(safe(str(file.path)) for file in files)


def _number(count: int) -> str:
    if not count:
        return "no mistake"
    return counted(count, "mistake")


@config.command()
@click.argument("file", default=NAME, type=click.Path(path_type=Path))
@click.option(
    "--component",
    type=click.Choice([*SECTIONS]),
    help="Only what this component uses.",
)
def init(file: Path, component: str | None) -> None:
    """Write a new configuration file, by default robots_guard.toml in this directory.

    It has every setting with its default, commented out. A file that exists is not overwritten.
    """
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(template(component))
    except FileExistsError:
        raise SettingsError(
            f"{str(file)!r} exists and is not overwritten: name another file, or edit this one"
        ) from None
    except OSError as error:
        raise SettingsError(
            f"{str(file)!r} cannot be written ({error.strerror}): name another file"
        ) from None
    click.echo(
        f"robots-guard: {safe(str(file))} written: remove the # of the lines that you change",
        err=True,
    )
