"""Pages as lists of steps: files that the reader creates, and commands that the reader types.

A command is a line that begins with ``$ `` in a block marked ``console``; the lines after it are
what it prints. In a block whose first line begins with ``# ``, the commands are those of root. A
line ``^C`` ends the program that was started last.

A file is a block with a name: ``title="NAME"`` behind the language, or a first line that is a
comment with nothing but a name, such as ``# settings.py`` or ``// crawl.mjs``.

In the output, a line ``...`` stands for any number of lines, and ``...`` within a line for any
text. What differs from run to run (times, durations, ids, digests, free ports) is compared as a
placeholder, and white space as one space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

END = "^C"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[a-z]+.*)?$")
_TITLE = re.compile(r'title="([^"]+)"')
_NAMED = re.compile(r"^(?:#|//) ([\w./-]+\.[a-z]+)$")
_CONTINUED = re.compile(r"(?:\\|\||&&)$")

_PLACEHOLDERS = [
    (re.compile(r"\b[0-9a-f]{10}-\d+\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b2\d{7}(?=-)"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?Z?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"), "TIME"),
    (re.compile(r"(?<=until=)\d{10}\b"), "TIME"),
    (re.compile(r"(?<=127\.0\.0\.1:)[3-6]\d{4}\b"), "PORT"),
    (re.compile(r"(?:\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b *)+"), "DURATION "),
    (re.compile(r"(?<=[Rr]etry-[Aa]fter: )\d+"), "SECONDS"),
]


@dataclass(frozen=True)
class File:
    """A file that the page tells the reader to write, and its line in the page."""

    line: int
    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command, its line in the page, and the lines that it prints according to the page."""

    line: int
    text: str
    output: list[str]
    is_root: bool = False


Step = File | Command


def steps(page: Path) -> list[Step]:
    """Return the steps of a page, from top to bottom."""
    return [step for block in _blocks(page.read_text("utf-8")) for step in _steps_of(*block)]


def commands(page: Path) -> list[Command]:
    """Return the commands of a page."""
    return [step for step in steps(page) if isinstance(step, Command)]


def difference(expected: list[str], printed: str) -> str:
    """Return what to show if a command printed something else than the page says, else ''."""
    wanted = [_normal(line) for line in expected]
    got = [_normal(line) for line in printed.strip("\n").split("\n")]
    if _pattern(wanted).fullmatch("".join(f"{line}\n" for line in got)):
        return ""
    return "\n".join(["the page says:", *expected, "", "it printed:", printed])


def _blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the first line's number, the words behind the fence, and the lines of each block."""
    start, info, indent, lines = 0, "", 0, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = _FENCE.match(line)
        if fence and not start:
            start, info, lines = number + 1, fence["info"] or "", []
            indent = len(fence["indent"])
        elif fence:
            yield start, info, lines
            start = 0
        elif start:
            lines.append(line[indent:])


def _steps_of(start: int, info: str, lines: list[str]) -> Iterator[Step]:
    language = info.partition(" ")[0]
    if language == "console":
        yield from _commands_of(start, lines)
        return
    title = _TITLE.search(info)
    comment = _NAMED.match(lines[0]) if lines else None
    if name := title or comment:
        yield File(start, name[1], "\n".join([*lines, ""]))


def _commands_of(start: int, lines: list[str]) -> Iterator[Command]:
    is_root = lines[0].startswith("# ")
    prompt = ("$ ", "# ") if is_root else ("$ ",)
    texts: list[tuple[int, list[str], list[str], bool]] = []
    for number, line in enumerate(lines, start):
        if line == END:
            texts.append((number, [END], [], False))
        elif line.startswith(prompt):
            texts.append((number, [line[2:]], [], line.startswith("# ")))
        elif _CONTINUED.search(texts[-1][1][-1]) and not texts[-1][2]:
            texts[-1][1].append(line)
        else:
            texts[-1][2].append(line)
    for number, text, output, root in texts:
        while output and not output[-1].strip():
            output.pop()
        yield Command(number, "\n".join(text), output, root)


def _normal(line: str) -> str:
    for pattern, placeholder in _PLACEHOLDERS:
        line = pattern.sub(placeholder, line)
    return " ".join(line.split())


def _pattern(lines: list[str]) -> re.Pattern[str]:
    """Return a pattern of a whole output, with a line feed behind each line."""
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.split("..."))) + r"\n")
    return re.compile("".join(parts))
