"""What is printed, and how: a table on a terminal, tab-separated values elsewhere.

The law of this file: what a stranger wrote (a URL, a rule, a user agent) is shown and never obeyed. No markup is
read in it, and what is not printable is escaped, so that no rule can colour, move or rewrite a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}


def safe(text: str) -> str:
    """The text with everything that is not printable (controls, bidirectional marks, surrogates) escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def console() -> Console:
    """Standard output, for text that is not markup."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def styled(text: str, style: str = "") -> Text:
    """Text of any origin, to be printed as it is."""
    return Text(safe(text), style=STYLES.get(style, style))


class Rows:
    """Rows of text under headings, printed as they come or, on a terminal, as one table at the end.

    The first column is an action or empty and is coloured by it. Off a terminal nothing is cut or wrapped.
    """

    def __init__(self, *headings: str, streams: bool = False) -> None:
        self._headings = headings
        self._out = console()
        self._plain = streams or not self._out.is_terminal
        self._table: Table | None = None

    def add(self, values: Sequence[str]) -> None:
        """One row."""
        if self._plain:
            write_line("\t".join(safe(value) for value in values))
            return
        if self._table is None:
            self._table = Table(*self._headings, box=None, pad_edge=False)
            for column in self._table.columns:
                column.overflow = "fold"
        self._table.add_row(styled(values[0], values[0]), *(styled(value) for value in values[1:]))

    def end(self) -> None:
        """Print what was held back."""
        if self._table is not None:
            Console(markup=False, highlight=False, emoji=False).print(self._table)


def write_line(text: str, *, flush: bool = False) -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")
    if flush:
        sys.stdout.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Several."""
    for line in lines:
        write_line(line)


def span(seconds: float) -> str:
    """A length of time in one or two units, such as ``2 h 5 min``."""
    left = max(0, round(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
