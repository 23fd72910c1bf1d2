"""Parsing alone, and parsing with one crawler's rules compiled, beside protego and the standard library.

python benchmarks/parsing.py [--corpus FILE] [--files N]
"""

from __future__ import annotations

import statistics
import time
import urllib.robotparser
from collections.abc import Callable

from corpus import CLASSES, arguments, files
from protego import Protego

from robots_guard.rep.dialect import dialect
from robots_guard.rep.robots import parse
from robots_guard.rep.ruleset import compile_rules

ROUNDS = 5
RFC9309 = dialect("rfc9309")


def stdlib(body: bytes) -> object:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(body.decode("utf-8", "ignore").splitlines())
    return parser


WAYS: dict[str, Callable[[bytes], object]] = {
    "parse": lambda body: parse(body, RFC9309),
    "parse+compile": lambda body: compile_rules(body, RFC9309, "examplebot", "standard"),
    "protego": lambda body: Protego.parse(body.decode("utf-8", "ignore")),
    "stdlib": stdlib,
}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    print(f"{'class':8}{'files':>6}" + "".join(f"{name:>18}" for name in WAYS) + "   parse x  compile x")
    for name in CLASSES:
        rows = [measure(body) for body in corpus[name]]
        if not rows:
            continue
        medians = {way: statistics.median(row[way] for row in rows) for way in WAYS}
        parsing = statistics.median(row["protego"] / row["parse"] for row in rows)
        compiling = statistics.median(row["protego"] / row["parse+compile"] for row in rows)
        shown = "".join(f"{medians[way] / 1000:15.1f} us" for way in WAYS)
        print(f"{name:8}{len(rows):6}{shown}{parsing:9.1f}{compiling:10.1f}")
    print("goals: parse at least 5x (stretch 7x), parse+compile at least 1.5x (stretch 2x) in every class")
    bodies = [body for name in CLASSES for body in corpus[name]]
    spent = {way: sum(measure(body)[way] for body in bodies) for way in ("parse", "protego")}
    print(f"all files together: parse {spent['protego'] / spent['parse']:.1f}x protego")


def measure(body: bytes) -> dict[str, float]:
    """Nanoseconds, by way."""
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            start = time.perf_counter_ns()
            way(body)
            best[name] = min(best[name], time.perf_counter_ns() - start)
    return best


if __name__ == "__main__":
    main()
