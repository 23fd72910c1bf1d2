"""Findings, and the tables of checks that produce them.

Invariant: the meaning of a code, such as `RG301`, never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from robots_guard.protocol.dialect import Dialect

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
