"""Parsing alone, with one crawler's rules compiled, and up to a first answer, beside protego and the standard library.

    python benchmarks/parsing.py [--corpus FILE] [--files N]

protego compiles nothing before it is first asked, so "compile x" sets all of ours against less of it: what a crawler
waits for, when it meets an origin, is the first answer.
"""

from __future__ import annotations

import statistics
import time
import urllib.robotparser
from collections.abc import Callable

from corpus import CLASSES, arguments, files
from protego import Protego

from robots_guard.origin import split_url
from robots_guard.rep.dialect import dialect
from robots_guard.rep.robots import parse
from robots_guard.rep.ruleset import compile_rules

ROUNDS = 9
RFC9309 = dialect("rfc9309")
URL = "https://www.example.com/some/page?id=7"


def stdlib(body: bytes) -> object:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(body.decode("utf-8", "ignore").splitlines())
    return parser


def first_answer(body: bytes) -> object:
    return compile_rules(body, RFC9309, "examplebot", "standard").judge(split_url(URL)[1])


def protego(body: bytes) -> Protego:
    return Protego.parse(body.decode("utf-8", "ignore"))


WAYS: dict[str, Callable[[bytes], object]] = {
    "parse": lambda body: parse(body, RFC9309),
    "parse+compile": lambda body: compile_rules(body, RFC9309, "examplebot", "standard"),
    "first answer": first_answer,
    "protego": protego,
    "protego answer": lambda body: protego(body).can_fetch(URL, "examplebot"),
    "stdlib": stdlib,
}

# Title, protego's way, ours, goal and stretch goal.
RATIOS = (
    ("parse x", "protego", "parse", (5.0, 7.0)),
    ("compile x", "protego", "parse+compile", (1.5, 2.0)),
    ("answer x", "protego answer", "first answer", (1.5, 2.0)),
)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    print(f"{'class':8}{'files':>6}" + "".join(f"{name:>18}" for name in (*WAYS, *(row[0] for row in RATIOS))))
    every = []
    for name in CLASSES:
        rows = [measure(body) for body in corpus[name]]
        if not rows:
            continue
        every += rows
        medians = "".join(f"{statistics.median(row[way] for row in rows) / 1000:15.1f} us" for way in WAYS)
        ratios = "".join(
            f"{statistics.median(row[theirs] / row[mine] for row in rows):18.1f}" for _, theirs, mine, _ in RATIOS
        )
        print(f"{name:8}{len(rows):6}{medians}{ratios}")
    print("goals (stretch): " + ", ".join(f"{title} {goal} ({stretch})" for title, _, _, (goal, stretch) in RATIOS))
    for title, theirs, mine, _ in RATIOS:
        print(f"all files together, {title}: {sum(r[theirs] for r in every) / sum(r[mine] for r in every):.1f}")


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
