"""Output of the commands: a table on a terminal, tab-separated values elsewhere.

Invariant: untrusted text (a URL, a rule, a user agent) is printed and never interpreted. It is not
read as markup, and unprintable characters are escaped, so that it cannot colour or rewrite the
terminal. Commands that a build server would execute when it finds them in its log are escaped too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robots_guard.audit.record import printable as printable_json
from robots_guard.text import printable

LONG = ("url", "rule", "detail")  # headings of columns that may fold
STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}

# GitHub Actions, Azure Pipelines and TeamCity execute "##[...]", "##vso[...]" and "##teamcity[...]" anywhere in a line.
_LOG_COMMAND = re.compile(r"##(?=[A-Za-z]*\[)")


def safe(text: str) -> str:
    """Return the text with unprintable characters (controls, bidirectional marks, surrogates)
    escaped."""
    return printable(_LOG_COMMAND.sub(r"#\\x23", text.replace("\t", " ")))


def styled(text: str, style: str = "") -> Text:
    """Return untrusted text for rich to print literally, in a style or in the colour of an action."""
    return Text(safe(text), style=STYLES.get(style, style))


class Rows:
    """Rows of text under headings; the first column is an action and gets its colour.

    A terminal gets one table, which `end` prints, or with `streams` each row as it is added. Other
    outputs get tab-separated values, neither cut nor wrapped.
    """

    def __init__(self, *headings: str, streams: bool = False) -> None:
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._streams = streams
        self._table = Table(*headings, box=None, pad_edge=False)
        for column in self._table.columns:
            column.overflow = "fold"
            column.no_wrap = column.header not in LONG

    def add(self, values: Sequence[str]) -> None:
        """Add one row."""
        if not self._out.is_terminal:
            write_line("\t".join(map(safe, values)))
            return
        cells = [styled(values[0], values[0]), *map(styled, values[1:])]
        if self._streams:
            self._out.print(Text("  ").join(cells), soft_wrap=True)
        else:
            self._table.add_row(*cells)

    def end(self) -> None:
        """Print the table, if there is one."""
        if self._table.row_count:
            self._out.print(self._table)


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Write a JSON object on standard output; log commands in it are escaped, which does not change
    its value."""
    write_line(_LOG_COMMAND.sub(r"#\\u0023", json.dumps(value, indent=indent)))


def write_encoded(value: bytes) -> None:
    """Write a line of encoded JSON as ASCII, which every locale can print."""
    write_line(printable_json(value).decode())


def write_line(text: str, *, flush: bool = False) -> None:
    """Write one line on standard output."""
    sys.stdout.write(text + "\n")
    if flush:
        sys.stdout.flush()


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines of text, each with an action, a style, or an empty string for neither."""
    out = Console(markup=False, highlight=False, emoji=False)
    for text, style in lines:
        out.print(styled(text, style), soft_wrap=True)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error if it is a terminal. Yields a function that takes how
    much is done, in percent if there is no `total`."""
    from rich.progress import MofNCompleteColumn, Progress  # takes long to import

    columns = Progress.get_default_columns()
    if total:
        columns += (MofNCompleteColumn(),)
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(what, total=total)  # without a total it pulses until something is done

        def show(done: float) -> None:
            if done > 0:
                bar.update(task, total=total or 100, completed=done)

        yield show
