"""What guards that share a cluster or a primary keep to while a server is lost, or slots move.

The guards crawl origins on all nodes without a break, each with its own connections. Promises: a
forbidden request never passes. If an origin's node is not affected, its robots.txt is fetched once,
and no gap is shorter than the delay; except by how long after its turn the earlier request was sent,
if the store had not been told of that when it granted the next turn (docs/pacing.md, "When a turn is
valid"). If its node is affected, the gap may be shorter by the window of a slot, and
once by more, for a turn that was lost (docs/pacing.md; docs/stores.md, "When a primary is lost").
An origin that none knew before is fetched and paced by each guard for itself until the store is
back. `pytest -s` prints what was measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import NamedTuple

import pytest
from support.guards import make_guard
from support.programs import program
from support.stores import Cluster, Watched, start_cluster

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.pacing import window
from robots_guard.decisions.verdict import Action, Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores import open_store
from robots_guard.origin import Origin, origin_of

# These tests ask the private `_client` where a key is, and a guard for its private store.

pytestmark = pytest.mark.timing

GUARDS = 3
DELAY = 1.0  # seconds
#: Gaps that are short: with a store, and in slots without one.
SHORT, SHORT_IN_SLOTS = DELAY * 0.99, (DELAY - window(DELAY)) * 0.99
BEFORE, MOST = 5.0, 60.0  # seconds of crawling: until the loss, and after it at most
ROBOTS = f"User-agent: *\nCrawl-delay: {DELAY}\nDisallow: /private/\n".encode()
WARM = [origin_of(f"https://warm{number}.test") for number in range(9)]
#: Of these the first policy is needed while the server is away.
COLD = [origin_of(f"https://cold{number}.test") for number in range(9)]


class Sent(NamedTuple):
    """A request: by which guard, and when its turn was granted, it was sent, and the store knew of that."""

    guard: int
    granted: float
    at: float
    known: float

    def gap(self, later: Sent) -> float:
        """The seconds to the next request. Those by which this one was late count as well, if the
        store did not know of them when it granted the turn of the next."""
        is_known = self.known <= later.granted
        return later.at - (self.at if is_known else self.granted)


class Crawl:
    """Guards in one process, with a store each, and what their requests were."""

    def __init__(self, url: str, timeout: float = 1.0) -> None:
        fetched = Fetched(status=200, body=ROBOTS, tls_verified=True)
        self.fetcher = ScriptedFetcher({each.robots_url: fetched for each in WARM + COLD})
        self.guards = [
            make_guard(self.fetcher, store=open_store(f"{url}?timeout={timeout}"))
            for _ in range(GUARDS)
        ]
        self.sent: dict[Origin, list[Sent]] = {}
        self.forbidden: Counter[Action] = Counter()
        self.origins = list(WARM)
        self.is_over = False

    async def run(self, loss: Callable[[Crawl], Awaitable[None]]) -> None:
        crawling = asyncio.gather(*(self._crawl(guard) for guard in self.guards))
        await asyncio.sleep(BEFORE)
        try:
            await asyncio.wait_for(loss(self), MOST)
        finally:
            self.is_over = True
        await crawling
        for guard in self.guards:
            guard.close()

    async def _crawl(self, guard) -> None:
        await asyncio.gather(*(self._visit(guard, each) for each in range(len(WARM + COLD))))

    async def _visit(self, guard, number: int) -> None:
        """Request one origin's pages as fast as the guard lets, and a forbidden one with each."""
        while not self.is_over:
            if number >= len(self.origins):
                await asyncio.sleep(0.05)
                continue
            origin = self.origins[number]
            forbidden = await guard.check(question(origin, "/private/x"))
            self.forbidden[forbidden.verdict.action] += 1
            decision = await guard.check(question(origin, "/page"))
            taken = await guard.turn(decision)
            decision = guard.mark_sent(taken)
            if decision.is_due:
                at = time.time()
                await guard.mark_response_started(decision)
                sent = Sent(id(guard), taken.turn_taken_at, at, known=time.time())
                self.sent.setdefault(origin, []).append(sent)
            await asyncio.sleep(0.05)

    async def until_shared(self, origins: list[Origin], since: float) -> float:
        """Wait until the store works again for these origins; return the seconds that took."""
        store = self.guards[0]._cache._store
        while True:
            with contextlib.suppress(Exception):
                for origin in origins:
                    await asyncio.to_thread(store.get, origin)
                return time.monotonic() - since
            await asyncio.sleep(0.1)

    def report(self, name: str, affected: list[Origin], away: float) -> None:
        """Print the smallest gaps of the origins, the fetches, and the forbidden requests."""
        print(f"\n{name}: {away:.1f} s without a store for {len(affected)} of {len(WARM + COLD)}")
        for known, origins in (("known", WARM), ("met meanwhile", COLD)):
            for which in (False, True):
                chosen = [each for each in origins if (each in affected) == which]
                gaps = sorted(gap for each in chosen for gap in gaps_of(self.sent[each]))
                fetches = [self.fetcher.counts[each.robots_url] for each in chosen]
                print(
                    f"  {known}, {'affected' if which else 'not affected'}: {len(gaps)} gaps,"
                    f" {sum(gap < SHORT for gap in gaps)} below {SHORT:.2f} s, the smallest"
                    f" {' '.join(f'{gap:.3f}' for gap in gaps[:5])}; fetches of each: {fetches}"
                )
        print(f"  forbidden requests: { {str(k): n for k, n in self.forbidden.items()} }")


def gaps_of(requests: list[Sent]) -> list[float]:
    """Return the seconds between requests."""
    in_order = sorted(requests, key=lambda each: each.at)
    return [early.gap(late) for early, late in pairwise(in_order)]


def question(origin: Origin, target: str) -> Question:
    return Question(origin=origin, target=target, agent="mybot")


def judge(crawl: Crawl, affected: list[Origin]) -> None:
    assert crawl.forbidden[Action.PASS] == 0
    assert crawl.forbidden[Action.DROP] > 100
    for origin in WARM + COLD:
        fetches, gaps = crawl.fetcher.counts[origin.robots_url], gaps_of(crawl.sent[origin])
        assert len(gaps) > 3
        if origin not in affected:
            assert fetches == 1
            assert min(gaps) >= SHORT
        elif origin in WARM:
            assert fetches == 1
            assert sum(gap < SHORT_IN_SLOTS for gap in gaps) <= 1
        else:
            assert 1 <= fetches <= GUARDS
            for guard in map(id, crawl.guards):
                of_guard = gaps_of([sent for sent in crawl.sent[origin] if sent.guard == guard])
                assert min(of_guard, default=DELAY) >= SHORT_IN_SLOTS


def on_node(cluster: Cluster, origins: list[Origin]) -> dict[Origin, int]:
    """Return the port of the node of each origin."""
    store = open_store(cluster.url)
    store.get(origins[0])
    ports = {
        each: store._client.get_node_from_key(store._policy_key(each)).port for each in origins
    }
    store.close()
    return ports


async def settle() -> None:
    """Let the guards go on after the loss, until each has found the store again."""
    await asyncio.sleep(3.0)


async def test_a_killed_master_is_replaced_by_its_replica(tmp_path):
    cluster = start_cluster(tmp_path, replicas=1)
    homes = on_node(cluster, WARM + COLD)
    lost = homes[WARM[0]]
    affected = [origin for origin, port in homes.items() if port == lost]
    crawl, away = Crawl(cluster.url), 0.0

    async def kill(crawl):
        nonlocal away
        victim = next(node for node in cluster.nodes if node.port == lost)
        victim.process.send_signal(signal.SIGKILL)
        since = time.monotonic()
        crawl.origins += COLD
        away = await crawl.until_shared(affected, since)
        await settle()

    try:
        await crawl.run(kill)
    finally:
        cluster.stop()
    crawl.report("a master killed", affected, away)
    judge(crawl, affected)
    assert len(affected) < len(homes)


async def test_slots_that_move_cost_nothing(tmp_path):
    cluster = start_cluster(tmp_path)
    homes = on_node(cluster, WARM + COLD)
    nodes = {node.port: node for node in cluster.nodes}
    source = homes[WARM[0]]
    target = next(port for port in nodes if port != source)
    crawl = Crawl(cluster.url, timeout=4.0)  # a server that gets no CPU time is not lost

    async def move(crawl):
        with nodes[source].client() as client:
            source_id = client.cluster("MYID").decode()
        with nodes[target].client() as client:
            target_id = client.cluster("MYID").decode()
        crawl.origins += COLD
        rebalance = [
            *(program("redis-cli"), "--cluster", "reshard", f"127.0.0.1:{source}"),
            *("--cluster-from", source_id, "--cluster-to", target_id),
            *("--cluster-slots", "4000", "--cluster-yes"),
        ]
        moving = await asyncio.create_subprocess_exec(*rebalance, stdout=asyncio.subprocess.DEVNULL)
        assert await moving.wait() == 0
        await settle()

    try:
        await crawl.run(move)
        after = on_node(cluster, WARM + COLD)
    finally:
        cluster.stop()
    moved = [origin for origin in homes if homes[origin] != after[origin]]
    crawl.report(f"4000 slots moved, with {len(moved)} origins", [], 0.0)
    assert sum(guard.counts["store/error"] for guard in crawl.guards) == 0
    judge(crawl, [])
    assert moved


async def test_sentinels_replace_a_killed_primary(tmp_path):
    watched = Watched(tmp_path)
    crawl, away = Crawl(watched.url), 0.0

    async def kill(crawl):
        nonlocal away
        watched.primary.process.send_signal(signal.SIGKILL)
        since = time.monotonic()
        crawl.origins += COLD
        away = await crawl.until_shared(WARM, since)
        await settle()

    try:
        await crawl.run(kill)
    finally:
        watched.stop()
    crawl.report("a primary killed, with Sentinels", WARM + COLD, away)
    judge(crawl, WARM + COLD)
