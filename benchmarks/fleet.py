"""A fleet of crawlers on one machine: worker processes, a real redis-server, thousands of origins.

    python benchmarks/fleet.py [--small] [--workers 16] [--origins 2000] [--urls 20000] [--seconds 60] [--delay 1]

The same URLs, Zipf-distributed over the origins and dealt out to the workers, are crawled twice:
with the origins' Crawl-delay ignored (`max_delay = 0`), and respected. Measured at the origins:
fetches of robots.txt, gaps between two pages of one origin, pages per second, and how many pages
the delays allow in the time the crawl took.

An overloaded machine stalls senders and receivers. Stalls longer than `pacing.MAX_TURN_AGE` compensates
can shorten a gap, so they are measured too. Exits with 1 if a robots.txt was fetched twice, or if a
gap is shorter than the delay (tolerance 1 %) by more than the stalls explain.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import heapq
import multiprocessing
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from origins import Origins

from robots_guard.configuration.settings import Settings, direct_fetcher, open_guard
from robots_guard.decisions.pacing import MAX_TURN_AGE
from robots_guard.decisions.verdict import Action, Decision, Question
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import split_url

AT_ONCE = 16  # concurrent requests of a worker
TOLERANCE = 0.01
TIMEOUT = 5.0  # seconds for Redis: sixteen workers on two cores are slower than its default allows


class Work(NamedTuple):
    """The task of a worker."""

    urls: list[str]
    settings: Settings
    begins: float  # seconds since 1970
    seconds: float


class Result(NamedTuple):
    """The results of a crawl."""

    took: float
    pages: int
    robots: dict[str, int]  # fetches by origin
    gaps: list[float]
    allowed: int  # pages that the delays allow in that time
    late: float  # seconds from a turn to its request, at most
    stalled: float  # seconds of the longest stall of an origin

    @property
    def explained(self) -> float:
        """The seconds by which an overloaded machine can shorten a gap."""
        return max(0.0, self.late - MAX_TURN_AGE) + max(0.0, self.stalled - MAX_TURN_AGE)


# -- a worker --------------------------------------------------------------------------------------


class Worker:
    """A crawler with one queue per origin, which requests the page that is due first."""

    def __init__(self, work: Work, guard: Guard) -> None:
        self._guard = guard
        self._agent = work.settings.agent
        self._ends = work.begins + work.seconds
        self._queues: dict[str, collections.deque[str]] = {}
        for url in work.urls:
            self._queues.setdefault(url.rpartition("/")[0], collections.deque()).append(url)
        self._due = [(0.0, origin) for origin in self._queues]
        random.Random(len(work.urls)).shuffle(self._due)
        heapq.heapify(self._due)
        self._left = len(work.urls)
        self.late = 0.0

    async def run(self) -> None:
        await asyncio.gather(*(self._crawl() for _ in range(AT_ONCE)))

    async def _crawl(self) -> None:
        while self._left and time.time() < self._ends:
            if not self._due or self._due[0][0] > time.time():
                await asyncio.sleep(0.005)
                continue
            _, origin = heapq.heappop(self._due)
            again = await self._request(self._queues[origin][0])
            if again is None:
                self._left -= 1
                self._queues[origin].popleft()
            if self._queues[origin]:
                heapq.heappush(self._due, (again or time.time(), origin))

    async def _request(self, url: str) -> float | None:
        """Get a page. Returns when to try again, or None."""
        origin, target = split_url(url)
        question = Question(origin=origin, target=target, agent=self._agent)
        decision = self._guard.peek(question) or await self._guard.check(question)
        decision = await self._guard.turn(decision)
        if decision.verdict.action is Action.DEFER:
            return decision.verdict.until
        assert decision.verdict.action is Action.PASS, decision.verdict
        return await self._get(decision)

    async def _get(self, decision: Decision) -> float | None:
        question = decision.question
        reader, writer = await asyncio.open_connection(question.origin.host, question.origin.port)
        decision = await self._guard.turn(decision)  # re-stamped, if connecting took long
        if decision.verdict.action is Action.DEFER:
            writer.close()
            return decision.verdict.until
        if decision.turn is not None:
            self.late = max(self.late, time.time() - decision.turn.asked)
        decision = self._guard.mark_sent(decision)
        writer.write(
            f"GET {question.target} HTTP/1.1\r\nHost: {question.origin.authority}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        await self._guard.mark_response_started(decision)
        await reader.readexactly(4)
        writer.close()
        return None


def worker(work: Work) -> float:
    return asyncio.run(crawl(work))


async def crawl(work: Work) -> float:
    fetcher = direct_fetcher(work.settings, trusts_caller=True)
    guard = open_guard(work.settings, component="cli", runtime=AsyncioRuntime(), fetcher=fetcher)
    crawling = Worker(work, guard)
    await asyncio.sleep(max(0.0, work.begins - time.time()))
    await crawling.run()
    await guard.drain()
    guard.close()
    return crawling.late


# -- the fleet -------------------------------------------------------------------------------------


def run(
    origins: Origins,
    urls: list[str],
    options: argparse.Namespace,
    store: str,
    folder: Path,
    **more: float,
) -> Result:
    # the values are floats
    settings = Settings(agent="fleetbot", store=store, audit_log=str(folder), **more)  # type: ignore[arg-type]
    begins = time.time() + 2 + options.workers / 4  # when all have started
    context = multiprocessing.get_context("spawn")
    works = [
        Work(urls[first :: options.workers], settings, begins, options.seconds)
        for first in range(options.workers)
    ]
    origins.stalled()
    with context.Pool(options.workers) as pool:
        late = max(pool.map(worker, works, chunksize=1))
    return result(origins, urls, options.delay, late)


def result(origins: Origins, urls: list[str], delay: float, late: float) -> Result:
    received = origins.received()
    pages: dict[str, list[float]] = {}
    robots: collections.Counter[str] = collections.Counter()
    for host, target, at in received:
        if target == "/robots.txt":
            robots[host] += 1
        else:
            pages.setdefault(host, []).append(at)
    moments = [at for _, target, at in received if target != "/robots.txt"]
    took = max(moments) - min(moments)
    wanted = collections.Counter(url.split("/")[2].split(":")[0] for url in urls)
    allowed = sum(min(count, int(took / delay) + 1) for count in wanted.values())
    gaps = [later - earlier for each in pages.values() for earlier, later in pairwise(sorted(each))]
    return Result(took, len(moments), dict(robots), gaps, allowed, late, origins.stalled())


def zipf(origins: Origins, options: argparse.Namespace) -> list[str]:
    chance = random.Random(options.seed)
    weights = [1 / rank for rank in range(1, options.origins + 1)]
    drawn = chance.choices(range(options.origins), weights, k=options.urls)
    return [f"{origins.url(number)}/{page}" for page, number in enumerate(drawn)]


def report(name: str, it: Result, delay: float) -> None:
    short = sum(gap < delay * (1 - TOLERANCE) for gap in it.gaps)
    twice = sum(count > 1 for count in it.robots.values())
    print(
        f"{name:9} {it.pages} pages in {it.took:.1f} s, {it.pages / it.took:.0f}/s;"
        f" robots.txt of {len(it.robots)} origins, {twice} of them more than once;"
        f" {len(it.gaps)} gaps, {short} below {delay:g} s, shortest {min(it.gaps, default=0):.4f} s;"
        f" from turn to wire {it.late:.3f} s at most, origins stalled {it.stalled:.3f} s at most"
    )


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run a private redis-server, and yield its URL."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is not installed: apt-get install redis-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--small", action="store_true", help="4 workers, 100 origins, 1000 URLs, 8 s"
    )
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--origins", type=int, default=2000)
    parser.add_argument("--urls", type=int, default=20_000)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="after which a crawl ends, finished or not"
    )
    parser.add_argument("--delay", type=float, default=1.0, help="the origins' Crawl-delay")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.small:
        options.workers, options.origins, options.urls, options.seconds = 4, 100, 1000, 8.0
    return options


def main() -> int:
    options = arguments()
    robots = f"User-agent: *\nDisallow: /private/\nCrawl-delay: {options.delay:g}\n"
    with (
        tempfile.TemporaryDirectory() as temporary,
        redis(Path(temporary)) as server,
        Origins(robots) as origins,
    ):
        urls, folder = zipf(origins, options), Path(temporary) / "audit_log"
        free = run(origins, urls, options, f"{server}/0?timeout={TIMEOUT:g}", folder, max_delay=0.0)
        report("unpaced", free, options.delay)
        kept = run(origins, urls, options, f"{server}/1?timeout={TIMEOUT:g}", folder)
        report("paced", kept, options.delay)
    print(
        f"paced/unpaced: {kept.pages / kept.took / (free.pages / free.took):.2f} of the throughput;"
        f" {kept.pages / kept.allowed:.1%} of the {kept.allowed} pages that the delays allow in {kept.took:.1f} s"
    )
    short = min(kept.gaps) < options.delay * (1 - TOLERANCE) - kept.explained
    return int(short or any(count > 1 for it in (free, kept) for count in it.robots.values()))


if __name__ == "__main__":
    sys.exit(main())
