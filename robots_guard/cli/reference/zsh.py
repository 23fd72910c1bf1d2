"""A completion script for zsh, with the descriptions of commands and options."""

from __future__ import annotations

import re

from robots_guard.cli.reference.description import (
    CommandDescription,
    OptionDescription,
    Values,
    all_commands,
)

_HEAD = """\
#compdef robots-guard
# zsh completion of robots-guard, written by `robots-guard completion zsh`

"""

_TAIL = """\
# The file is either a function that zsh loads from its fpath, or read by eval or source.
if [ "$funcstack[1]" = _robots-guard ]; then
    _robots-guard "$@"
else
    compdef _robots-guard robots-guard
fi
"""

_ACTIONS = {"text": " ", "files": "_files", "directories": "_files -/"}


def zsh_script(root: CommandDescription) -> str:
    """The script for a command line."""
    functions = [_function(command) for command in all_commands(root)]
    return "".join([_HEAD, *functions, _TAIL])


def _name(command: CommandDescription) -> str:
    return "_" + "-".join(command.path)


def _function(command: CommandDescription) -> str:
    specs = [_option(option) for option in command.options]
    if command.commands:
        return _group_function(command, specs)
    specs += [
        f"'{'*' if argument.repeats else ''}:{_message(argument.name)}:{_action(argument.values)}'"
        for argument in command.arguments
    ]
    lines = " \\\n        ".join(["_arguments", *specs])
    return f"{_name(command)}() {{\n    {lines}\n}}\n\n"


def _group_function(command: CommandDescription, specs: list[str]) -> str:
    lines = " \\\n        ".join(["_arguments -C", *specs, "'1: :->command'", "'*:: :->rest'"])
    described = "\n".join(
        f"                '{each.path[-1]}:{_quoted(each.summary)}'" for each in command.commands
    )
    return f"""\
{_name(command)}() {{
    local curcontext="$curcontext" context state line
    typeset -A opt_args
    {lines}
    case $state in
        command)
            local -a commands=(
{described}
            )
            _describe -t commands command commands
            ;;
        rest) (( $+functions[{_name(command)}-$words[1]] )) && {_name(command)}-$words[1] ;;
    esac
}}

"""


def _option(option: OptionDescription) -> str:
    excluded = "*" if option.repeats else f"({' '.join(option.flags)})"
    value, equals = "", ""
    if option.values is not None:
        value = f":{_message(_metavar(option))}:{_action(option.values)}"
        equals = "="
    explained = f"[{_in_brackets(option.summary)}]{value}"
    if len(option.flags) == 1:
        return f"'{excluded}{option.flags[0]}{equals}{explained}'"
    flags = ",".join(f"{flag}{equals}" for flag in option.flags)
    return f"'{excluded}'{{{flags}}}'{explained}'"


def _metavar(option: OptionDescription) -> str:
    return option.synopsis.rpartition(" ")[2]


def _action(values: Values) -> str:
    if values.kind == "words":
        return f"({' '.join(values.words)})"
    return _ACTIONS[values.kind]


def _message(text: str) -> str:
    return _quoted(text.replace(":", "\\:"))


def _in_brackets(text: str) -> str:
    return _quoted(re.sub(r"([\[\]\\])", r"\\\1", text))


def _quoted(text: str) -> str:
    """Text within single quotes."""
    return text.replace("'", "'\\''")
