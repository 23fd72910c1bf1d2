"""From a full URL to a verdict with its rule, beside protego and the standard library, in one interleaved run.

    python benchmarks/decisions.py [--corpus FILE] [--files N]

Medians over files of the best of several rounds; each round asks every peer in turn, so that a slow moment of the
machine is everybody's.
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
from robots_guard.rep.dialect import dialect
from robots_guard.rep.ruleset import compile_rules

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


PEERS: dict[str, Peer] = {"ours": ours, "ours, target given": ours_target, "protego": protego, "stdlib": stdlib}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    print(f"{'class':8}{'files':>6}" + "".join(f"{name:>20}" for name in PEERS) + f"{'ratio (p5)':>16}  goal")
    ours_medians = {}
    for name in CLASSES:
        rows = [measure(body, urls(body, QUESTIONS, options.seed)) for body in corpus[name]]
        if not rows:
            continue
        medians = {peer: statistics.median(row[peer] for row in rows) for peer in PEERS}
        ours_medians[name] = medians["ours"]
        ratios = sorted(row["protego"] / row["ours"] for row in rows)
        low = ratios[len(ratios) // 20]
        shown = "".join(f"{medians[peer]:17.0f} ns" for peer in PEERS)
        print(f"{name:8}{len(rows):6}{shown}{statistics.median(ratios):10.1f} ({low:.1f})  {GOALS[name]}")
    if {"small", "huge"} <= ours_medians.keys():
        print(f"huge / small: {ours_medians['huge'] / ours_medians['small']:.2f} (goal 2, stretch 1.5)")
    memory(corpus)


def measure(body: bytes, questions: list[str]) -> dict[str, float]:
    """Nanoseconds a question, by peer."""
    peers = {name: make(body) for name, make in PEERS.items()}
    for ask in peers.values():
        for url in questions:
            ask(url)
    best = dict.fromkeys(peers, float("inf"))
    for _ in range(ROUNDS):
        for name, ask in peers.items():
            start = time.perf_counter_ns()
            for url in questions:
                ask(url)
            best[name] = min(best[name], (time.perf_counter_ns() - start) / len(questions))
    return best


def memory(corpus: dict[str, list[bytes]]) -> None:
    """Octets a compiled policy, by class."""
    for name in CLASSES:
        sizes: dict[str, list[int]] = {"ours": [], "protego": []}
        estimates = []
        for body in corpus[name][:30]:
            for peer, held in sizes.items():
                held.append(_held(PEERS[peer], body))
            estimates.append(compile_rules(body, dialect("rfc9309"), AGENT).size)
        if estimates:
            mine, theirs = (statistics.median(sizes[peer]) for peer in ("ours", "protego"))
            ratio = statistics.median(m / t for m, t in zip(sizes["ours"], sizes["protego"], strict=True))
            print(
                f"memory {name:8} ours {mine / 1024:8.1f} KiB (estimate {statistics.median(estimates) / 1024:.1f})"
                f"  protego {theirs / 1024:8.1f} KiB  ratio {ratio:.2f} (goal 0.5, stretch 0.33)"
            )


def _held(make: Peer, body: bytes) -> int:
    make(body)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make(body)
    kept("https://www.example.com/some/page")
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held


if __name__ == "__main__":
    main()
