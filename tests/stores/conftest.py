"""The stores under test, with fixtures that read and write their raw values."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.stores import SERVERS, SHARED, make

from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.counters import Counters
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.regions import RegionalStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.ports import Clocks

# The private `_client` and `_policy_key` write what no store writes, and read its bytes.


@pytest.fixture(params=SERVERS)
def redis_server(running, request):
    """A real redis-server or valkey-server, empty."""
    return running.server(request.param)


@pytest.fixture(params=SERVERS)
def empty_cluster(running, request):
    """A real cluster of three nodes, empty."""
    return running.cluster(request.param)


class Tiered:
    """A memory store in front of a shared store, composed as in a guard, with the interface of a
    store.
    """

    def __init__(self, far) -> None:
        self.far = far
        self.near = MemoryStore()
        self.runtime = AsyncioRuntime()
        self.now = 0.0
        clocks = Clocks(now=lambda: self.now, monotonic=time.monotonic)
        counters = Counters(clocks)
        self.holding = PolicyCache(
            memory=self.near,
            store=far,
            calls=self,
            clocks=clocks,
            counters=counters,
            demands_verified=True,
            agent="mybot",
        )

    def get(self, origin):
        return self.holding.get_local(origin) or asyncio.run(self.holding.get_shared(origin))

    def put(self, policy, now):
        self.now = now
        asyncio.run(self.holding.put(policy))

    async def make(self, function, *args, **_):
        """Make a call to the store as `Calls` does, but from several event loops at once."""
        return await self.runtime.in_thread(function, *args)

    def forget(self, origin):
        return self.near.forget(origin) | self.far.forget(origin)

    def origins(self):
        return self.far.origins()

    def close(self):
        self.holding.close()
        self.runtime.close()


@pytest.fixture(params=["memory", "tiered", *SHARED])
def store(request, tmp_path):
    tiered = request.param == "tiered"
    made = make("sqlite" if tiered else request.param, request, tmp_path)
    made = Tiered(made) if tiered else made
    yield made
    made.close()


@pytest.fixture(params=SHARED)
def shared(request, tmp_path):
    made = make(request.param, request, tmp_path)
    yield made
    made.close()


def _home(store, origin):
    """Return the store that keeps the origin's policy."""
    return store._stores[store.home(origin)] if isinstance(store, RegionalStore) else store


@pytest.fixture
def write_raw(shared, tmp_path) -> Callable[[Any, bytes], None]:
    """A function that writes raw bytes where the store keeps the policy of an origin."""

    def into_sqlite(origin, value: bytes) -> None:
        connection = sqlite3.connect(tmp_path / "policies.sqlite", isolation_level=None)
        connection.execute(
            "INSERT OR REPLACE INTO policies VALUES (?, 1000.0, ?)", (str(origin), value)
        )
        connection.close()

    def into_redis(origin, value: bytes) -> None:
        home = _home(shared, origin)
        home._client.set(home._policy_key(origin), b"1000.0\n" + value)

    return into_sqlite if isinstance(shared, SqliteStore) else into_redis


@pytest.fixture
def read_raw(shared, tmp_path) -> Callable[[Any], bytes]:
    """A function that returns the raw bytes where the store keeps the policy of an origin."""

    def from_sqlite(origin) -> bytes:
        connection = sqlite3.connect(tmp_path / "policies.sqlite")
        try:
            return connection.execute(
                "SELECT value FROM policies WHERE origin = ?", (str(origin),)
            ).fetchone()[0]
        finally:
            connection.close()

    def from_redis(origin) -> bytes:
        home = _home(shared, origin)
        return home._client.get(home._policy_key(origin)).partition(b"\n")[2]

    return from_sqlite if isinstance(shared, SqliteStore) else from_redis
