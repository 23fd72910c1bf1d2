"""The time to parse, to compile one crawler's rules, and to a first answer, compared with protego
and the stdlib.

    python benchmarks/parsing.py [--corpus FILE] [--files N]

What is compared:

    parse     ours: bytes to groups, including byte order marks, limits and control characters.
              protego: text to the sorted rules of every agent with quoted patterns; nothing is indexed.
    compile   ours: parse, choose a crawler's group, rewrite its patterns and build its matcher. protego: as parse.
    answer    both: from bytes to the first answer, which is what a crawler waits for at a new origin. The work is
              comparable, because protego chooses the agent and builds its index at the first question.
    C calls   the minimum that any parser in Python must call per line: splitlines, partition, a lookup of the field,
              strip. No such parser can beat protego by a larger ratio.

Every peer processes every file in turn; the best of several rounds counts. Neither side caches
results between rounds, except names of crawlers and groups.
"""

from __future__ import annotations

import statistics
import time
import urllib.robotparser
from collections.abc import Callable

from corpus import CLASSES, arguments, files
from protego import Protego

from robots_guard.origin import split_url
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.lines import SPELLINGS
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import compile_rules

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


def c_calls(body: bytes) -> object:
    usual = SPELLINGS.get
    found = []
    for raw in body.splitlines():
        key, _, value = raw.partition(b":")
        found.append((usual(key), value.strip()))
    return found


WAYS: dict[str, Callable[[bytes], object]] = {
    "parse": lambda body: parse(body, RFC9309),
    "parse+compile": lambda body: compile_rules(body, RFC9309, "examplebot", "standard"),
    "first answer": first_answer,
    "protego": protego,
    "protego answer": lambda body: protego(body).can_fetch(URL, "examplebot"),
    "stdlib": stdlib,
    "C calls": c_calls,
}

# Title, protego's way, ours, goal and stretch goal.
RATIOS = (
    ("parse x", "protego", "parse", (5.0, 7.0)),
    ("compile x", "protego", "parse+compile", (1.5, 2.0)),
    ("answer x", "protego answer", "first answer", (1.5, 2.0)),
    ("C calls x", "protego", "C calls", None),
)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    print(
        f"{'class':8}{'files':>6}"
        + "".join(f"{name:>18}" for name in (*WAYS, *(row[0] for row in RATIOS)))
    )
    every = []
    for name in CLASSES:
        rows = [measure(body) for body in corpus[name]]
        if not rows:
            continue
        every += rows
        medians = "".join(
            f"{statistics.median(row[way] for row in rows) / 1000:15.1f} us" for way in WAYS
        )
        ratios = "".join(
            f"{statistics.median(row[theirs] / row[mine] for row in rows):18.1f}"
            for _, theirs, mine, _ in RATIOS
        )
        print(f"{name:8}{len(rows):6}{medians}{ratios}")
    goals = [f"{title} {goal[0]} ({goal[1]})" for title, _, _, goal in RATIOS if goal]
    print(
        f"goals (stretch): {', '.join(goals)}; of parse all files together, of the others each class"
    )
    for title, theirs, mine, _ in RATIOS:
        print(
            f"all files together, {title}: {sum(r[theirs] for r in every) / sum(r[mine] for r in every):.1f}"
        )


def measure(body: bytes) -> dict[str, float]:
    """Return the nanoseconds, by way."""
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            start = time.perf_counter_ns()
            way(body)
            best[name] = min(best[name], time.perf_counter_ns() - start)
    return best


if __name__ == "__main__":
    main()
