"""Processes that share a real redis-server and lose it: together they send no more requests than
before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise

import pytest
from support.stores import start_redis
from support.waiting import eventually

from robots_guard.decisions.pacing import MAX_TURN_AGE

COUNT, DELAY = 4, 0.5
AWAY = 5 * COUNT * DELAY  # seconds

CRAWL = """
import asyncio, secrets, sys, time
from robots_guard.decisions.pacing import Wait
from robots_guard.guard.calls import STORE_WIDTH, Calls
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.counters import Counters
from robots_guard.guard.turns import Turns

async def crawl(url, delay):
    clocks = Clocks(now=time.time, monotonic=time.monotonic)
    outside = {"runtime": AsyncioRuntime(), "clocks": clocks, "counters": Counters(clocks)}
    calls = Calls("the policy store", STORE_WIDTH, kind="store/error", **outside)
    turns = Turns(near=MemoryStore(), far=open_store(url), name=secrets.token_hex(8), calls=calls, **outside)
    while True:
        turn = await turns.take_within(0, origin_of("https://a.test"), delay)
        if isinstance(turn, Wait):
            await asyncio.sleep(turn.seconds)
        else:
            print(repr(time.time()), flush=True)

asyncio.run(crawl(sys.argv[1], float(sys.argv[2])))
"""


@pytest.mark.parametrize("by", [signal.SIGSTOP, signal.SIGKILL])
def test_processes_without_their_store_keep_the_delay_together(tmp_path, by):
    server = start_redis(tmp_path)
    outputs = [tmp_path / f"{number}.out" for number in range(COUNT)]
    with ExitStack() as ends:
        ends.callback(_end, server.process)
        for output in outputs:
            log = ends.enter_context(output.open("w"))
            command = [sys.executable, "-c", CRAWL, f"{server.url}?timeout=2", str(DELAY)]
            crawler = subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL)
            ends.callback(_end, crawler)
        eventually(lambda: all(len(_moments(output)) >= 3 for output in outputs))
        gone = time.time()
        os.kill(server.process.pid, by)
        time.sleep(AWAY)
        ended = time.time()
    sent = [[at for at in _moments(output) if at <= ended] for output in outputs]

    for each in sent:
        gaps = [later - earlier for earlier, later in pairwise(each) if earlier > gone + DELAY]
        assert gaps, "each process goes on"
        assert min(gaps) > COUNT * DELAY - MAX_TURN_AGE
    assert sum(at > gone for each in sent for at in each) <= (ended - gone) / DELAY + COUNT
    together = sorted(at for each in sent for at in each if at > gone)
    gaps = sorted(later - earlier for earlier, later in pairwise(together))
    # A stall of this machine moves single requests together, but not the rest.
    median = gaps[len(gaps) // 2]
    assert median > DELAY / 2, "each process has its own slot"


def _moments(output) -> list[float]:
    return [float(line) for line in output.read_text().split("\n")[:-1]]


def _end(process) -> None:
    process.kill()
    process.wait()
