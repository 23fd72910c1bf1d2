"""A configuration file: its text, parsed by tomllib, with the line of each value.

tomllib does not say where a value stands. Statements end at the end of a line, so the shortest run
of lines that tomllib accepts is one statement, and its keys are on the first of these lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from robots_guard.errors import SettingsError

Keys = tuple[str, ...]
PYPROJECT = "pyproject.toml"
TABLE = ("tool", "robots_guard")  # in pyproject.toml
_DASHED = "robots-guard"
#: Characters that are parsed to find the statements of a text, at most, beyond 20 times its length: a statement of
#: many lines is parsed repeatedly.
PARSED = 1_000_000
# where a value of several lines may end: closed, and behind that nothing or a comment
_END = re.compile(r"""([]}]|"{3}|'{3})\s*(#|$)""")
_QUOTES = 'put a text in quotes, as in agent = "mybot"'
#: Of tomllib's sentences, those of which it does not say what to do.
_REMEDIES = {
    "Invalid value": f"{_QUOTES}; a switch is true or false",
    "Expected newline or end of document after a statement": f"{_QUOTES}, and each setting on a"
    " line of its own",
}
_AT = re.compile(r" \(at (?:line (?P<line>[0-9]+), column [0-9]+|end of document)\)$")


class ConfigFile(NamedTuple):
    """The values in a file, and the line of each key: `("proxy", "listen")` for one in a section."""

    path: Path
    table: Mapping[str, Any]
    lines: Mapping[Keys, int]

    def place(self, *keys: str) -> str:
        """Return the place of a key as text for people."""
        line = self.lines.get(keys)
        if line is None:
            return str(self.path)
        return f"{self.path}:{line}"


def parse_config(path: Path, text: str) -> ConfigFile | None:
    """Return what a file says. Returns None for a pyproject.toml without [tool.robots_guard].

    Raises SettingsError, which names the line, if it is not TOML.
    """
    table = _parse(path, text)
    if path.name != PYPROJECT:
        return ConfigFile(path, table, dict(_lines(text)))
    tools = table.get("tool", {})
    if not isinstance(tools, dict):
        return None
    if _DASHED in tools:
        line = dict(_lines(text)).get(("tool", _DASHED), 1)
        raise SettingsError(f"{path}:{line}: [tool.{_DASHED}] is not read: write [tool.{TABLE[1]}]")
    if TABLE[1] not in tools:
        return None
    return _tool_table(path, tools[TABLE[1]], text)


def _tool_table(path: Path, own: Any, text: str) -> ConfigFile:
    lines = {keys[2:]: line for keys, line in _lines(text) if keys[:2] == TABLE}
    if not isinstance(own, dict):
        raise SettingsError(
            f"{path}:{lines.get((), 1)}: robots_guard is not a table: write [tool.robots_guard]"
        )
    return ConfigFile(path, own, lines)


def _parse(path: Path, text: str) -> dict[str, Any]:
    from robots_guard.toml import parse_toml  # only where there is a file

    try:
        return parse_toml(text)
    except ValueError as error:
        found = _AT.search(str(error))
        why = _AT.sub("", str(error))
        line = int(found["line"]) if found and found["line"] else _unfinished(text)
        raise SettingsError(
            f"{path}:{line}: not valid TOML: {_explained(why, text, line)}"
        ) from None


def _explained(why: str, text: str, line: int) -> str:
    """What tomllib says of a line, with what to do."""
    if why in _REMEDIES:
        return f"{why}: {_REMEDIES[why]}"
    if why.startswith("Cannot "):  # overwrite, declare twice, mutate
        return _repetition(text, line) or why
    return why


def _repetition(text: str, last: int) -> str | None:
    """A sentence about the statement that ends on a line, if it repeats an earlier name or header;
    None if it does not."""
    found = [(keys, line) for keys, line in _lines(text) if line <= last]
    line = max((line for _, line in found), default=0)
    earlier = {keys: before for keys, before in found if before < line}
    own = sorted((keys for keys, at in found if at == line), key=len, reverse=True)
    repeated = next((keys for keys in own if keys in earlier), None)
    if repeated is None:
        return None
    name = repeated[-1]
    if text.split("\n")[line - 1].lstrip().startswith("["):
        name = f"[{'.'.join(repeated)}]"
    return f"{name} is already in line {earlier[repeated]}: remove one of them"


def _unfinished(text: str) -> int:
    """The line of the statement that has no end."""
    last = 1
    for first, _, _ in _statements(text):
        last = first
    return last


def _lines(text: str) -> Iterator[tuple[Keys, int]]:
    """The lines of all keys in a text that tomllib accepts."""
    section: Keys = ()
    for line, is_header, parsed in _statements(text):
        found = list(_keys_in(parsed or {}))
        if is_header:
            section = max(found, key=len)
            yield section, line
            continue
        for keys in found:
            yield (*section, *keys), line


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, Any] | None]]:
    """Each statement: its first line, whether it is the header of a table, and what it means by
    itself. That is None for a last one without an end."""
    import tomllib

    begun: list[str] = []
    first, left = 0, PARSED + 20 * len(text)
    for number, line in enumerate(text.split("\n"), 1):
        if not begun and _is_empty(line):
            continue
        begun.append(line)
        first = first or number
        if len(begun) > 1 and not _END.search(line):
            continue  # so that a long list is not parsed once for each line
        statement = "\n".join(begun) + "\n"
        left -= len(statement)
        if left < 0:
            break
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield first, begun[0].lstrip().startswith("["), parsed
        begun, first = [], 0
    if begun:
        yield first, False, None


def _is_empty(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _keys_in(table: Mapping[str, Any], before: Keys = ()) -> Iterator[Keys]:
    """All keys of a table and of the tables in it."""
    for name, value in table.items():
        keys = (*before, name)
        yield keys
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = value[0]
        if isinstance(value, dict):
            yield from _keys_in(value, keys)
