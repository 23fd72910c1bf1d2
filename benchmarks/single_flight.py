"""How often is a robots.txt fetched when many processes request the same cold origin at once? It
must be once.

    python benchmarks/single_flight.py --store sqlite [--processes 16] [--askers 625] [--bursts 100]
    python benchmarks/single_flight.py --store redis://127.0.0.1:6379/0

Each burst is for a new origin. Every process requests it `--askers` times at once, through its own
guard with the real fetcher, and all must get the right verdict. Exits with 1 if a burst cost more
than one fetch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.access import Limits
from robots_guard.decisions.verdict import Question, Terms
from robots_guard.guard import single_flight
from robots_guard.guard.fetch.destinations import Destinations
from robots_guard.guard.fetch.http import HttpFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.testing import CapturingAuditLog, Loopback, Reply


class Asker:
    """A process that is sent an origin, and answers with the number of each verdict."""

    def __init__(self, store: str, *options: str) -> None:
        link, end = socket.socketpair()
        with link, end:
            self.process = self.start([__file__, "--ask", "--store", store, *options], end.fileno())
            self._link = link.makefile("rw")

    def start(self, command: list[str], stream: int) -> Any:
        """Start a script with its arguments, and return its process. `stream` is a file descriptor,
        which becomes its standard input and output. A subclass may start it in another way.
        """
        return subprocess.Popen([sys.executable, *command], stdin=stream, stdout=stream)

    def tell(self, origin: str) -> None:
        self._link.write(origin + "\n")
        self._link.flush()

    def receive(self) -> dict[str, int]:
        line = self._link.readline()
        assert line, "an asker has died"
        answer: dict[str, int] = json.loads(line)
        return answer

    def close(self) -> None:
        self._link.close()
        with self.process:
            self.process.wait(30)


def ask(options: argparse.Namespace) -> None:
    """Run a client process: read an origin per line, and print a line with its verdicts."""
    single_flight.MARGIN = options.margin
    guard = Guard(
        GuardOptions(
            component="asker",
            terms=Terms(
                dialect=dialect("rfc9309"),
                matching=matching("standard"),
                purposes=options.purposes,
            ),
            limits=Limits(total=options.fetch_timeout),
        ),
        runtime=AsyncioRuntime(),
        clocks=CLOCKS,
        memory=MemoryStore(),
        store=open_store(options.store),
        fetcher=HttpFetcher("mybot", destinations=Destinations(trusts_caller=True)),  # loopback
        audit_log=CapturingAuditLog(),
    )
    print("{}", flush=True)
    for line in sys.stdin:
        question = Question(origin=origin_of(line.strip()), target="/private/x", agent="mybot")
        print(json.dumps(asyncio.run(verdicts(guard, question, options.askers))), flush=True)
    guard.close()


async def verdicts(guard: Guard, question: Question, askers: int) -> dict[str, int]:
    decisions = await asyncio.gather(*(guard.check(question) for _ in range(askers)))
    counts: dict[str, int] = {}
    for decision in decisions:
        counts[str(decision.verdict.reason)] = counts.get(str(decision.verdict.reason), 0) + 1
    for name in ("store/error", "store/damaged"):
        counts |= {name: guard.counts[name]} if guard.counts[name] else {}
    return counts


def measure(
    store: str, processes: int, askers: int, bursts: int, kind: type[Asker] = Asker
) -> tuple[list[int], list[float]]:
    """Return the fetches of each burst, and the seconds until all were answered."""
    fetches, seconds = [], []
    pool = [kind(store, "--askers", str(askers)) for _ in range(processes)]
    for asker in pool:
        asker.receive()
    with Loopback() as net:
        for _ in range(bursts):
            site = net.origin(robots=Reply(body="User-agent: *\nDisallow: /private/\n", delay=0.05))
            began = time.perf_counter()
            for asker in pool:
                asker.tell(site.url)
            answers = [asker.receive() for asker in pool]
            seconds.append(time.perf_counter() - began)
            assert answers == [{"disallowed": askers}] * processes, answers
            fetches.append(len(site.robots_fetches))
    for asker in pool:
        asker.close()
    return fetches, seconds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", default="sqlite", help="sqlite (a new file), or a store's URL")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--askers", type=int, default=625, help="concurrent requests per process")
    parser.add_argument("--bursts", type=int, default=100)
    parser.add_argument("--fetch-timeout", type=float, default=30.0)
    parser.add_argument(
        "--margin",
        type=float,
        default=single_flight.MARGIN,
        help="seconds a lease outlives a fetch",
    )
    parser.add_argument("--purposes", default="", help="uses; tdm: also fetch each tdmrep.json")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> Any:
    options = arguments()
    if options.ask:
        return ask(options)
    with tempfile.TemporaryDirectory() as directory:
        url = (
            f"sqlite:///{Path(directory) / 'policies.sqlite'}"
            if options.store == "sqlite"
            else options.store
        )
        fetches, seconds = measure(url, options.processes, options.askers, options.bursts)
    once = sum(count == 1 for count in fetches)
    print(
        f"{options.bursts} bursts of {options.processes} x {options.askers} askers: {once} with exactly one fetch"
    )
    print(f"seconds a burst: median {statistics.median(seconds):.2f}, longest {max(seconds):.2f}")
    return 0 if once == options.bursts else 1


if __name__ == "__main__":
    sys.exit(main())
