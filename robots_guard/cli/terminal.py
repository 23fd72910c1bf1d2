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
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from robots_guard.audit.record import printable as printable_json
from robots_guard.cli.table import (
    ELLIPSIS,
    Painted,
    TableColumn,
    block_lines,
    folded,
    layout,
    record_lines,
    short_times,
)
from robots_guard.settings import CLOCKS
from robots_guard.text import printable

if TYPE_CHECKING:  # rich takes long to import, and most output is plain text
    from rich.console import Console
    from rich.text import Text

_progress_bars: list[Any] = []  # those on standard error now
STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}

# GitHub Actions, Azure Pipelines and TeamCity execute "##[...]", "##vso[...]" and "##teamcity[...]" anywhere in a line.
_LOG_COMMAND = re.compile(r"##(?=[A-Za-z]*\[)")


def safe(text: str) -> str:
    """Return the text with unprintable characters (controls, bidirectional marks, surrogates)
    escaped."""
    return printable(_LOG_COMMAND.sub(r"#\\x23", text.replace("\t", " ")))


def styled(text: str, style: str = "") -> Text:
    """Return untrusted text for rich to print literally, in a style or in the colour of an action."""
    from rich.text import Text

    return Text(safe(text), style=STYLES.get(style, style))


class Rows:
    """Rows of text under headings.

    A terminal gets a table as wide as it is (cli/table.py), which `end` prints, or with `streams`
    each row as it is added. Other outputs get tab-separated values, neither cut nor wrapped, below a
    line of headings unless `headings` is false.
    """

    def __init__(
        self, *columns: TableColumn | str, streams: bool = False, headings: bool = True
    ) -> None:
        named = [TableColumn(each) if isinstance(each, str) else each for each in columns]
        self._columns = named if streams else [each._replace(usual=0) for each in named]
        self._streams = streams
        self._headings = headings
        self._rows: list[list[str]] = []
        self._out = console_of() if sys.stdout.isatty() else None

    def add(self, values: Sequence[str]) -> None:
        """Add one row."""
        row = [safe(value) for value in values]
        if self._out is None:
            self._write_headings()
            write_line("\t".join(row))
            return
        self._rows.append(self._shown(row))
        if self._streams:
            self._print(self._out)

    def end(self) -> None:
        """Print the table, if there is one."""
        if self._out is not None and self._rows:
            self._print(self._out)

    def _write_headings(self) -> None:
        if self._headings:
            write_line("\t".join(column.heading for column in self._columns))
        self._headings = False

    def _shown(self, row: list[str]) -> list[str]:
        """Return a row with its times shortened."""
        short = short_times(_today())
        return [
            short(value) if column.kind == "time" else value
            for column, value in zip(self._columns, row, strict=True)
        ]

    def _print(self, out: Console) -> None:
        """Print the rows so far, below the headings if these were not printed yet."""
        _end_progress()
        rows, self._rows = self._rows, []
        room, ellipsis = out.width, _ellipsis(out)
        cells = layout(self._columns, rows, room)
        if self._headings and any(column.kind == "time" for column in self._columns):
            out.print(f"times are in UTC; a time without a date is of {_today()}", style="dim")
        if cells is None:
            for row in rows:
                self._print_lines(out, block_lines(self._columns, row, room), row)
                out.print()
            return
        if self._headings:
            names = [column.heading for column in self._columns]
            plain = [TableColumn(name) for name in names]
            self._print_lines(out, record_lines(plain, names, cells, room, ellipsis), names, "bold")
            self._headings = False
        for row in rows:
            self._print_lines(out, record_lines(self._columns, row, cells, room, ellipsis), row)

    def _print_lines(
        self, out: Console, lines: Iterable[Painted], row: Sequence[str], style: str = ""
    ) -> None:
        from rich.text import Text

        for line in lines:
            parts = [(text, style or self._style(index, row)) for text, index in line]
            out.print(Text.assemble(*parts), soft_wrap=True)

    def _style(self, index: int, row: Sequence[str]) -> str:
        """Return the style of a value: the colour of an action, which its first word is."""
        if index < 0 or self._columns[index].kind != "action":
            return ""
        return STYLES.get(row[index].partition(" ")[0], "")


def console_of() -> Console:
    """Return a console for standard output, which interprets no text. It has neither colours nor
    bold text if NO_COLOR is set, or if the terminal is dumb."""
    from rich.console import Console

    out = Console(markup=False, highlight=False, emoji=False)
    if out.no_color or out.is_dumb_terminal:
        return Console(markup=False, highlight=False, emoji=False, color_system=None)
    return out


def _ellipsis(out: Console) -> str:
    """Return the ellipsis in characters that the output can encode."""
    return ELLIPSIS if out.encoding.startswith("utf") else "..."


def _today() -> str:
    return f"{datetime.fromtimestamp(CLOCKS.now(), UTC):%Y-%m-%d}"


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Write a JSON object on standard output; log commands in it are escaped, which does not change
    its value."""
    write_line(_LOG_COMMAND.sub(r"#\\u0023", json.dumps(value, indent=indent)))


def write_encoded(value: bytes) -> None:
    """Write a line of encoded JSON as ASCII, which every locale can print."""
    write_line(printable_json(value).decode())


def write_line(text: str, *, flush: bool = False) -> None:
    """Write one line on standard output."""
    if _progress_bars and sys.stdout.isatty():
        _end_progress()
    sys.stdout.write(text + "\n")
    if flush:
        sys.stdout.flush()


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines of text, each with an action, a style, or an empty string for neither."""
    out = console_of()
    is_terminal = sys.stdout.isatty()
    for text, style in lines:
        for part in folded(safe(text), out.width) if is_terminal else [text]:
            out.print(styled(part, style), soft_wrap=True)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error if it is a terminal. Yields a function that takes how
    much is done, in percent if there is no `total`."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    columns = Progress.get_default_columns()
    if total:
        columns += (MofNCompleteColumn(),)
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        _progress_bars.append(bar)
        task = bar.add_task(what, total=total)  # without a total it pulses until something is done

        def show(done: float) -> None:
            if done > 0:
                bar.update(task, total=total or 100, completed=done)

        try:
            yield show
        finally:
            _progress_bars.remove(bar)


def _end_progress() -> None:
    """Remove progress bars from the terminal before lines are written to it."""
    for bar in _progress_bars:
        bar.stop()
