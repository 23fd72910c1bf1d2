"""How often a process waits for a real server: what a benchmark's delay is multiplied by."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.guards import make_guard
from support.stores import LONG, MEDIUM, A, B, policy, put

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.verdict import Action, Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores import open_store
from robots_guard.ports import Clocks

#: A mark in the list of the server's commands.
MARK = b"PING mark"


class Commands:
    """The commands that a server has received from its clients, without those of its scripts."""

    def __init__(self, server) -> None:
        self._client = server.client()
        self._monitor = server.client().monitor()

    def __enter__(self):
        self._monitor.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._monitor.__exit__(*error)
        self._client.close()

    def so_far(self) -> list[str]:
        """Return the names of those that a store has sent since the last call."""
        self._client.execute_command("PING", "mark")
        found = []
        while (command := self._monitor.next_command())["command"] != MARK.decode():
            name = command["command"].split(" ")[0].upper()
            if command["client_type"] != "lua" and name not in ("CLIENT", "HELLO", "SELECT"):
                found.append(name)
        return found


@pytest.fixture
def commands(redis_server) -> Iterator[Commands]:
    store = open_store(redis_server.url)  # the server knows the scripts of the others from here on
    put(store, policy(B))
    store.take_and_get(B, "one", 1.0, 35.0)
    store.release(B, "one")
    store.reserve(B, 1.0, lambda: 1.0)
    store.close()
    with Commands(redis_server) as made:
        yield made


async def test_a_cold_origin_costs_two_round_trips_before_its_fetch(redis_server, commands):
    store = open_store(redis_server.url)
    before = []

    def fetch(_):
        before.extend(commands.so_far())
        return Fetched(status=200, body=b"User-agent: *\nDisallow: /x\n", tls_verified=True)

    guard = make_guard(ScriptedFetcher({f"{A}/robots.txt": fetch}), store=store)
    commands.so_far()
    decision = await guard.check(Question(origin=A, target="/y", agent="mybot"))
    after = commands.so_far()
    guard.close()

    assert decision.verdict.action is Action.PASS
    assert before == ["GETRANGE", "EVALSHA"]  # look; take the lease and look again
    assert after == ["SET", "EVALSHA", "EVALSHA"]  # the first two in one round trip; the release


async def test_a_policy_of_another_process_costs_one_round_trip(redis_server, commands):
    store = open_store(redis_server.url)
    put(store, policy(body=MEDIUM))
    clocks = Clocks(now=lambda: 1000.0, monotonic=time.monotonic)
    guard = make_guard(ScriptedFetcher(), store=store, clocks=clocks)
    commands.so_far()
    await guard.check(Question(origin=A, target="/y", agent="mybot"))
    guard.close()

    assert commands.so_far() == ["GETRANGE"]


def test_only_a_document_that_is_too_long_for_a_copy_costs_a_second_one(redis_server, commands):
    store = open_store(redis_server.url)
    put(store, policy(body=LONG))
    commands.so_far()
    assert store.get(A) == policy(body=LONG)
    assert commands.so_far() == ["GETRANGE", "GETRANGE"]
    assert store.take_and_get(A, "one", 1.0, 35.0).policy == policy(body=LONG)
    assert commands.so_far() == ["EVALSHA", "GETRANGE"]
    store.close()
