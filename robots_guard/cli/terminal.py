"""What is printed, and how: a table on a terminal, tab-separated values elsewhere.

The law of this file: what a stranger wrote (a URL, a rule, a user agent) is shown and never obeyed. No markup is
read in it, and what is not printable is escaped, so that no rule can colour, move or rewrite a terminal. Nor can one
give an order to a build server that reads its logs for commands.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robots_guard.audit.record import printable as printable_json
from robots_guard.plain import printable

LONG = ("url", "rule", "detail")  # headings of columns that may fold
STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}


# GitHub Actions, Azure Pipelines and TeamCity obey "##[...]", "##vso[...]" and "##teamcity[...]" wherever in a line.
_ORDER = re.compile(r"##(?=[A-Za-z]*\[)")


def safe(text: str) -> str:
    """The text with everything that is not printable (controls, bidirectional marks, surrogates) escaped."""
    return printable(_ORDER.sub(r"#\\x23", text.replace("\t", " ")))


def styled(text: str, style: str = "") -> Text:
    """Text of any origin, to be printed as it is."""
    return Text(safe(text), style=STYLES.get(style, style))


class Rows:
    """Rows of text under headings; the first column is an action, and coloured by it.

    On a terminal one table, printed by `end`, or with `streams` line by line as they come. Elsewhere tab-separated
    values, nothing cut or wrapped.
    """

    def __init__(self, *headings: str, streams: bool = False) -> None:
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._streams = streams
        self._table = Table(*headings, box=None, pad_edge=False)
        for column in self._table.columns:
            column.overflow = "fold"
            column.no_wrap = column.header not in LONG

    def add(self, values: Sequence[str]) -> None:
        """One row."""
        if not self._out.is_terminal:
            write_line("\t".join(map(safe, values)))
            return
        cells = [styled(values[0], values[0]), *map(styled, values[1:])]
        if self._streams:
            self._out.print(Text("  ").join(cells), soft_wrap=True)
        else:
            self._table.add_row(*cells)

    def end(self) -> None:
        """Print what was held back."""
        if self._table.row_count:
            self._out.print(self._table)


def write_json(value: Any, *, indent: int | None = None) -> None:
    """A JSON object on standard output; its text gives no orders either, and reads the same."""
    write_line(_ORDER.sub(r"#\\u0023", json.dumps(value, indent=indent)))


def write_encoded(value: bytes) -> None:
    """Write a line of encoded JSON as ASCII, which every locale can print."""
    write_line(printable_json(value).decode())


def write_line(text: str, *, flush: bool = False) -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")
    if flush:
        sys.stdout.flush()


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Lines of text, each with an action or a style, or none."""
    out = Console(markup=False, highlight=False, emoji=False)
    for text, style in lines:
        out.print(styled(text, style), soft_wrap=True)
