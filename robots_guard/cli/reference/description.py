"""Commands, their options and their arguments as plain values, read from click.

The man pages and the completion scripts are made from these values only.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args, get_origin

import click

from robots_guard.cli.group import OWN
from robots_guard.rep.dialect import DIALECTS
from robots_guard.settings import SETTINGS

_FILE_WORDS = re.compile(r"\b(FILE|BUNDLE)\b")


class Values(NamedTuple):
    """What a shell can complete for a value: words, names of files or directories, or nothing."""

    kind: Literal["text", "words", "files", "directories"]
    words: tuple[str, ...] = ()


TEXT = Values("text")


class OptionDescription(NamedTuple):
    """An option of a command."""

    flags: tuple[str, ...]
    synopsis: str  # "--agent AGENT", as in --help
    help: str
    section: str  # the section of the help in which it is listed
    values: Values | None  # None if it takes no value
    repeats: bool

    @property
    def summary(self) -> str:
        """The first sentence of the help, without its full stop."""
        return re.split(r"\.(?:\s|$)", self.help, maxsplit=1)[0]


class ArgumentDescription(NamedTuple):
    """An argument of a command."""

    name: str  # as in the usage line
    values: Values
    repeats: bool


class CommandDescription(NamedTuple):
    """A command or a group of commands."""

    path: tuple[str, ...]  # its words: ("robots-guard", "audit", "query")
    usage: str  # what follows the words
    summary: str  # one sentence
    paragraphs: tuple[str, ...]
    options: tuple[OptionDescription, ...]
    arguments: tuple[ArgumentDescription, ...]
    commands: tuple[CommandDescription, ...]

    @property
    def name(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.path)


def describe(command: click.Command, name: str) -> CommandDescription:
    """Describe a command and all commands beneath it, whose modules are imported.

    Raises MissingExtra.
    """
    return _describe(command, name, None)


def all_commands(command: CommandDescription) -> Iterator[CommandDescription]:
    """A command and all commands beneath it."""
    yield command
    for each in command.commands:
        yield from all_commands(each)


def _describe(
    command: click.Command, name: str, parent: click.Context | None
) -> CommandDescription:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    parameters = command.get_params(context)
    return CommandDescription(
        path=_path(context),
        usage=" ".join(command.collect_usage_pieces(context)),
        summary=command.get_short_help_str(limit=1000),
        paragraphs=_paragraphs(command.help or ""),
        options=tuple(_options(parameters, context)),
        arguments=tuple(_arguments(parameters, context)),
        commands=tuple(_commands(command, context)),
    )


def _path(context: click.Context) -> tuple[str, ...]:
    """The words of a command, without the arguments of its groups."""
    words: list[str] = []
    at: click.Context | None = context
    while at is not None:
        words.append(at.info_name or "")
        at = at.parent
    return tuple(reversed(words))


def _paragraphs(text: str) -> tuple[str, ...]:
    unmarked = text.replace("\b", "").strip()
    return tuple(" ".join(each.split()) for each in re.split(r"\n\s*\n", unmarked) if each.strip())


def _commands(command: click.Command, context: click.Context) -> Iterator[CommandDescription]:
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield _describe(found, name, context)


def _options(
    parameters: Sequence[click.Parameter], context: click.Context
) -> Iterator[OptionDescription]:
    for each in parameters:
        record = each.get_help_record(context)
        if not isinstance(each, click.Option) or record is None:
            continue
        yield OptionDescription(
            flags=(*each.opts, *each.secondary_opts),
            synopsis=record[0],
            help=" ".join(record[1].split()),
            section=getattr(each, "section", OWN),
            values=None if each.is_flag or each.count else _values(each, context),
            repeats=each.multiple,
        )


def _arguments(
    parameters: Sequence[click.Parameter], context: click.Context
) -> Iterator[ArgumentDescription]:
    for each in parameters:
        if isinstance(each, click.Argument):
            name = each.make_metavar(context).rstrip(".")
            yield ArgumentDescription(name, _values(each, context), each.nargs == -1)


def _values(parameter: click.Parameter, context: click.Context) -> Values:
    """What a shell can complete for a parameter, by its type, its name or its metavar."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return Values("words", tuple(str(getattr(each, "value", each)) for each in kind.choices))
    if isinstance(kind, click.Path) and not kind.file_okay:
        return Values("directories")
    if isinstance(kind, click.Path | click.File):
        return Values("files")
    if "--dialect" in parameter.opts:
        return Values("words", tuple(DIALECTS))
    if parameter.name in SETTINGS and isinstance(parameter, click.Option):
        return _values_of_setting(parameter.name)
    if _FILE_WORDS.search(parameter.make_metavar(context)):
        return Values("files")
    return TEXT


def _values_of_setting(name: str) -> Values:
    """The values of a setting: the words of its type if it has some, or names of files."""
    words = _words(SETTINGS[name].type)
    if words:
        return Values("words", words)
    if name in _PATHS:
        return _PATHS[name]
    return TEXT


#: The settings that are paths: their type is text.
_PATHS = {
    "agents": Values("files"),
    "audit_log": Values("directories"),
    "audit_signing_key": Values("files"),
    "overrides": Values("files"),
}


def _words(kind: object) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return tuple(str(each) for each in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(each.value) for each in kind)
    return ()
