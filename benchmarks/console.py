"""The time to render each page of the console over a million records, in milliseconds. The goal is
below 300; over ten million records (`--records 10000000`), below 1,000 for the overview of 24 hours.

    python benchmarks/console.py [--records N] [--directory DIRECTORY] [--lines N]
    python benchmarks/console.py --first [--records N]

The records are generated once (a directory that contains records is used as it is), in compressed
files; `--lines` adds records of the last day in a plain file. Each page is
requested from a new console that has only opened the audit log (`first`), and once more (`again`,
with the answers of the snapshot cached). The best of three is reported. Opening is reported
separately, because it is repeated whenever the audit log has changed, for at most a tenth of the
time. The last line is the overview as the very first page of a new console, with opening.

`--first` measures the CPU time and the memory of a new process for its first page: without the index
(audit/read/index.py), which the process makes, and with it. It does so for a hundredth of the records,
for a tenth and for all, in one day and spread over 30. The best of three is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
from generated_log import BEGINS, DAYS, generate, leave_lines, write_lines

from robots_guard.app.console import Sources, app
from robots_guard.decisions.verdict import Terms
from robots_guard.ports import Clocks
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching

TRIES = 3  # consoles per page; the best result is reported
_DEEP = '["2026-11-07T12:00:00.000Z","bench-1",1]'
_CHEAP = "/decisions?since=2030-01-01"
PAGES = (
    ("overview, 24 hours", "/"),
    ("overview, 7 days", "/?period=7d"),
    ("overview, all", "/?period=all"),
    ("decisions", "/decisions"),
    ("... deep inside", f"/decisions?after={_DEEP}"),
    ("... oldest first", "/decisions?sort=oldest"),
    ("... by origin", "/decisions?sort=origin"),
    ("... slowest first", "/decisions?sort=slowest"),
    ("... of a busy origin", "/decisions?origin=https://site-1.example"),
    ("... of a rare origin", "/decisions?origin=https://site-3999.example"),
    ("... by a rule, dropped", "/decisions?action=drop&rule=Disallow: /*?sort="),
    ("... under any override", "/decisions?override=any"),
    ("... of an hour", "/decisions?since=2026-11-03T10:00&until=2026-11-03T11:00"),
    ("... none", "/decisions?reason=mirror"),
    ("one decision", "/decisions/bench-77"),
    ("an origin", "/origin?name=https://site-1.example"),
    ("overrides", "/overrides"),
    ("try a URL", "/try?url=https://site-1.example/private/"),
)


def main() -> None:
    """Generate the records, request the pages and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--request", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--days", type=int, default=DAYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.request:
        asyncio.run(_measure_first(chosen.directory, chosen.days))
        return
    if chosen.first:
        sizes = (chosen.records // 100, chosen.records // 10, chosen.records)
        for days, records in itertools.product((1, 30), sizes):
            with tempfile.TemporaryDirectory() as scratch:
                measure_first_pages(Path(scratch), records, days)
        return
    with tempfile.TemporaryDirectory() as scratch:
        directory = chosen.directory or Path(scratch) / "audit_log"
        if not directory.exists():
            began = time.perf_counter()
            generate(directory, chosen.records)
            print(f"{chosen.records:,} records generated in {time.perf_counter() - began:.0f} s")
        if chosen.lines:
            leave_lines(directory, chosen.lines)
        asyncio.run(measure(directory))


async def measure(directory: Path) -> None:
    """Request each page from new consoles and print the times."""
    print(f"{'':26}{'open':>8}{'first':>8}{'again':>8}   ms")
    for says, path in PAGES:
        every = [
            [milliseconds async for milliseconds in _request_times(directory, path)]
            for _ in range(TRIES)
        ]
        opening, first, again = (min(each) for each in zip(*every, strict=True))
        print(f"{says:26}{opening:8.0f}{first:8.0f}{again:8.0f}")
    every = [
        [milliseconds async for milliseconds in _request_times(directory, _CHEAP, first="/")]
        for _ in range(TRIES)
    ]
    print(f"{'overview, with opening':34}{min(first for first, *_ in every):8.0f}")


def measure_first_pages(scratch: Path, records: int, days: int) -> None:
    """Print what the first page costs new processes."""
    lines = scratch / "lines"
    write_lines(lines, records, days=days)
    for form, tries in (("not indexed yet", 1), ("indexed", TRIES)):
        costs = (_first_page(lines, days) for _ in range(tries))
        spent, peak = min(costs)
        print(
            f"{records:>10,} records, {days:2} days, {form:16}"
            f"{spent:8.0f} ms of CPU{peak:8,.0f} MiB at most",
            flush=True,
        )


def _first_page(directory: Path, days: int) -> tuple[float, float]:
    """The milliseconds of CPU time and the MiB that the first page costs a new process."""
    own = [sys.executable, __file__, "--request", "--directory", str(directory)]
    ran = subprocess.run([*own, "--days", str(days)], check=True, stdout=subprocess.PIPE)
    spent, peak = map(float, ran.stdout.split())
    return spent, peak


async def _measure_first(directory: Path, days: int) -> None:
    began = time.process_time()
    await anext(_request_times(directory, "/", first="/", days=days))
    print(1000 * (time.process_time() - began), _peak())


def _peak() -> int:
    """The largest size of this process so far, in MiB. `ru_maxrss` would be at least that of the
    process that started this one."""
    (found,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) // 1024


async def _request_times(
    directory: Path, path: str, first: str = _CHEAP, days: int = DAYS
) -> AsyncIterator[float]:
    """Yield the milliseconds for opening (a page with hardly any query), for the page, and for the
    page again.
    """
    end = (BEGINS + timedelta(days=days)).timestamp()
    clocks = Clocks(now=lambda: end, monotonic=time.monotonic)
    terms = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
    made = app(
        Sources(directory, None, None, terms, "mybot", clocks), hosts=["bench"], read_only=True
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=made), base_url="http://bench"
    ) as browser:
        for address in (first, path, path):
            began = time.perf_counter()
            answer = await browser.get(address)
            assert answer.status_code == 200, answer.text
            yield 1000 * (time.perf_counter() - began)
    made.close()


if __name__ == "__main__":
    main()
