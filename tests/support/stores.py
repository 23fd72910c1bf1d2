"""Policies to put, and a Redis server of our own to put them in."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fakeredis
import redis

from robots_guard.core.access import Fetched
from robots_guard.core.policy import Policy
from robots_guard.core.renewal import begin
from robots_guard.origin import origin_of
from robots_guard.stores.memory import MemoryStore
from robots_guard.stores.redis import RedisStore
from robots_guard.stores.sqlite import SqliteStore
from support.programs import program

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


def in_a_fork(work: Callable[[], bool]) -> bool:
    """Whether the work was done, and true, in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads: we mean it
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SHARED = ["sqlite", "fakeredis", "redis", "redis with MACs"]


def make(kind: str, request: Any, tmp_path: Path) -> Any:
    """A store of a kind, empty."""
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return SqliteStore(tmp_path / "policies.sqlite")
    if kind == "fakeredis":
        return RedisStore(fakeredis.FakeRedis())
    client = request.getfixturevalue("empty_redis").client()
    return RedisStore(client, key=KEY if kind == "redis with MACs" else None)
