"""Man pages in the macros of man(7): one for the command line, and one for each command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from robots_guard.cli.group import OWN
from robots_guard.cli.reference.description import (
    CommandDescription,
    OptionDescription,
    all_commands,
)

SECTION = 1
_EXIT_STATUS = re.compile(r"Exit status: ")
_WORD = re.compile(r"(--?[A-Za-z][\w-]*)|([A-Za-z][\w:./=-]*)|([^A-Za-z-]+|-)")


def man_pages(root: CommandDescription, version: str) -> Mapping[str, str]:
    """The pages, by their file names."""
    return {
        f"{page_name(command)}.{SECTION}": _page(root, command, version)
        for command in all_commands(root)
    }


def page_name(command: CommandDescription) -> str:
    """The name of a command's page: its words, divided by hyphens."""
    return "-".join(command.path)


def _page(root: CommandDescription, command: CommandDescription, version: str) -> str:
    lines = [
        f'.TH {_escaped(page_name(command)).upper()} {SECTION} "" "robots_guard {version}" "robots_guard"',
        ".SH NAME",
        f"{_escaped(page_name(command))} \\- {_escaped(_uncapitalised(command.summary))}",
        ".SH SYNOPSIS",
        f".B {_escaped(command.name)}",
        _escaped(command.usage),
        ".SH DESCRIPTION",
        *_paragraphs(command),
        *_commands(command),
        *_options(command),
        *_exit_status(command),
        *_environment(command),
        *_see_also(root, command),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(command: CommandDescription) -> Iterator[str]:
    texts = [text for text in command.paragraphs if not _EXIT_STATUS.match(text)]
    for index, text in enumerate(texts or [command.summary]):
        if index:
            yield ".PP"
        yield _escaped(text)


def _commands(command: CommandDescription) -> Iterator[str]:
    if not command.commands:
        return
    yield ".SH COMMANDS"
    for each in command.commands:
        yield ".TP"
        yield f".BR {_escaped(page_name(each))} ({SECTION})"
        yield _escaped(each.summary)


def _options(command: CommandDescription) -> Iterator[str]:
    sections: dict[str, list[OptionDescription]] = {OWN: []}
    for option in command.options:
        sections.setdefault(option.section, []).append(option)
    for title, options in sections.items():
        yield ".SH OPTIONS" if title == OWN else f".SS {title}"
        for option in options:
            yield ".TP"
            yield _synopsis(option.synopsis)
            yield _escaped(option.help)


def _synopsis(text: str) -> str:
    """An option as --help shows it: flags are bold, values are italic."""
    parts = []
    for flag, value, other in _WORD.findall(text):
        if flag:
            parts.append(f"\\fB{_escaped(flag)}\\fR")
        elif value:
            parts.append(f"\\fI{_escaped(value)}\\fR")
        else:
            parts.append(_escaped(other))
    return "".join(parts)


def _exit_status(command: CommandDescription) -> Iterator[str]:
    for text in command.paragraphs:
        if _EXIT_STATUS.match(text):
            yield ".SH EXIT STATUS"
            yield _escaped(_EXIT_STATUS.sub("", text))


def _environment(command: CommandDescription) -> Iterator[str]:
    if all(option.section == OWN for option in command.options):
        return
    yield ".SH ENVIRONMENT"
    yield _escaped(
        "Each setting can also be given as a variable of the environment: ROBOTS_GUARD_ and the name"
        " of its option in upper case, with underscores. An option wins over the variable."
    )


def _see_also(root: CommandDescription, command: CommandDescription) -> Iterator[str]:
    parents = [each for each in all_commands(root) if command.path[: len(each.path)] == each.path]
    related = [each for each in parents if each.path != command.path]
    if not related:
        return
    yield ".SH SEE ALSO"
    for index, each in enumerate(related):
        comma = "," if index + 1 < len(related) else ""
        yield f".BR {_escaped(page_name(each))} ({SECTION}){comma}"


def _uncapitalised(sentence: str) -> str:
    text = sentence.rstrip(".")
    return text[:1].lower() + text[1:]


def _escaped(text: str) -> str:
    """Text that no macro or escape of roff begins in, and whose hyphens can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    escaped = escaped.replace("'", "\\(aq").replace('"', "\\(dq")
    if escaped.startswith("."):
        return "\\&" + escaped
    return escaped
