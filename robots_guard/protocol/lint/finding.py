"""Findings, the tables of checks that produce them, and the experiments that they rest on.

An experiment is a small file built from the line in question, and what each dialect does with it.

Invariant: the meaning of a code, such as `RG301`, never changes.

Invariant: every statement about a dialect is an observed result of its engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lint.page import Item, cut
from robots_guard.protocol.ruleset import Ruleset, compile_rules

if TYPE_CHECKING:
    from robots_guard.protocol.lint.page import LintedFile


Ask = Callable[[Dialect], str | None]  # what a dialect does with a line, or None to omit it


class Severity(StrEnum):
    """The severity: rules do not apply as written; they apply for some crawlers only; for
    information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Effect(NamedTuple):
    """An effect, and the dialects that share it."""

    dialects: tuple[str, ...]
    does: str


class Note(NamedTuple):
    """The message of a check about a line (0: about the whole file).

    `ask` gives the effect per dialect; None: how each dialect reads the line.
    """

    line: int
    message: str
    ask: Ask | None = None


class Check(NamedTuple):
    """A kind of finding. With `once`, lines with the same message are reported as one finding."""

    code: str
    name: str
    severity: Severity
    about: str
    listens: Literal["file", "line", "group"]
    find: Callable[[Any, LintedFile], Iterable[Note]]
    fields: frozenset[bytes]  # the fields of the lines to check; empty: all lines
    once: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding. `lines` count from 1 and are empty if it is about the whole file.

    `text` is the text of the first line.
    """

    code: str
    name: str
    severity: Severity
    message: str
    lines: tuple[int, ...]
    text: str
    effects: tuple[Effect, ...]

    @property
    def line(self) -> int | None:
        """The first line, or None."""
        if self.lines:
            return self.lines[0]
        return None


Find = Callable[[Any, "LintedFile"], Iterable[Note]]


class CheckTable:
    """A table of checks, in the order of their codes. Its methods are decorators that add a
    check."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def file(
        self, code: str, name: str, severity: Severity, about: str, *, once: bool = False
    ) -> Callable[[Find], Find]:
        """Add a check of the whole file."""
        return self._decorator(code, name, severity, about, "file", frozenset(), once)

    def line(
        self,
        code: str,
        name: str,
        severity: Severity,
        about: str,
        *fields: bytes,
        once: bool = False,
    ) -> Callable[[Find], Find]:
        """Add a check of each line with one of these fields, or of every line."""
        return self._decorator(code, name, severity, about, "line", frozenset(fields), once)

    def group(self, code: str, name: str, severity: Severity, about: str) -> Callable[[Find], Find]:
        """Add a check of each group."""
        return self._decorator(code, name, severity, about, "group", frozenset(), once=False)

    def _decorator(
        self,
        code: str,
        name: str,
        severity: Severity,
        about: str,
        listens: Literal["file", "line", "group"],
        fields: frozenset[bytes],
        once: bool,
    ) -> Callable[[Find], Find]:
        def add(find: Find) -> Find:
            self.checks.append(Check(code, name, severity, about, listens, find, fields, once))
            return find

        return add


CRAWLER = "x"  # the crawler's name where it does not matter
LONGEST = 2_048  # bytes of a line or target that is tried

_NOT_IN_URL = re.compile(rb"[^!-~]")


def as_target(path: bytes) -> str:
    """A path of the file as a request target: with a leading slash, and with other bytes
    escaped."""
    text = _NOT_IN_URL.sub(lambda found: b"%%%02X" % found[0][0], path[:LONGEST]).decode("ascii")
    if text.startswith("/"):
        return text
    return "/" + text


def matching(item: Item, *targets: str) -> Ask:
    """Ask which of these targets the line's rule matches."""
    tried = tuple(dict.fromkeys(targets))
    line = item.field.capitalize() + b": " + item.value[:LONGEST]

    def ask(dialect: Dialect) -> str:
        if item.field == b"allow" and not dialect.allow:
            return "not a rule: it has no Allow"
        rules = _compile(b"User-agent: *\n" + line + b"\n", dialect, CRAWLER)
        matched = [target for target in tried if rules.matches(target)]
        return _describe(("matches", "match"), matched, tried)

    return ask


def reaching(value: bytes, *names: str) -> Ask:
    """Ask which of the crawlers with these names a User-agent line with this value applies to."""
    tried = tuple(dict.fromkeys(name for name in names if name))

    def ask(dialect: Dialect) -> str:
        body = b"User-agent: " + value[:LONGEST] + b"\nDisallow: /\n"
        selected = [name for name in tried if not _compile(body, dialect, name).judge("/").allowed]
        return _describe(("applies to", "apply to"), selected, tried)

    return ask


def sharing(one: bytes, other: bytes, token: bytes) -> Ask:
    """Ask which of two groups with these values apply to the crawler of this name."""
    groups = ((one, b"/1"), (other, b"/2"))
    body = b"\n".join(
        b"User-agent: %b\nDisallow: %b\n" % (value[:LONGEST], path) for value, path in groups
    )
    name = CRAWLER if token == b"*" else token.decode("ascii")

    def ask(dialect: Dialect) -> str:
        rules = _compile(body, dialect, name)
        disallowed = tuple(target for target in ("/1", "/2") if not rules.judge(target).allowed)
        return _SHARING[disallowed]

    return ask


_SHARING = {
    ("/1", "/2"): "all groups with this name apply together",
    ("/1",): "only the first group with this name applies",
    ("/2",): "only the last group with this name applies",
    (): "no group with this name applies",
}


def judging(item: Item, target: str) -> Ask:
    """Ask whether this line forbids the target."""

    def ask(dialect: Dialect) -> str:
        rules = _compile(
            b"User-agent: *\nDisallow: " + item.value[:LONGEST] + b"\n", dialect, CRAWLER
        )
        return f"{target} {'stays allowed' if rules.judge(target).allowed else 'is forbidden'}"

    return ask


def naming_a_host(value: bytes) -> Ask:
    """Ask what a Host line with this value does on a host that it does not name."""
    body = b"User-agent: *\nDisallow: /x\nHost: " + value[:LONGEST] + b"\n"

    def ask(dialect: Dialect) -> str:
        if not dialect.host_directive:
            return "not used"
        main = _compile(body, dialect, CRAWLER).judge("/", "mirror.example.com", 80).mirror_of
        if main:
            return f"names {cut(main)} as the main host"
        return "ignored"

    return ask


@lru_cache(maxsize=256)
def _compile(body: bytes, dialect: Dialect, name: str) -> Ruleset:
    return compile_rules(body, dialect, name, "spec")


def _describe(verb: tuple[str, str], positive: Iterable[str], tried: tuple[str, ...]) -> str:
    """The result as text. `verb` is in the third person and the infinitive."""
    does, do = verb
    yes = list(positive)
    no = [each for each in tried if each not in yes]
    if not yes and len(no) == 1:
        return f"does not {do} {cut(no[0])}"
    if not yes:
        return f"{does} neither {_join(no, ' nor ')}"
    if not no:
        return f"{does} {_join(yes, ', ')}"
    return f"{does} {_join(yes, ', ')}, not {_join(no, ' nor ')}"


def _join(names: list[str], word: str) -> str:
    return word.join(map(cut, names))
