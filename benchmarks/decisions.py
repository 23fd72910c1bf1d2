"""The time from a full URL to a verdict with its rule, compared with protego and the standard
library.

    python benchmarks/decisions.py [--corpus FILE] [--files N]

Prints medians over files of the best of several rounds. Each round measures every peer in turn, so
that a slow moment of the machine affects all. The questions are asked twice: first after the other
peers have evicted the policy from the processor's caches, as work between two requests does, and
then "again" with warm caches.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
import urllib.robotparser
from collections.abc import Callable

from corpus import CLASSES, arguments, files, urls
from protego import Protego

from robots_guard.origin import split_url
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules

AGENT = "examplebot"
ROUNDS = 5
QUESTIONS = 300
GOALS = {"small": (2.0, 2.7), "medium": (4.0, 5.0), "large": (8.0, 10.0), "huge": (30.0, 90.0)}

Peer = Callable[[bytes], Callable[[str], object]]


def ours(body: bytes) -> Callable[[str], object]:
    judge = compile_rules(body, dialect("rfc9309"), AGENT, "standard").judge

    def ask(url: str) -> object:
        return judge(split_url(url)[1])

    return ask


def ours_target(body: bytes) -> Callable[[str], object]:
    judge = compile_rules(body, dialect("rfc9309"), AGENT, "standard").judge
    targets: dict[str, str] = {}

    def ask(url: str) -> object:
        return judge(targets.get(url) or targets.setdefault(url, split_url(url)[1]))

    return ask


def protego(body: bytes) -> Callable[[str], object]:
    parsed = Protego.parse(body.decode("utf-8", "ignore"))
    return lambda url: parsed.can_fetch(url, AGENT)


def stdlib(body: bytes) -> Callable[[str], object]:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(body.decode("utf-8", "ignore").splitlines())
    return lambda url: parser.can_fetch(AGENT, url)


PEERS: dict[str, Peer] = {
    "ours": ours,
    "ours, target given": ours_target,
    "protego": protego,
    "stdlib": stdlib,
}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    shown = ("ours", "ours, target given", "protego", "stdlib", "ours, again", "protego, again")
    print(
        f"{'class':8}{'files':>6}"
        + "".join(f"{name:>20}" for name in shown)
        + f"{'ratio (p5)':>13}{'again':>7}  goal"
    )
    medians: dict[str, dict[str, float]] = {}
    for name in CLASSES:
        rows = [measure(body, urls(body, QUESTIONS, options.seed)) for body in corpus[name]]
        if not rows:
            continue
        medians[name] = {way: statistics.median(row[way] for row in rows) for way in rows[0]}
        ratios = sorted(row["protego"] / row["ours"] for row in rows)
        again = statistics.median(row["protego, again"] / row["ours, again"] for row in rows)
        times = "".join(f"{medians[name][way]:17.0f} ns" for way in shown)
        low = ratios[len(ratios) // 20]
        print(
            f"{name:8}{len(rows):6}{times}{statistics.median(ratios):7.1f} ({low:.1f}){again:7.1f}  {GOALS[name]}"
        )
    if {"small", "huge"} <= medians.keys():
        spread, warm = (
            medians["huge"][way] / medians["small"][way] for way in ("ours", "ours, again")
        )
        print(f"huge / small: {spread:.2f}, again {warm:.2f} (goal 2, stretch 1.5)")
    memory(corpus)


def measure(body: bytes, questions: list[str]) -> dict[str, float]:
    """Return the nanoseconds per question, by peer."""
    peers = {name: make(body) for name, make in PEERS.items()}
    for ask in peers.values():
        for url in questions:
            ask(url)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, ask in peers.items():
            for way in (name, f"{name}, again"):
                best[way] = min(best.get(way, float("inf")), _pass(ask, questions))
    return best


def _pass(ask: Callable[[str], object], questions: list[str]) -> float:
    start = time.perf_counter_ns()
    for url in questions:
        ask(url)
    return (time.perf_counter_ns() - start) / len(questions)


def _our_policy(body: bytes) -> object:
    rules = compile_rules(body, dialect("rfc9309"), AGENT, "standard")
    rules.judge("/some/page")
    return rules


def _protego_policy(body: bytes) -> object:
    parsed = Protego.parse(body.decode("utf-8", "ignore"))
    # it compiles at the first question
    parsed.can_fetch("https://www.example.com/some/page", AGENT)
    return parsed


def memory(corpus: dict[str, list[bytes]]) -> None:
    """Print the bytes per policy after one question, by class.

    A policy of robots_guard includes the body.
    """
    for name in CLASSES:
        bodies = corpus[name][:60]
        if not bodies:
            continue
        ours = [_memory_of(_our_policy, body) for body in bodies]
        theirs = [_memory_of(_protego_policy, body) for body in bodies]
        estimates = [
            compile_rules(body, dialect("rfc9309"), AGENT).size - len(body) for body in bodies
        ]
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        mine, other, estimate = (
            statistics.median(sizes) / 1024 for sizes in (ours, theirs, estimates)
        )
        print(
            f"memory {name:8} ours {mine:8.1f} KiB (estimate {estimate:.1f})  protego {other:8.1f} KiB"
            f"  ratio {ratio:.2f}, of the means {statistics.mean(ours) / statistics.mean(theirs):.2f}"
            " (goal 0.5, stretch 0.33)"
        )


def _memory_of(build: Callable[[bytes], object], body: bytes) -> int:
    build(body)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = build(body)
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return size


if __name__ == "__main__":
    main()
