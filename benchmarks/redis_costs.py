"""What an origin costs a Redis server: memory of its policy, document and turn, and the server's CPU
time for each operation.

    python benchmarks/redis_costs.py [--corpus FILE] [--origins 5000] [--rounds 5]

Uses a private redis-server, and one client. CPU time is the server's own (INFO), so that the client
and other programs do not count; medians of the rounds with the smallest and the largest. The files
are mixed as in the wild; `copies` says how many of them are copied into their policies, by the most
bytes that a copy may have.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from corpus import arguments, files
from fleet import redis as redis_server
from redis import Redis
from stores import SHARES, origin, policy

from robots_guard.decisions import codec
from robots_guard.guard.stores import redis as redis_store
from robots_guard.guard.stores.servers import open_redis
from robots_guard.origin import Origin

NOW = 1_800_000_000.0
LIMITS = (256, 512, 1024, 2048, 4096, 8192)


def copies(corpus: Mapping[str, Sequence[bytes]]) -> None:
    """Print how many documents are short enough for a copy, and what the copies take."""
    packed = {name: [len(codec.pack(body)) for body in corpus[name]] for name in SHARES}

    def mean(value: Callable[[int], float]) -> float:
        """Return a mean over all files, with the classes as frequent as in the wild."""
        return sum(
            share / 1000 * statistics.mean(value(size) for size in packed[name])
            for name, share in SHARES.items()
        )

    print(f"documents: {mean(float):.0f} bytes each when compressed, all different")
    for limit in LIMITS:
        share = mean(lambda size, limit=limit: float(size <= limit))
        bytes_ = mean(lambda size, limit=limit: size * 4 / 3 * (size <= limit))
        print(
            f"copies of at most {limit:5} bytes: {share:6.1%} of documents, {bytes_:4.0f} bytes a policy"
        )


def memory(client: Any, corpus: Mapping[str, Sequence[bytes]], count: int) -> None:
    """Print the bytes of each kind of key, from the growth of the server's memory."""
    store = redis_store.RedisStore(client)
    mixture = [
        body for name, share in SHARES.items() for body in islice(cycle(corpus[name]), share)
    ]
    random.Random(1).shuffle(mixture)
    bodies = [
        b"# %d\n" % number + body
        for number, body in zip(range(count), cycle(mixture), strict=False)
    ]
    packed = [codec.pack(body) for body in bodies]
    client.flushall()
    documents = _growth(
        client,
        lambda: _each(
            enumerate(packed),
            lambda one: client.set(
                f"rg:document:{one[0]:064x}", one[1], px=redis_store.DOCUMENT_LIFE
            ),
        ),
    )
    policies = [policy(number, body) for number, body in enumerate(bodies)]
    client.flushall()
    both = _growth(client, lambda: _each(policies, lambda one: store.put(one, NOW)))
    turns = _growth(
        client,
        lambda: _each(policies, lambda one: store.reserve(one.origin, 1.0, lambda: NOW, "a" * 16)),
    )
    for name, grown in (
        ("a policy with its copy, if it has one", both - documents),
        ("a document, each different", documents),
        ("a turn, with one process in the line", turns),
    ):
        print(f"{name:40}{grown / count:7.0f} bytes")


def _each(items: Iterable[Any], work: Callable[[Any], object]) -> None:
    for item in items:
        work(item)


def _growth(client: Any, work: Callable[[], None]) -> int:
    before = client.info("memory")["used_memory"]
    work()
    return int(client.info("memory")["used_memory"] - before)


def costs(client: Any, url: str, small: Sequence[bytes], count: int, rounds: int) -> None:
    """Print the server's CPU time of each operation."""
    store = open_redis(url)
    policies = [
        policy(number, body) for number, body in zip(range(count), cycle(small), strict=False)
    ]
    origins = [each.origin for each in policies]
    unknown = [origin(count + number) for number in range(count)]
    client.flushall()
    _each(policies, lambda one: store.put(one, NOW))
    operations: dict[str, Callable[[Origin], object]] = {
        "look up a policy": store.get,
        "take a turn (reserve)": lambda one: store.reserve(one, 0.0, lambda: NOW, "a" * 16),
        "ask for a turn that is not due": lambda one: store.reserve(
            one, 3600.0, lambda: NOW, "b" * 16
        ),
        "move a turn (move_turn)": lambda one: store.move_turn(one, 1.0, 0.1),
        "take a lease and look": lambda one: store.take_and_get(one, "a" * 16, NOW, 35.0),
        "release a lease": lambda one: store.release(one, "a" * 16),
    }
    spent: dict[str, list[float]] = {name: [] for name in ("look for none", *operations, "put")}
    for _ in range(rounds):
        spent["look for none"].append(_cpu(client, unknown, store.get))
        for name, work in operations.items():
            spent[name].append(_cpu(client, origins, work))
        spent["put"].append(_cpu(client, policies, lambda one: store.put(one, NOW)))
    store.close()
    for name, found in spent.items():
        middle = statistics.median(found)
        print(
            f"{name:40}{middle:7.1f} us of the server ({min(found):.1f} to {max(found):.1f}),"
            f" {1e6 / middle:7.0f}/s on one core"
        )


def _cpu(client: Any, items: Sequence[Any], work: Callable[[Any], object]) -> float:
    """Return the microseconds of CPU that the server spends on each item."""
    before = _used(client)
    _each(items, work)
    return (_used(client) - before) / len(items) * 1e6


def _used(client: Any) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--origins", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    corpus = files(options.corpus, 900, options.seed)
    copies(corpus)
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as url:
        client = Redis(port=int(url.rpartition(":")[2]))
        memory(client, corpus, options.origins)
        costs(client, f"{url}/1", corpus["small"], options.origins, options.rounds)


if __name__ == "__main__":
    main()
