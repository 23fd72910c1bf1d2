"""Comma-separated values for spreadsheets, for the commands and the console.

Invariant: untrusted text is data. It cannot become a formula, and it contains no control characters.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any

from robots_guard.text import printable

#: A spreadsheet evaluates a cell that begins with one of these.
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
)


def csv_line(values: Iterable[Any], shown: Callable[[str], str] = printable) -> str:
    """Return values as one line of comma-separated values, with its newline. `shown` makes text printable."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_cell(value, shown) for value in values])
    return line.getvalue()


def _cell(value: Any, shown: Callable[[str], str]) -> str:
    """Return a value as text. A quote before it keeps a spreadsheet from evaluating it as a formula."""
    if value is None:
        return ""
    text = shown(str(value))
    if text.startswith(_FORMULA) and not isinstance(value, int | float):
        return f"'{text}"
    return text
