"""The Parquet export of the audit log: its speed, size and memory, and queries compared with the log.

    python benchmarks/lake.py [--records 1000000] [--at DIRECTORY]

The log is that of benchmarks/generated_log.py, in lines, of two weeks. Queries are run in turns over
the lines, the compacted log and the export; only their ratios are reliable. Times are CPU time.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from generated_log import write_lines

from robots_guard.audit.compaction import compact
from robots_guard.audit.lake.export import export
from robots_guard.audit.lake.places import place_at
from robots_guard.audit.read.reader import Filter, Unreadable
from robots_guard.audit.read.search import Search

ROUNDS = 3
TOP = "SELECT origin, count(*) FROM decisions WHERE action = 'drop' GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
GAPS = "SELECT writer, max(seq) - min(seq) + 1 - count(DISTINCT seq) FROM records GROUP BY 1"
DAY = (
    "SELECT reason, count(*) FROM decisions"
    " WHERE \"at\" >= '2026-11-05' AND \"at\" < '2026-11-06' GROUP BY 1"
)
NATIVE = (
    "SELECT origin, count(*) FROM read_parquet('{}/decisions/*/*.parquet') WHERE action = 'drop'"
    " GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
)


def size_of(directory: Path) -> int:
    """The bytes of all files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def export_all(audit_log: Path, lake: Path) -> tuple[float, int]:
    """Export all days; the CPU seconds, and the number of records that were new."""
    began = time.process_time()
    found = export(audit_log, place_at(str(lake)), "2026-12-01", Unreadable())
    added = sum(each.added for each in found)
    return time.process_time() - began, added


def select(directory: Path, sql: str) -> Callable[[], object]:
    """A query over a directory, with all that a command does."""

    def ask() -> object:
        with Search(directory) as search:
            return [*search.select(sql)[1]]

    return ask


def newest(directory: Path) -> Callable[[], object]:
    """The newest records of an origin."""

    def ask() -> object:
        with Search(directory, Filter(origin="https://site-7.example")) as search:
            return [*search.records(50, newest_first=True)]

    return ask


def native(lake: Path) -> Callable[[], object]:
    """The same query as TOP by a program that knows nothing of robots_guard."""
    import duckdb

    return lambda: duckdb.sql(NATIVE.format(lake)).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--at", type=Path, help="a directory on the disk to measure")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.at) as directory:
        measure(Path(directory), chosen.records)


def measure(place: Path, records: int) -> None:
    """Print all figures."""
    lines, compacted, lake = place / "lines", place / "compacted", place / "lake"
    write_lines(lines, records)
    before = peak()
    spent, added = export_all(lines, lake)
    print(
        f"{added:,} records exported: {added / spent:,.0f} a second of CPU, {peak() - before} MiB more memory"
    )
    again, none = export_all(lines, lake)
    print(f"exported again: {none} new, {again * 1000:.0f} ms of CPU")
    shutil.rmtree(lake / "_exports")
    again, none = export_all(lines, lake)
    print(
        f"without its list, all read and compared: {none} new, {again / spent:.2f} x the first time"
    )
    shutil.copytree(lines, compacted)
    compact(compacted, "99999999")
    for name, directory in (("lines", lines), ("compacted", compacted), ("export", lake)):
        print(f"{name:10}{size_of(directory) / added:8.1f} bytes a record")
    ask_all({"lines": lines, "compacted": compacted, "export": lake})


def ask_all(places: dict[str, Path]) -> None:
    """Print the times of queries, which are run in turns, and that their answers are equal."""
    queries: dict[str, Callable[[Path], Callable[[], object]]] = {
        "sites with most refusals": lambda place: select(place, TOP),
        "refusals of a day, by reason": lambda place: select(place, DAY),
        "gaps of writers": lambda place: select(place, f"{GAPS} ORDER BY 1"),
        "newest 50 of an origin": newest,
    }
    print(f"{'CPU seconds, median (spread)':32}" + "".join(f"{name:>20}" for name in places))
    for name, query in queries.items():
        times, answers = turns({where: query(place) for where, place in places.items()})
        equal = len({repr(sorted(answer, key=repr)) for answer in answers.values()}) == 1  # type: ignore[call-overload]  rows
        assert equal, name
        print(f"{name:32}" + "".join(f"{shown(times[where]):>20}" for where in places))
    times, _ = turns({"export": native(places["export"])})
    print(f"{'the first one, by DuckDB alone':32}{shown(times['export']):>60}")


def turns(
    works: dict[str, Callable[[], object]],
) -> tuple[dict[str, list[float]], dict[str, object]]:
    """The CPU times of pieces of work that are done in turns, and their last results."""
    times: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, object] = {}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            results[name] = work()
            times[name].append(time.process_time() - began)
    return times, results


def shown(times: list[float]) -> str:
    """A median with its spread."""
    return f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"


def peak() -> int:
    """The largest size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
