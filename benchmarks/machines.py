"""A fleet of 20 machines with 5 crawlers each, and one Redis server that is 1 ms or 40 ms away.

    python benchmarks/machines.py [--milliseconds 1 40] [--machines 20] [--crawlers 5] [--rounds 3]

A machine is a process, and a crawler is a guard in it, with its own memory, name and connections:
20 processes need 2 GB, 100 would need 8. The server is a private redis-server behind a relay that
delays what passes (`distance.py`). Each origin is wanted by ten crawlers, on different machines.
All begin at once, with origins that none of them knows, and visit theirs as fast as the Crawl-delay
lets the fleet. Measured at the origins:
fetches of each robots.txt, the gaps between pages, how much of the permitted rate is used, and
the pages of each crawler: Jain's fairness index, 1 if all got the same number (R. Jain, D. Chiu,
W. Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984), and the smallest and largest.

Exits with 1 if a robots.txt was fetched twice, or if a gap is shorter than the delay (tolerance 1 %)
by more than stalls of this machine explain (see `fleet.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from distance import Distance
from fleet import TOLERANCE, Work, Worker, redis
from origins import Origins

from robots_guard.configuration.settings import Settings, direct_fetcher, open_guard
from robots_guard.decisions.pacing import MAX_TURN_AGE
from robots_guard.guard.runtime import AsyncioRuntime

WANTED_BY = 10  # crawlers


class Crawler(Worker):
    """One guard, which visits every origin as soon as it may."""

    async def run(self) -> None:
        await asyncio.gather(*(self._visit(urls[0]) for urls in self._queues.values()))

    async def _visit(self, url: str) -> None:
        while (now := time.time()) < self._ends:
            again = await self._request(url)
            if again is not None:
                await asyncio.sleep(min(max(0.0, again - now), self._ends - now))


class Round(NamedTuple):
    """The results of a crawl."""

    robots: dict[str, int]  # fetches by origin
    gaps: list[float]
    pages: list[int]  # of each crawler
    used: float  # the share of the permitted rate
    late: float  # seconds from a turn to its request, at most
    stalled: float  # seconds of the longest stall of an origin

    @property
    def jain(self) -> float:
        return sum(self.pages) ** 2 / (len(self.pages) * sum(each**2 for each in self.pages))

    def shortest_allowed(self, delay: float) -> float:
        """Return the shortest gap that the stalls of this machine explain."""
        explained = max(0.0, self.late - MAX_TURN_AGE) + max(0.0, self.stalled - MAX_TURN_AGE)
        return delay * (1 - TOLERANCE) - explained

    def keeps(self, delay: float) -> bool:
        once = all(count == 1 for count in self.robots.values())
        return once and min(self.gaps) >= self.shortest_allowed(delay)


_barriers: list[Any] = []  # the barrier of all machines, in each of them


def enter(ready: Any) -> None:
    """Keep the barrier of all machines, which cannot be an argument of a pool's work."""
    _barriers.append(ready)


def machine(works: list[Work]) -> float:
    return asyncio.run(crawl_all(works))


async def crawl_all(works: list[Work]) -> float:
    with contextlib.ExitStack() as opened:
        guards = []
        for work in works:
            fetcher = direct_fetcher(work.settings, trusts_caller=True)
            guard = open_guard(
                work.settings, component="cli", runtime=AsyncioRuntime(), fetcher=fetcher
            )
            opened.callback(guard.close)
            guards.append(guard)
        _barriers[0].wait(300)
        begins = time.time()
        crawlers = [
            Crawler(work._replace(begins=begins), guard)
            for work, guard in zip(works, guards, strict=True)
        ]
        await asyncio.gather(*(crawler.run() for crawler in crawlers))
        return max(crawler.late for crawler in crawlers)


def run(origins: Origins, options: argparse.Namespace, store: str, folder: Path, at: int) -> Round:
    settings = Settings(
        agent="fleetbot", store=store, audit_log=str(folder), store_threads=options.threads
    )
    names = [
        [f"m{machine}c{crawler}" for crawler in range(options.crawlers)]
        for machine in range(options.machines)
    ]
    works = [[_work(origins, options, settings, at, name) for name in row] for row in names]
    origins.stalled()
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(options.machines)
    with context.Pool(options.machines, enter, (ready,)) as pool:
        late = max(pool.map(machine, works, chunksize=1))
    return result(origins, options, [name for row in names for name in row], late)


def _work(
    origins: Origins, options: argparse.Namespace, settings: Settings, at: int, name: str
) -> Work:
    """Return the work of a crawler: its share of the origins, each wanted by as many crawlers."""
    machine, _, crawler = name[1:].partition("c")
    number, count = int(machine) * options.crawlers + int(crawler), options.origins
    wanted = count * WANTED_BY // (options.machines * options.crawlers)
    chosen = {(7 * number + 11 * each) % count for each in range(wanted)}
    urls = [f"{origins.url(at * count + one)}/{name}" for one in sorted(chosen)]
    return Work(urls, settings, 0.0, options.seconds)


def result(origins: Origins, options: argparse.Namespace, names: list[str], late: float) -> Round:
    robots: collections.Counter[str] = collections.Counter()
    pages: dict[str, list[float]] = {}
    by_crawler = collections.Counter(dict.fromkeys(names, 0))
    for host, target, at in origins.received():
        if target == "/robots.txt":
            robots[host] += 1
        else:
            pages.setdefault(host, []).append(at)
            by_crawler[target[1:]] += 1
    assert len(robots) == options.origins, "an origin was not visited"
    gaps = [late - early for each in pages.values() for early, late in pairwise(sorted(each))]
    used = sum(gap for gap in gaps) / len(gaps)
    return Round(
        dict(robots),
        gaps,
        list(by_crawler.values()),
        options.delay / used,
        late,
        origins.stalled(),
    )


def report(milliseconds: float, rounds: list[Round], delay: float) -> None:
    def spread(values: list[float], form: str) -> str:
        low, middle, high = min(values), statistics.median(values), max(values)
        return f"{middle:{form}} ({low:{form}} to {high:{form}})"

    fetches = [sum(each.robots.values()) / len(each.robots) for each in rounds]
    shortest = [min(each.gaps) for each in rounds]
    below = [float(sum(gap < delay * (1 - TOLERANCE) for gap in each.gaps)) for each in rounds]
    print(f"{milliseconds:g} ms, medians (smallest to largest) of {len(rounds)} rounds:")
    print(f"  fetches of each robots.txt  {spread(fetches, '.2f')}")
    print(f"  shortest gap, s             {spread(shortest, '.4f')} for a delay of {delay:g}")
    print(f"  gaps below 99 % of it       {spread(below, '.0f')} of {len(rounds[0].gaps)}")
    print(f"  share of the rate used      {spread([each.used for each in rounds], '.3f')}")
    print(f"  Jain's index                {spread([each.jain for each in rounds], '.4f')}")
    fewest = [float(min(each.pages)) for each in rounds]
    most = [float(max(each.pages)) for each in rounds]
    print(
        f"  pages of a crawler          {spread(fewest, '.0f')} fewest, {spread(most, '.0f')} most"
    )
    print(
        f"  stalls of this machine, s   {spread([each.late for each in rounds], '.3f')} from turn to wire,"
        f" {spread([each.stalled for each in rounds], '.3f')} of the origins",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[1.0, 40.0])
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--crawlers", type=int, default=5, help="on each machine")
    parser.add_argument("--origins", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--delay", type=float, default=1.0, help="the origins' Crawl-delay")
    parser.add_argument("--threads", type=int, default=8, help="store_threads of each crawler")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    robots = f"User-agent: *\nDisallow: /private/\nCrawl-delay: {options.delay:g}\n"
    kept = True
    with (
        tempfile.TemporaryDirectory() as temporary,
        redis(Path(temporary)) as server,
        Origins(robots) as origins,
    ):
        port, at = int(server.rpartition(":")[2]), 0
        found: dict[float, list[Round]] = {each: [] for each in options.milliseconds}
        with contextlib.ExitStack() as relays:
            relayed = {
                each: relays.enter_context(Distance(("127.0.0.1", port), each / 2000))
                for each in options.milliseconds
            }
            for _ in range(options.rounds):
                for milliseconds, rounds in found.items():  # interleaved
                    url = f"redis://127.0.0.1:{relayed[milliseconds]}/0?timeout=5"
                    rounds.append(run(origins, options, url, Path(temporary) / "log", at))
                    at += 1
        for milliseconds, rounds in found.items():
            report(milliseconds, rounds, options.delay)
            kept = kept and all(each.keeps(options.delay) for each in rounds)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
