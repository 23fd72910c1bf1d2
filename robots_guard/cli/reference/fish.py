"""A completion script for fish 3 and newer, with the descriptions of commands and options."""

from __future__ import annotations

from collections.abc import Iterator

from robots_guard.cli.reference.description import (
    CommandDescription,
    OptionDescription,
    Values,
    all_commands,
)

_FUNCTION = """\
# fish completion of robots-guard, written by `robots-guard completion fish`

# Whether the words typed so far call exactly the command that the arguments name.
function __robots_guard_is
    set -l valued {valued}
    set -l commands {commands}
    set -l words (commandline -opc)
    set -l found robots-guard
    set -l skip 0
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word $valued
            set skip 1
        else if contains -- "$found $word" $commands
            set found "$found $word"
        end
    end
    test "$found" = "$argv"
end

complete -c robots-guard -f
"""


def fish_script(root: CommandDescription) -> str:
    """The script for a command line."""
    commands = list(all_commands(root))
    valued = {
        flag: None
        for command in commands
        for option in command.options
        if option.values is not None
        for flag in option.flags
    }
    lines = [line for command in commands for line in _lines(command)]
    names = " ".join(_quoted(command.name) for command in commands[1:])
    return _FUNCTION.format(valued=" ".join(valued), commands=names) + "\n".join(lines) + "\n"


def _lines(command: CommandDescription) -> Iterator[str]:
    condition = f"complete -c robots-guard -n {_quoted(f'__robots_guard_is {command.name}')}"
    for each in command.commands:
        yield f"{condition} -a {each.path[-1]} -d {_quoted(each.summary)}"
    for option in command.options:
        yield f"{condition} {_option(option)}"
    if command.arguments:
        words = _argument(command.arguments[0].values)
        if words:
            yield f"{condition} {words}"


def _option(option: OptionDescription) -> str:
    names = [
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
    ]
    parts = [*names, "-d", _quoted(option.summary)]
    if option.values is not None:
        parts.append("-r")
        words = _argument(option.values)
        parts.append(words or "-f")
    return " ".join(parts)


def _argument(values: Values) -> str:
    if values.kind == "words":
        return f"-f -a {_quoted(' '.join(values.words))}"
    if values.kind == "files":
        return "-F"
    if values.kind == "directories":
        return "-f -a '(__fish_complete_directories)'"
    return ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
