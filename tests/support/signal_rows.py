"""The rows of signals.jsonl, and whether an answer to a page question agrees with a row.

A row is a page question as it is. `expect` has the keys that are asserted; `spec` is the letter of
the documents, which robots_guard reads more strictly, and is not compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FILE = Path(__file__).parents[1] / "data" / "signals.jsonl"
CLOCK = "2026-11-22T00:00:00Z"  # the moment of a row that names none
COMMAND = str(Path(sys.executable).parent / "robots-guard")

_SETS = ("flags",)
_PARTS = ("uses", "images", "limits", "follow")  # only the given members are asserted


def rows() -> list[Row]:
    """All rows."""
    return [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def answers(questions: Sequence[Row], *options: str) -> list[Row]:
    """The answers of `check --batch`, run as a process of its own."""
    lines = "".join(json.dumps(_dated(row)) + "\n" for row in questions)
    done = subprocess.run(
        [COMMAND, "check", "--batch", "-", *options],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in found] == [row["id"] for row in questions]
    return found


def _dated(row: Row) -> Row:
    """The row as it is if it belongs to the table; otherwise a question about the same time."""
    return row if "expect" in row else {"at": CLOCK} | row


def disagreements(expect: Row, answer: Row) -> dict[str, tuple[Any, Any]]:
    """The asserted keys whose values differ: what is expected, and what was answered."""
    if "error" in answer:
        return {"error": (None, answer["error"])}
    found = {}
    for key, expected in expect.items():
        if key != "spec" and not _agrees(key, expected, answer):
            found[key] = (expected, answer.get("flags" if key == "no_flags" else key))
    return found


def _agrees(key: str, expected: Any, answer: Row) -> bool:
    if key == "denied":
        return sorted(expected) == answer["denied"]
    if key == "no_flags":
        return set(expected).isdisjoint(answer["flags"])
    if key in _SETS:
        return set(expected) <= set(answer[key])
    if key in _PARTS:
        return all(answer[key].get(name) == value for name, value in expected.items())
    return bool(answer[key] == expected)


def disagreeing(rows: Iterable[Row], found: Iterable[Row]) -> dict[str, Any]:
    """The rows that do not agree, by id."""
    pairs = (
        (row, disagreements(row["expect"], answer)) for row, answer in zip(rows, found, strict=True)
    )
    return {row["id"]: differences for row, differences in pairs if differences}
