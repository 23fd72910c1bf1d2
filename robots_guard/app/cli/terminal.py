"""Output of the commands: a table on a terminal, tab-separated values elsewhere.

Invariant: untrusted text (a URL, a rule, a user agent) is printed and never interpreted. It is not
read as markup, and unprintable characters are escaped, so that it cannot colour or rewrite the
terminal. Commands that a build server would execute when it finds them in its log are escaped too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from robots_guard.audit.record import printable as printable_json
from robots_guard.configuration.settings import CLOCKS
from robots_guard.text import printable

if TYPE_CHECKING:  # rich takes long to import, and most output is plain text
    from rich.console import Console
    from rich.text import Text

_progress_bars: list[Any] = []  # those on standard error now
GAP = 2  # cells between two columns
READABLE = 40  # cells: the least width of a folding column beside others
STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}

# GitHub Actions, Azure Pipelines and TeamCity execute "##[...]", "##vso[...]" and "##teamcity[...]" anywhere in a line.
_LOG_COMMAND = re.compile(r"##(?=[A-Za-z]*\[)")

#: The beginning of a line up to its value: white space, or a name and at least two spaces.
_NAME_AND_VALUE = re.compile(r" *(\S+( \S+)* {2,})?(?=\S)")


def safe(text: str) -> str:
    """Return the text with unprintable characters (controls, bidirectional marks, surrogates)
    escaped."""
    return printable(_LOG_COMMAND.sub(r"#\\x23", text.replace("\t", " ")))


def styled(text: str, style: str = "") -> Text:
    """Return untrusted text for rich to print literally, in a style or in the colour of an action."""
    from rich.text import Text

    return Text(safe(text), style=STYLES.get(style, style))


class TableColumn(NamedTuple):
    """A column of a table.

    A long value in a column that `folds` continues on further lines; the other columns are as wide
    as their values. `width` is that of most values, for rows that are printed one by one.
    """

    heading: str
    folds: bool = False
    width: int = 0
    kind: Literal["text", "action", "time"] = "text"


class Rows:
    """Rows of text under headings.

    A terminal gets a table, which `end` prints, or with `streams` each row as it is added. Where the
    columns have no room side by side, each row is a line of its short values, and a line for each
    column that folds. Other outputs get tab-separated values, not wrapped, below a line of headings
    unless `headings` is false.

    Invariant: no value is cut, so none names another thing on the terminal than in the log.
    """

    def __init__(
        self, *columns: TableColumn | str, streams: bool = False, headings: bool = True
    ) -> None:
        named = [TableColumn(each) if isinstance(each, str) else each for each in columns]
        self._columns = named if streams else [each._replace(width=0) for each in named]
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
        return [
            short_time(value, _today()) if column.kind == "time" else value
            for column, value in zip(self._columns, row, strict=True)
        ]

    def _print(self, out: Console) -> None:
        """Print the rows so far, below the headings if these were not printed yet."""
        _end_progress()
        rows, self._rows = self._rows, []
        if self._headings and any(column.kind == "time" for column in self._columns):
            out.print(f"times are in UTC; a time without a date is of {_today()}", style="dim")
        shown = [
            at
            for at, column in enumerate(self._columns)
            if column.width or any(row[at] for row in rows)  # an empty column is left out
        ]
        if self._has_room(shown, rows, out.width):
            self._print_table(out, shown, rows)
        else:
            self._print_blocks(out, shown, rows)
        self._headings = False

    def _has_room(self, shown: Sequence[int], rows: Sequence[Sequence[str]], room: int) -> bool:
        """Whether the columns fit side by side, with enough room for those that fold."""
        needed = 0
        for at in shown:
            column, widest = self._columns[at], self._widest(at, rows)
            needed += max(column.width, min(widest, READABLE) if column.folds else widest) + GAP
        return needed - GAP <= room

    def _widest(self, at: int, rows: Sequence[Sequence[str]]) -> int:
        from rich.cells import cell_len

        return max(
            cell_len(text) for text in (self._columns[at].heading, *(row[at] for row in rows))
        )

    def _print_table(
        self, out: Console, shown: Sequence[int], rows: Sequence[Sequence[str]]
    ) -> None:
        from rich.table import Table

        table = Table(
            box=None,
            show_header=self._headings,
            header_style="bold",
            padding=(0, GAP, 0, 0),
            pad_edge=False,
            expand=self._streams,  # so that the columns of rows printed one by one are aligned
        )
        for column in (self._columns[at] for at in shown):
            table.add_column(
                styled(column.heading),
                overflow="fold",
                min_width=column.width
                or 1,  # of a value without a width, such as a lone vowel jamo, nothing is shown at 0
                ratio=column.width if self._streams and column.folds else None,
            )
        for row in rows:
            table.add_row(*(self._styled(at, row) for at in shown))
        out.print(table)

    def _print_blocks(
        self, out: Console, shown: Sequence[int], rows: Sequence[Sequence[str]]
    ) -> None:
        short = [at for at in shown if not self._columns[at].folds]
        folding = [at for at in shown if self._columns[at].folds]
        widths = {at: max(self._columns[at].width, self._widest(at, rows)) for at in short}
        names = max((len(self._columns[at].heading) for at in folding), default=0)
        if self._headings and short:
            headings = [styled(column.heading, "bold") for column in self._columns]
            _print_side_by_side(out, headings, widths)
        for row in rows:
            if short:
                values = [self._styled(at, row) for at in range(len(row))]
                _print_side_by_side(out, values, widths)
            for at in folding:
                if row[at]:
                    name = self._columns[at].heading.ljust(names)
                    _print_value(out, f"{' ' * GAP}{name}{' ' * GAP}", self._styled(at, row))

    def _styled(self, at: int, row: Sequence[str]) -> Text:
        """Return a value, an action in the colour of its first word."""
        if self._columns[at].kind != "action":
            return styled(row[at])
        return styled(row[at], row[at].partition(" ")[0])


def _print_side_by_side(out: Console, values: Sequence[Text], widths: Mapping[int, int]) -> None:
    """Print some of a row's values on one line, each in its width."""
    from rich.text import Text

    for at, width in widths.items():
        values[at].pad_right(GAP + max(width - values[at].cell_len, 0))
    line = Text().join(values[at] for at in widths)
    line.rstrip()
    out.print(line, overflow="fold")


def _print_value(out: Console, name: str, value: Text) -> None:
    """Print a name and its value, whose further lines are indented like the first."""
    from rich.table import Table

    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(name, value)
    out.print(grid)


def short_time(moment: str, today: str) -> str:
    """Shorten a moment (ISO 8601 in UTC): to the time of day if it is `today` (a date), otherwise to
    date and time, to the second."""
    date, divider, time = moment.partition("T")
    if not divider or not moment.endswith("Z"):
        return moment
    clock = time.removesuffix("Z").partition(".")[0]
    return clock if date == today else f"{date} {clock}"


def console_of() -> Console:
    """Return a console for standard output, which interprets no text. It has neither colours nor
    bold text if NO_COLOR is set, or if the terminal is dumb."""
    from rich.console import Console

    out = Console(markup=False, highlight=False, emoji=False)
    if out.no_color or out.is_dumb_terminal:
        return Console(markup=False, highlight=False, emoji=False, color_system=None)
    return out


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
    from rich.cells import cell_len

    out = console_of()
    for text, style in lines:
        line = styled(text, style)
        if not sys.stdout.isatty() or cell_len(line.plain) <= out.width:
            out.print(line, soft_wrap=True)
            continue
        named = _NAME_AND_VALUE.match(line.plain)
        name, value = line.divide([named.end() if named else 0])
        _print_value(out, name.plain, value)


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
