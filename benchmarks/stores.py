"""The cost of the policy stores: per lookup, per put, per origin, and with concurrent processes.

    python benchmarks/stores.py [--corpus FILE] [--redis URL] [--origins 100000] [--seconds 5]
    python benchmarks/stores.py --only verdicts [--corpus FILE] [--redis URL] [--rounds 20]

L1 is a guard's local cache; L2 is a store, from the call to compiled rules. Prints the results with
their goals.

`verdicts` measures the first verdict for an origin whose policy is in the store and not in memory,
compared with a bare read of the same bytes by the driver (sqlite3, redis-py). The two sides take
turns; the figures are medians of the rounds, with quartiles if there are several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import resource
import sqlite3
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

from corpus import arguments, files, positive

from robots_guard.decisions import codec
from robots_guard.decisions.access import Fetched, Limits
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Question, Terms
from robots_guard.errors import StoreError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import Origin, origin_of
from robots_guard.ports import Clocks, SharedStore
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.ruleset import compile_rules

RFC9309 = dialect("rfc9309")
NOW = 1_800_000_000.0
LOOKUPS = 20_000
SHARES = {"small": 740, "medium": 230, "large": 30}  # per thousand files in the wild
HEADERS = {
    "content-type": "text/plain",
    "etag": '"5f3c-60a1b2c3d4e5f"',
    "cache-control": "max-age=86400",
}


def policy(number: int, body: bytes, at: float = NOW) -> Policy:
    answer = Fetched(status=200, body=body, headers=HEADERS, tls_verified=True)
    settled = begin(origin(number), None, "direct").next(answer, at)
    return settled.policy  # type: ignore[union-attr]  # a 200 settles


def origin(number: int) -> Origin:
    return origin_of(f"https://www.example-{number * 7919 % 1_000_003}.com")


def timed(work: Callable[[Any], object], items: list[Any]) -> list[float]:
    """Return the microseconds of each call."""
    spent = []
    for item in items:
        began = time.perf_counter_ns()
        work(item)
        spent.append((time.perf_counter_ns() - began) / 1000)
    return spent


def show(name: str, spent: list[float], goal: str = "") -> None:
    ordered = sorted(spent)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    print(f"{name:44}{middle:10.2f} us median{late:10.2f} us p99   {goal}")


def lookups(store: SharedStore, name: str, bodies: list[bytes]) -> None:
    """Measure put, get, and get with compiled rules, for many origins that serve these bodies."""
    policies = [
        policy(number, body) for number, body in zip(range(LOOKUPS), cycle(bodies), strict=False)
    ]
    show(
        f"{name}: put, a new origin",
        timed(lambda stored: store.put(stored, NOW), policies),
        "goal 100 us",
    )
    keys = [stored.origin for stored in policies]
    random.Random(1).shuffle(keys)
    show(f"{name}: get", timed(store.get, keys))
    show(
        f"{name}: get, parse and compile",
        timed(lambda key: compiled(store, key), keys[:4000]),
        "goal 60 us (small)",
    )
    show(
        f"{name}: get, nothing stored",
        timed(store.get, [origin(LOOKUPS + number) for number in range(4000)]),
    )
    show(f"{name}: take and release a lease", timed(lambda key: leased(store, key), keys[:4000]))


def compiled(store: SharedStore, key: Origin) -> None:
    stored = store.get(key)
    assert stored is not None
    assert stored.document is not None
    compile_rules(stored.document.body, RFC9309, "examplebot", "standard")


def leased(store: SharedStore, key: Origin) -> None:
    store.take(key, "token", NOW, 35.0)
    store.release(key, "token")


# -- from the store to a verdict -------------------------------------------------------------------

ASKED = 300  # origins of a round
CLOCKS = Clocks(now=lambda: NOW + 1.0, monotonic=time.monotonic)


class NoLog:
    """An audit log that keeps nothing: its cost is measured by audit_log.py."""

    def write(self, decision: object) -> None:
        """Keep nothing."""

    def note(self, event: object, *, is_tried_again: bool = False) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing."""


def opened(store: SharedStore) -> Guard:
    """Return a guard with an empty memory."""
    terms = Terms(dialect=RFC9309, matching=matching("standard"))
    return Guard(
        GuardOptions(component="benchmark", agent="examplebot", terms=terms, limits=Limits()),
        runtime=AsyncioRuntime(),
        clocks=CLOCKS,
        memory=MemoryStore(),
        store=store,
        fetcher=ScriptedFetcher(),
        audit_log=NoLog(),
    )


class Side:
    """The times of one side, by round: microseconds per item, of the wall clock and of CPU."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.medians: list[float] = []
        self.cpu: list[float] = []

    def add(self, spent: list[float], cpu: float) -> None:
        self.medians.append(statistics.median(spent))
        self.cpu.append(cpu / 1000 / len(spent))

    def show(self) -> None:
        print(f"{self.name:44}{_quartiles(self.medians)} us{_quartiles(self.cpu)} us of CPU")


def _quartiles(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:9.1f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:9.1f} ({low:.1f} to {high:.1f})"


def filled(store: SharedStore, bodies: list[bytes]) -> list[Origin]:
    """Store a policy for each of many origins, and return the origins."""
    origins = [origin(number) for number in range(ASKED * 10)]
    for number, body in zip(range(len(origins)), cycle(bodies), strict=False):
        store.put(policy(number, b"# %d\n" % number + body), NOW)
    return origins


def verdicts(store: SharedStore, name: str, origins: list[Origin], read: Any, rounds: int) -> None:
    """Measure the first verdict for each origin, next to the bare `read` of an origin's bytes."""
    bare, first = Side(f"{name}: bare read"), Side(f"{name}: first verdict")
    chance = random.Random(3)
    for _ in range(rounds):
        keys = chance.sample(origins, ASKED)
        began = time.process_time_ns()
        spent = timed(read, keys)
        bare.add(spent, time.process_time_ns() - began)
        first.add(*asyncio.run(first_verdicts(store, keys)))
    for side in (bare, first):
        side.show()
    print(f"{'':44}{statistics.median(first.cpu) / statistics.median(bare.cpu):9.1f} times the CPU")


async def first_verdicts(store: SharedStore, keys: list[Origin]) -> tuple[list[float], int]:
    """Ask a new guard about each origin; return the microseconds of each, and the CPU time."""
    guard = opened(store)
    questions = [Question(origin=key, target="/private/x", agent="examplebot") for key in keys]
    spent, started = [], time.process_time_ns()
    for question in questions:
        began = time.perf_counter_ns()
        decision = guard.peek(question) or await guard.check(question)
        spent.append((time.perf_counter_ns() - began) / 1000)
        assert decision.source == "store", decision
    cpu = time.process_time_ns() - started
    guard._runtime.close()  # noqa: SLF001  (the store stays open)
    return spent, cpu


def sqlite_verdicts(directory: Path, bodies: list[bytes], rounds: int) -> None:
    path = directory / "verdicts.sqlite"
    store = open_store(f"sqlite:///{path}")
    assert store is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:

        def column(query: str, key: str | bytes) -> bytes:
            found: bytes = connection.execute(query, (key,)).fetchone()[0]
            return found

        def digest(key: Origin) -> bytes:
            value = column("SELECT value FROM policies WHERE origin = ?", str(key))
            stored = codec.decode(value, key)
            assert stored is not None
            return bytes.fromhex(codec.body_digest(stored))

        origins = filled(store, bodies)
        digests = {key: digest(key) for key in origins}  # decoding is no part of a bare read

        def read(key: Origin) -> None:
            column("SELECT value FROM policies WHERE origin = ?", str(key))
            zlib.decompress(column("SELECT body FROM documents WHERE sha256 = ?", digests[key]))

        verdicts(store, "SQLite", origins, read, rounds)
    store.close()


def redis_verdicts(url: str, bodies: list[bytes], rounds: int) -> None:
    import redis

    store = open_store(url)
    assert store is not None
    with closing(redis.Redis.from_url(url)) as client:

        def read(key: Origin) -> None:
            assert client.get(f"rg:{{{key}}}:policy")

        verdicts(store, "Redis", filled(store, bodies), read, rounds)
    store.close()


def memory(bodies: list[bytes]) -> None:
    store = MemoryStore()
    policies = [
        policy(number, body) for number, body in zip(range(10_000), cycle(bodies), strict=False)
    ]
    for stored in policies:
        store.put(stored, NOW)
    keys = [stored.origin for stored in policies] * 20
    began = time.perf_counter()
    for key in keys:
        store.get(key)
    print(f"{'L1 hit':44}{(time.perf_counter() - began) / len(keys) * 1e6:10.2f} us mean")


# -- a million origins -----------------------------------------------------------------------------


def million(count: int, bodies: list[bytes], directory: Path, *, distinct: bool) -> None:
    """Fill a file with `count` origins, read them at random, and print the cost."""
    path = directory / f"million-{distinct}.sqlite"
    store = open_store(f"sqlite:///{path}")
    assert store is not None
    near = MemoryStore()
    began = time.perf_counter()
    for number, body in zip(range(count), cycle(bodies), strict=False):
        stored = policy(number, b"# %d\n" % number + body if distinct else body)
        store.put(stored, NOW)
        near.put(stored, NOW)
    filling = time.perf_counter() - began
    chance = random.Random(2)
    show(
        "SQLite: get, at random among them",
        timed(store.get, [origin(chance.randrange(count)) for _ in range(20_000)]),
    )
    listed = sum(1 for _ in store.origins())
    store.close()
    size = path.stat().st_size
    packed = statistics.fmean(len(codec.pack(body)) for body in bodies)
    kind = "each with a body of its own" if distinct else f"{len(set(bodies))} bodies among them"
    print(
        f"{count} origins, {kind} (packed: {packed:.0f} bytes): {size / count:.0f} bytes per origin (goal 600),"
        f" {count / filling:.0f} puts/s, {listed} listed, RSS at most {rss():.0f} MiB (goal 256)"
    )


def rss() -> float:
    """Return the peak resident memory so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# -- concurrent processes --------------------------------------------------------------------------


def mixed(url: str, seed: int, seconds: float, bodies: list[bytes], results: Any) -> None:
    """Make 90 lookups per 10 puts for the given time."""
    chance = random.Random(seed)
    store = open_store(url)
    assert store is not None
    policies = [
        policy(number, body, NOW + seed)
        for number, body in zip(range(5000), cycle(bodies), strict=False)
    ]
    done, errors, puts = 0, 0, []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        stored = chance.choice(policies)
        try:
            if chance.random() < 0.1:
                puts += timed(lambda stored: store.put(stored, NOW), [stored])
            else:
                store.get(stored.origin)
        except StoreError:
            errors += 1
        done += 1
    store.close()
    results.put((done, errors, puts))


def together(url: str, processes: int, seconds: float, bodies: list[bytes]) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=mixed, args=(url, seed, seconds, bodies, results))
        for seed in range(processes)
    ]
    for worker in workers:
        worker.start()
    answers = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    done, errors = sum(answer[0] for answer in answers), sum(answer[1] for answer in answers)
    name = f"{processes} processes, 90 gets to 10 puts"
    show(f"{name}: put", [spent for answer in answers for spent in answer[2]], "goal p99 20 ms")
    print(f"{name}: {done / seconds:.0f} operations/s, {errors} errors (goal 10000, 0)")


def places(directory: Path, redis: str | None) -> Iterator[tuple[str, str]]:
    yield "SQLite", f"sqlite:///{directory / 'policies.sqlite'}"
    if redis:
        yield "Redis", redis


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__ or "")
    parser.add_argument(
        "--redis", help="a server to fill and measure, such as redis://127.0.0.1:6379/0"
    )
    parser.add_argument(
        "--origins", type=int, default=100_000, help="number of origins in the large file"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of concurrent processes"
    )
    parser.add_argument("--only", choices=("verdicts",), help="measure this alone")
    parser.add_argument("--rounds", type=positive, default=20, help="rounds of verdicts")
    options = parser.parse_args()
    corpus = files(options.corpus, 900, options.seed)
    small, mixture = (
        corpus["small"],
        [body for name, share in SHARES.items() for body in corpus[name][:share]],
    )
    random.Random(options.seed).shuffle(mixture)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        sqlite_verdicts(directory, small, options.rounds)
        if options.redis:
            redis_verdicts(options.redis, small, options.rounds)
        if options.only:
            return
        for distinct in (False, True):
            million(options.origins, mixture, directory, distinct=distinct)
        memory(small)
        for name, url in places(directory, options.redis):
            store = open_store(url)
            assert store is not None
            lookups(store, name, small)
            store.close()
            together(url, 2, options.seconds, small)


if __name__ == "__main__":
    main()
