"""Findings, and the tables of checks that make them.

The law of this file: a code is a promise. `RG301` means the same for ever, stands once in a table, and is explained
once in `docs/lint.md`; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from robots_guard.rep.dialect import Dialect

if TYPE_CHECKING:
    from robots_guard.lint.page import Page

Ask = Callable[[Dialect], str | None]  # what a dialect does; None where there is nothing to say


class Severity(StrEnum):
    """How bad it is: rules not in force as written; rules in force for some only; good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Effect(NamedTuple):
    """What some dialects do, all the same."""

    dialects: tuple[str, ...]
    does: str


class Note(NamedTuple):
    """What a check says of a line (0: of the whole file). Without `ask`, how each dialect reads the line."""

    line: int
    message: str
    ask: Ask | None = None


class Check(NamedTuple):
    """One kind of finding. With `once`, lines with the same message are one finding."""

    code: str
    name: str
    severity: Severity
    about: str
    listens: Literal["file", "line", "group"]
    find: Callable[[Any, Page], Iterable[Note]]
    fields: frozenset[bytes]  # of the lines listened to; empty is all
    once: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `lines` are from 1 and empty where it is about the whole file; `text` is the first of them."""

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
        return self.lines[0] if self.lines else None


Find = Callable[[Any, "Page"], Iterable[Note]]


class Table:
    """Checks that listen to one stream, in the order of their codes."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def file(
        self, code: str, name: str, severity: Severity, about: str, *, once: bool = False
    ) -> Callable[[Find], Find]:
        """A check of the whole file."""
        return self._adding(code, name, severity, about, "file", frozenset(), once)

    def line(
        self, code: str, name: str, severity: Severity, about: str, *fields: bytes, once: bool = False
    ) -> Callable[[Find], Find]:
        """A check of each line that has one of these fields, or of each line."""
        return self._adding(code, name, severity, about, "line", frozenset(fields), once)

    def group(
        self, code: str, name: str, severity: Severity, about: str, *, once: bool = False
    ) -> Callable[[Find], Find]:
        """A check of each group."""
        return self._adding(code, name, severity, about, "group", frozenset(), once)

    def _adding(
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
