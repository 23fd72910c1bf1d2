"""A completion script for bash 4 and newer.

It needs neither the package bash-completion nor a process: what can be completed is written into it.
"""

from __future__ import annotations

from collections.abc import Iterator

from robots_guard.cli.reference.description import (
    CommandDescription,
    OptionDescription,
    Values,
    all_commands,
)

_HEAD = """\
# bash completion of robots-guard, written by `robots-guard completion bash`

# What a command has: sets commands, options, valued (options that take a value) and arguments.
_robots_guard_command() {
    commands='' options='' valued='' arguments=text
    case $1 in
"""

_MIDDLE = """\
    esac
}

# What the value of an option can be: sets values. $1 is the command, $2 the option.
_robots_guard_values() {
    values=text
    case "$1 $2" in
"""

_TAIL = """\
    esac
}

# Completes $1 from the values in $2: "files", "directories", "text", or words.
_robots_guard_reply() {
    case $2 in
        text) ;;
        files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$1") ;;
        directories) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$1") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$2" -- "$1") ;;
    esac
}

_robots_guard() {
    local commands options valued arguments values word index
    local command=robots-guard option='' ended='' current=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    _robots_guard_command "$command"
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $word == '=' && -n $option ]]; then
            continue  # readline splits --option=value into three words
        elif [[ -n $option ]]; then
            option=''
        elif [[ $word == -- ]]; then
            ended=yes
        elif [[ -z $ended && " $valued " == *" $word "* ]]; then
            option=$word
        elif [[ -z $ended && " $commands " == *" $word "* ]]; then
            command+=" $word"
            _robots_guard_command "$command"
        fi
    done
    if [[ -n $option ]]; then
        [[ $current == '=' ]] && current=''
        _robots_guard_values "$command" "$option"
        _robots_guard_reply "$current" "$values"
    elif [[ $current == -* && -z $ended ]]; then
        _robots_guard_reply "$current" "$options"
    elif [[ -n $commands ]]; then
        _robots_guard_reply "$current" "$commands"
    elif [[ $arguments != text ]]; then
        _robots_guard_reply "$current" "$arguments"
    elif [[ -z $current && -z $ended ]]; then
        _robots_guard_reply "$current" "$options"
    fi
}

complete -F _robots_guard robots-guard
"""


def bash_script(root: CommandDescription) -> str:
    """The script for a command line."""
    commands = list(all_commands(root))
    parts = [_HEAD, *map(_command_case, commands), _MIDDLE, *_value_cases(commands), _TAIL]
    return "".join(parts)


def _command_case(command: CommandDescription) -> str:
    flags = [flag for option in command.options for flag in option.flags]
    valued = [flag for option in command.options if option.values for flag in option.flags]
    fields = [
        f"commands='{' '.join(each.path[-1] for each in command.commands)}'",
        f"options='{' '.join(flags)}'",
        f"valued='{' '.join(valued)}'",
    ]
    if command.arguments:
        fields.append(f"arguments='{_as_word(command.arguments[0].values)}'")
    return f"        '{command.name}') {' '.join(fields)} ;;\n"


def _value_cases(commands: list[CommandDescription]) -> Iterator[str]:
    """A case for each option whose values a shell can complete."""
    for command in commands:
        for option in command.options:
            if option.values is not None and option.values.kind != "text":
                yield _value_case(command, option, option.values)


def _value_case(command: CommandDescription, option: OptionDescription, values: Values) -> str:
    patterns = " | ".join(f"'{command.name} {flag}'" for flag in option.flags)
    return f"        {patterns}) values='{_as_word(values)}' ;;\n"


def _as_word(values: Values) -> str:
    if values.kind == "words":
        return " ".join(values.words)
    return values.kind
