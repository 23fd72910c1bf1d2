"""How many policies that are not in its memory one process gets from a Redis server a second, by
the time to the server and the number of threads for the store (`store_threads`).

    python benchmarks/misses.py [--milliseconds 0 1 40] [--threads 4 16 64] [--rounds 5] [--cold]

Without `--cold`, another process has stored each policy: a look-up is one round trip. With it, the
origin is new: two round trips before the fetch, which is answered at once here, and two after it.
The server is a private redis-server behind a relay that delays what passes (`distance.py`). Prints
medians of the rounds with the smallest and the largest. On a busy machine only ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from distance import Distance
from fleet import redis

from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Action, Question, Terms
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import Origin, origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.testing import CapturingAuditLog

ROBOTS = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/\n", tls_verified=True)


class AnyOrigin(ScriptedFetcher):
    """Answers every fetch at once."""

    async def fetch(self, get: Any) -> Any:
        self.gets.append(get)
        return ROBOTS


def guard_of(url: str, threads: int, fetcher: AnyOrigin) -> Guard:
    terms = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
    return Guard(
        GuardOptions(component="misses", terms=terms, store_threads=threads),
        runtime=AsyncioRuntime(),
        clocks=CLOCKS,
        memory=MemoryStore(),
        store=open_store(url),
        fetcher=fetcher,
        audit_log=CapturingAuditLog(),
    )


async def ask(guard: Guard, origins: list[Origin]) -> float:
    """Return the misses a second, of which more than any number of threads are under way."""
    left = iter(origins)

    async def one_after_the_other() -> None:
        for origin in left:
            question = Question(origin=origin, target="/page", agent="mybot")
            decision = await guard.check(question)
            assert decision.verdict.action is Action.PASS, decision.verdict

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(300)))
    return len(origins) / (time.perf_counter() - began)


def round_of(url: str, server: str, options: argparse.Namespace, threads: int, name: str) -> float:
    count = options.origins
    origins = [origin_of(f"https://{name}-{number}.example") for number in range(count)]
    fetcher = AnyOrigin()
    guard = guard_of(url, threads, fetcher)
    warm_up = [origin_of(f"https://{name}-start-{number}.example") for number in range(threads)]
    if not options.cold:
        near = open_store(server)
        assert near is not None
        for origin in origins:
            # The response is a 200, so that the next state is the last one and has a policy.
            policy = begin(origin, None, "direct").next(ROBOTS, time.time()).policy  # type: ignore[union-attr]
            near.put(policy, time.time())
        near.close()

    async def measure() -> float:
        await ask(guard, warm_up)  # connects each thread
        fetched = len(fetcher.gets)
        rate = await ask(guard, origins)
        assert len(fetcher.gets) - fetched == (count if options.cold else 0)
        return rate

    rate = asyncio.run(measure())
    assert not guard.counts["store/error"], guard.counts
    guard.close()
    return rate


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[0.0, 1.0, 40.0])
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--origins", type=int, default=600, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="new origins, which are fetched")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    kind = "cold origins" if options.cold else "policies that another process has stored"
    print(f"{kind}, a second and process: median (smallest to largest) of {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder, redis(Path(folder)) as server:
        port = int(server.rpartition(":")[2])
        for milliseconds in options.milliseconds:
            with Distance(("127.0.0.1", port), milliseconds / 2000) as relay:
                url = f"redis://127.0.0.1:{relay}/0?timeout=5"
                rates: dict[int, list[float]] = {threads: [] for threads in options.threads}
                for number in range(options.rounds):
                    for threads, found in rates.items():  # interleaved
                        name = f"{milliseconds:g}-{threads}-{number}".replace(".", "-")
                        found.append(round_of(url, server, options, threads, name))
            for threads, found in rates.items():
                print(
                    f"{milliseconds:5g} ms {threads:4} threads {statistics.median(found):8.0f}"
                    f" ({min(found):.0f} to {max(found):.0f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
