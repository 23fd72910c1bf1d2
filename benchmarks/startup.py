"""The CPU time of short commands and of `import robots_guard`, compared with other imports.

    python benchmarks/startup.py [--rounds N]

Each round starts every program once, in turn, so that a slow moment of the machine affects all of them. The CPU time
is the user and system time of the child, including the start of Python. The output is the median, the quartiles, and
the ratio of the median to that of importing click and msgspec, which each command needs.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("robots-guard"))
FLOOR = "import click, msgspec"
IMPORTS = ("pass", FLOOR, "import protego", "import aiohttp", "import scrapy")
OURS = ("import robots_guard", "import robots_guard; robots_guard.open")
URL = "https://a.test/private/x"
COMMANDS = (
    "--help",
    "--version",
    f"check --agent bot --robots robots.txt {URL}",
    f"explain --agent bot --robots robots.txt {URL}",
    "lint robots.txt",
    "config show",
    "policy show --store sqlite:///store.sqlite",
    f"why {URL} --audit-log log",
    "audit query --audit-log log",
)
ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    programs = {code: [sys.executable, "-c", code] for code in (*IMPORTS, *OURS)}
    programs |= {f"robots-guard {line}": [COMMAND, *line.split()] for line in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in programs}
        for number in range(rounds + 1):
            for name, program in programs.items():
                took = cpu_time(program, folder)
                if number:  # the first round compiles and fills the caches of the disk
                    times[name].append(took)
    floor = statistics.median(times[FLOOR])
    for name, found in times.items():
        low, middle, high = (each * 1e3 for each in statistics.quantiles(found, n=4))
        ratio = statistics.median(found) / floor
        print(f"{middle:6.0f} ms ({low:.0f} to {high:.0f})  {ratio:5.2f}x  {name}")


def prepare(folder: Path) -> None:
    """Write a robots.txt, and a store and an audit log with one entry."""
    (folder / "robots.txt").write_text(ROBOTS)
    asked = "check --agent bot --audit-log log --store sqlite:///store.sqlite http://127.0.0.1:9/private/x"
    subprocess.run([COMMAND, *asked.split()], cwd=folder, capture_output=True, check=False)


def cpu_time(program: list[str], folder: str) -> float:
    """Run a program, and return its seconds of CPU."""
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each start compiles anew
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(program, cwd=folder, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
