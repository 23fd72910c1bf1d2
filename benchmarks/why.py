"""The time of `robots-guard why` over many records, warm, in seconds. The goal is below 2 for ten
million records on two processors.

    python benchmarks/why.py [--records N] [--directory DIRECTORY] [--lines N] [--tries N]

The records are those of `generated_log` (a directory that contains records is used as it is), in
compressed files; `--lines` records of the last hour are in a plain one. Each question is asked by a
new process, as by a user: once to warm the file cache, then `--tries` times. Printed are the median
and the range of the elapsed time, and the median of the processor time, which other load on the
machine changes less. The first line is the first question of all, which makes the index.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from generated_log import generate, leave_lines

from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search

BUSY, RARE = "https://site-1.example", "https://site-999.example"


class Took(NamedTuple):
    """The seconds that a command took."""

    elapsed: float
    processor: float


def main() -> None:
    """Generate the records, ask the questions and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--tries", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = chosen.directory or Path(scratch) / "audit_log"
        if not directory.exists():
            generate(directory, chosen.records)
            leave_lines(directory, chosen.lines)
        files = [path for path in directory.iterdir() if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        print(f"{len(files)} files, {size / 1e6:,.0f} MB")
        print(f"{'':34}{'median':>8}{'least':>8}{'most':>8}{'processor':>11}   s")
        took = run([f"{RARE}/nothing", "--audit-log", str(directory)])
        print(f"{'the first of all':34}{took.elapsed:8.2f}{'':16}{took.processor:11.2f}")
        for name, question in questions(directory).items():
            measure(name, [*question, "--audit-log", str(directory)], chosen.tries)


def questions(directory: Path) -> dict[str, list[str]]:
    """Questions whose answers are in the middle of the log, and one that has none."""
    busy, rare = recorded(directory, BUSY), recorded(directory, RARE)
    return {
        "a URL of the busiest origin": [busy],
        "... in another spelling": [busy.replace("/page.html", "/./p%61ge.html")],
        "... of one day": [busy, "--since", "2026-11-07", "--until", "2026-11-08"],
        "a URL of a rare origin": [rare],
        "nothing, of the busiest origin": [f"{BUSY}/nothing"],
        "nothing, of a rare origin": [f"{RARE}/nothing"],
    }


def recorded(directory: Path, origin: str) -> str:
    """The URL of a refusal of this origin, the middle one of all."""
    with Search(directory, Filter(origin=origin, action="drop")) as search:
        where, values = search.condition
        sql = f'SELECT url FROM records WHERE {where} ORDER BY "at"'
        found = [url for (url,) in search.rows(sql, values)]
    if not found:
        raise SystemExit(f"{directory} has no refusal of {origin}: generate more records")
    return str(found[len(found) // 2])


def measure(name: str, arguments: list[str], tries: int) -> None:
    """Ask a question and print its times."""
    run(arguments)
    times = [run(arguments) for _ in range(tries)]
    elapsed = [took.elapsed for took in times]
    print(
        f"{name:34}{statistics.median(elapsed):8.2f}{min(elapsed):8.2f}{max(elapsed):8.2f}"
        f"{statistics.median(took.processor for took in times):11.2f}",
        flush=True,
    )


def run(arguments: list[str]) -> Took:
    """Run the command once. Raises CalledProcessError if it is not answered."""
    command = [str(Path(sys.executable).parent / "robots-guard"), "why", *arguments]
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    elapsed, after = time.perf_counter() - began, os.times()
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    processor = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return Took(elapsed, processor)


if __name__ == "__main__":
    main()
