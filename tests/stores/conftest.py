"""The stores under test, each as it is used, with a hand that reaches behind it."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fakeredis
import pytest
import redis
from support.programs import program

from robots_guard.core.access import Fetched
from robots_guard.core.policy import Policy
from robots_guard.core.renewal import begin
from robots_guard.holding import Holding
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks
from robots_guard.runtime import AsyncioRuntime
from robots_guard.stores.memory import MemoryStore
from robots_guard.stores.redis import RedisStore
from robots_guard.stores.sqlite import SqliteStore
from robots_guard.tally import Tally

A = origin_of("https://a.test")
B = origin_of("https://b.test")
KEY = b"sixteen octets or more"


def policy(origin=A, at=1000.0, body=b"User-agent: *\nDisallow: /x\n") -> Policy:
    return begin(origin, None, "direct").next(Fetched(status=200, body=body, tls_verified=True), at).policy


def put(store, held: Policy, now: float | None = None) -> None:
    store.put(held, held.settled_at if now is None else now)


@dataclass
class Redis:
    """A server of our own, with the process that runs it."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Any:
        return redis.Redis(port=self.port)


def start_redis(directory, port: int = 0) -> Redis:
    """A server on a free port, ready."""
    server = program("redis-server")
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory],
        stdout=subprocess.DEVNULL,
    )
    started = Redis(port, process)
    deadline = time.monotonic() + 20
    with started.client() as client:
        while True:
            try:
                client.ping()
                return started
            except redis.ConnectionError:
                assert process.poll() is None, "redis-server did not start"
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.terminate()
    server.process.wait(10)


@pytest.fixture
def empty_redis(redis_server):
    with redis_server.client() as client:
        client.flushall()
    return redis_server


class Tiered:
    """Memory in front of a store, as every guard holds them: the guard's own composition, asked as a store is."""

    def __init__(self, far) -> None:
        self.far = far
        self.near = MemoryStore()
        self.runtime = AsyncioRuntime()
        self.now = 0.0
        clocks = Clocks(now=lambda: self.now, monotonic=time.monotonic)
        self.holding = Holding(
            memory=self.near,
            store=far,
            runtime=self.runtime,
            clocks=clocks,
            tally=Tally(clocks),
            demands_verified=True,
        )

    def get(self, origin):
        return self.holding.near(origin) or asyncio.run(self.holding.far(origin))

    def put(self, held, now):
        self.now = now
        asyncio.run(self.holding.keep(held))

    def forget(self, origin):
        return self.near.forget(origin) | self.far.forget(origin)

    def origins(self):
        return self.far.origins()

    def close(self):
        self.holding.close()
        self.runtime.close()


def make(kind: str, request, tmp_path) -> Any:
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return SqliteStore(tmp_path / "policies.sqlite")
    if kind == "tiered":
        return Tiered(SqliteStore(tmp_path / "policies.sqlite"))
    if kind == "fakeredis":
        return RedisStore(fakeredis.FakeRedis())
    client = request.getfixturevalue("empty_redis").client()
    return RedisStore(client, key=KEY if kind == "redis with MACs" else None)


SHARED = ["sqlite", "fakeredis", "redis", "redis with MACs"]


@pytest.fixture(params=["memory", "tiered", *SHARED])
def store(request, tmp_path):
    made = make(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=SHARED)
def shared(request, tmp_path):
    made = make(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def behind(shared, tmp_path) -> Callable[[Any, bytes], None]:
    """Put bytes where the store keeps the policy of an origin."""

    def into_sqlite(origin, value: bytes) -> None:
        connection = sqlite3.connect(tmp_path / "policies.sqlite", isolation_level=None)
        connection.execute("INSERT OR REPLACE INTO policies VALUES (?, 1000.0, ?)", (str(origin), value))
        connection.close()

    def into_redis(origin, value: bytes) -> None:
        shared._client.set(f"rg:p:{origin}", b"1000.0\n" + value)

    return into_sqlite if isinstance(shared, SqliteStore) else into_redis


@pytest.fixture
def kept(shared, tmp_path) -> Callable[[Any], bytes]:
    """The bytes where the store keeps the policy of an origin."""

    def from_sqlite(origin) -> bytes:
        connection = sqlite3.connect(tmp_path / "policies.sqlite")
        try:
            return connection.execute("SELECT value FROM policies WHERE origin = ?", (str(origin),)).fetchone()[0]
        finally:
            connection.close()

    def from_redis(origin) -> bytes:
        return shared._client.get(f"rg:p:{origin}").partition(b"\n")[2]

    return from_sqlite if isinstance(shared, SqliteStore) else from_redis
