"""The rows a second of `robots-guard check --batch`, beside the engine alone and protego.

    python benchmarks/batch.py [--corpus FILE] [--files N] [--rows N] [--rounds N]

"one file": all rows have the same small robots.txt. "distinct": each row has a different one, which is parsed and
compiled for this row. The command runs in a process of its own; the CPU time of an empty batch is subtracted. The
engine and protego are called in this process, with texts and URLs that are already decoded: they neither read nor
write JSON. The sides take turns; the output is the median and the quartiles of the rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from corpus import arguments, files, urls
from protego import Protego

from robots_guard.origin import split_url
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules

AGENT = "examplebot"
COMMAND = [str(Path(sys.executable).with_name("robots-guard")), "check", "--batch"]


class Row(NamedTuple):
    """A question."""

    robots_txt: str
    url: str


Side = Callable[[Sequence[Row]], float]  # returns the seconds of CPU


def main() -> None:
    options = parsed()
    for name, rows in rows_by_name(options).items():
        with tempfile.TemporaryDirectory() as folder:
            sides: dict[str, Side] = {
                "check --batch": command(Path(folder), rows),
                "engine alone": engine,
                "protego": protego,
            }
            speeds: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(options.rounds):
                for side, run in sides.items():
                    speeds[side].append(len(rows) / run(rows))
        for side, found in speeds.items():
            low, middle, high = statistics.quantiles(found, n=4)
            print(f"{name:10} {side:14} {middle:9,.0f} rows/s ({low:,.0f} to {high:,.0f})")


def parsed() -> argparse.Namespace:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def rows_by_name(options: argparse.Namespace) -> dict[str, list[Row]]:
    chance = random.Random(options.seed)
    bodies = files(options.corpus, options.files, options.seed)["small"]
    texts = sorted((body.decode("utf-8", "replace") for body in bodies), key=len)
    one = texts[len(texts) // 2]
    asked = {text: urls(text.encode(), 50, options.seed) for text in texts}
    same = [Row(one, chance.choice(asked[one])) for _ in range(options.rows)]
    distinct = []
    for number in range(options.rows):
        text = chance.choice(texts)
        distinct.append(Row(f"{text}\n# {number}\n", chance.choice(asked[text])))
    return {"one file": same, "distinct": distinct}


def command(folder: Path, rows: Sequence[Row]) -> Side:
    """Return a function that runs the command on these rows."""
    whole, empty = folder / "rows.jsonl", folder / "empty.jsonl"
    lines = (json.dumps({"user_agent": AGENT, **row._asdict()}) for row in rows)
    whole.write_text("".join(f"{line}\n" for line in lines))
    empty.touch()
    return lambda _: _of_child(whole) - _of_child(empty)


def _of_child(path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, path], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def engine(rows: Sequence[Row]) -> float:
    begun = time.process_time()
    text, rules = "", compile_rules(b"", dialect("rfc9309"), AGENT, "standard")
    for row in rows:
        if row.robots_txt != text:
            text = row.robots_txt
            rules = compile_rules(text.encode(), dialect("rfc9309"), AGENT, "standard")
        rules.judge(split_url(row.url)[1])
    return time.process_time() - begun


def protego(rows: Sequence[Row]) -> float:
    begun = time.process_time()
    text, rules = "", Protego.parse("")
    for row in rows:
        if row.robots_txt != text:
            text = row.robots_txt
            rules = Protego.parse(text)
        rules.can_fetch(row.url, AGENT)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
