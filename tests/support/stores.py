"""Policies, stores of every kind, and private servers, clusters and Sentinels of Redis and Valkey."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fakeredis
import redis

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.renewal import begin
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.redis import RedisStore
from robots_guard.guard.stores.servers import open_redis
from robots_guard.guard.stores.sqlite import LeaseThenPolicy, SqliteStore
from robots_guard.origin import Origin, origin_of
from support.programs import program
from support.waiting import eventually

A = origin_of("https://a.test")
B = origin_of("https://b.test")
KEY = b"sixteen bytes or more"
REDIS, VALKEY = "redis-server", "valkey-server"
SERVERS = (REDIS, VALKEY)  # programs that a RedisStore works with
PORTS = range(10_000, 22_000)  # with 10,000 more, below Linux's ip_local_port_range


def _unpackable(lines: int) -> bytes:
    """Return a robots.txt that cannot be packed well: to 40 bytes a line."""
    rules = (hashlib.sha256(b"%d" % number).hexdigest().encode() for number in range(lines))
    return b"User-agent: *\n" + b"".join(b"Disallow: /%s\n" % rule for rule in rules)


#: A robots.txt that Redis copies into its policies, as it does all but the longest.
MEDIUM = _unpackable(40)
#: A robots.txt of which Redis keeps no copy in the policies.
LONG = _unpackable(80)


def policy(origin=A, at=1000.0, body=b"User-agent: *\nDisallow: /x\n") -> Policy:
    return (
        begin(origin, None, "direct")
        .next(Fetched(status=200, body=body, tls_verified=True), at)
        .policy
    )


def put(store, stored: Policy, now: float | None = None) -> None:
    store.put(stored, stored.settled_at if now is None else now)


class LeasingStore(LeaseThenPolicy, MemoryStore):
    """A memory store that also grants leases, as every store that processes share does."""

    is_local = True

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[Origin, str] = {}

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        return self.leases.setdefault(origin, token) == token

    def release(self, origin: Origin, token: str) -> None:
        if self.leases.get(origin) == token:
            del self.leases[origin]


@dataclass
class Redis:
    """A private server and its process."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Any:
        return redis.Redis(port=self.port)


def free_port() -> int:
    """Return a free port whose cluster bus port, 10,000 above it, is also free.

    The system gives neither of them to a connection or to another test before a server has it.
    """
    while True:
        port = secrets.choice(PORTS)
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 10_000)),
        ):
            return port


def start_redis(directory, port: int = 0, *options: str, server: str = REDIS) -> Redis:
    """Start a server on `port` or a free port, and wait until it answers."""
    port = port or free_port()
    arguments = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        directory,
    ]
    command = [program(server), *arguments, *options]
    return _wait_ready(Redis(port, subprocess.Popen(command, stdout=subprocess.DEVNULL)))


def start_sentinel(
    directory: Path, primary: Redis, service: str, *lines: str, server: str = REDIS
) -> Redis:
    """Start a Sentinel that monitors a primary and can fail over by itself (quorum 1)."""
    port, file = free_port(), directory / f"sentinel-{primary.port}.conf"
    watched = f"sentinel monitor {service} 127.0.0.1 {primary.port} 1"
    times = (
        f"sentinel down-after-milliseconds {service} 500",
        f"sentinel failover-timeout {service} 3000",
    )
    file.write_text(
        "\n".join((f"port {port}", "bind 127.0.0.1", f"dir {directory}", watched, *times, *lines))
        + "\n"
    )
    arguments = [program(server), str(file), "--sentinel"]
    return _wait_ready(Redis(port, subprocess.Popen(arguments, stdout=subprocess.DEVNULL)))


def _wait_ready(started: Redis) -> Redis:
    with started.client() as client:
        eventually(lambda: _is_ready(client, started.process), despite=redis.ConnectionError)
    return started


def _is_ready(client: Any, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the server did not start"
    with contextlib.suppress(redis.AuthenticationError):
        client.ping()
    return True


@dataclass
class Cluster:
    """The nodes of a cluster."""

    nodes: list[Redis]

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/"

    def client(self) -> Any:
        nodes = [redis.cluster.ClusterNode("127.0.0.1", node.port) for node in self.nodes]
        return redis.RedisCluster(startup_nodes=nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.process.kill()
            node.process.wait(60)


CLUSTERED = (
    *("--cluster-enabled", "yes"),
    *("--cluster-node-timeout", "2000"),
    *("--cluster-require-full-coverage", "no"),
    *("--repl-diskless-sync-delay", "0"),
)


def start_cluster(directory: Path, replicas: int = 0, server: str = REDIS) -> Cluster:
    """Start three nodes with `replicas` replicas each, and wait until the cluster is ready."""
    nodes = []
    for number in range(3 * (1 + replicas)):
        place = directory / str(number)
        place.mkdir()
        nodes.append(start_redis(place, 0, *CLUSTERED, server=server))
    addresses = [f"127.0.0.1:{node.port}" for node in nodes]
    create = (
        "--cluster",
        "create",
        *addresses,
        "--cluster-replicas",
        str(replicas),
        "--cluster-yes",
    )
    subprocess.run(
        [program("redis-cli"), *create], check=True, stdout=subprocess.DEVNULL, timeout=120
    )
    for node in nodes:
        with node.client() as client:
            eventually(lambda client=client: client.cluster("INFO")["cluster_state"] == "ok")
            # A replica that has never been in step is not promoted.
            eventually(lambda client=client: _is_in_step(client))
    return Cluster(nodes)


class Watched:
    """A primary, its replica, and a Sentinel that watches both."""

    def __init__(self, directory: Path, *lines: str, server: str = REDIS) -> None:
        self.primary = start_redis(directory, server=server)
        replicates = ("--replicaof", "127.0.0.1", str(self.primary.port))
        self.replica = start_redis(directory, 0, *replicates, server=server)
        with self.replica.client() as client:
            eventually(lambda: client.info("replication")["master_link_status"] == "up")
        self.sentinel = start_sentinel(directory, self.primary, "policies", *lines, server=server)
        with self.sentinel.client() as client:
            eventually(lambda: lines or client.sentinel_master("policies")["num-slaves"])

    @property
    def url(self) -> str:
        """The first Sentinel is none that is there."""
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.sentinel.port}/policies/0"

    def stop(self) -> None:
        for server in (self.sentinel, self.primary, self.replica):
            server.process.kill()
            server.process.wait(60)


def _is_in_step(client: Any) -> bool:
    state = client.info("replication")
    return state["role"] == "master" or state["master_link_status"] == "up"


def in_a_fork(work: Callable[[], bool]) -> bool:
    """Run a function in a forked child. Returns whether it returned true."""
    with warnings.catch_warnings():
        # Python 3.12 warns about forking with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Running:
    """Servers and clusters that tests share. Each is started when it is first needed.

    A server is returned empty: a turn that another test has reserved would keep this one waiting.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[str, Redis] = {}
        self._clusters: dict[str, Cluster] = {}

    def server(self, kind: str) -> Redis:
        """Return the server of a program, empty."""
        if kind not in self._servers:
            self._servers[kind] = start_redis(self._directory, server=kind)
        with self._servers[kind].client() as client:
            client.flushall()
        return self._servers[kind]

    def cluster(self, kind: str) -> Cluster:
        """Return the cluster of three nodes of a program, empty."""
        if kind not in self._clusters:
            directory = self._directory / kind
            directory.mkdir()
            self._clusters[kind] = start_cluster(directory, server=kind)
        with self._clusters[kind].client() as client:
            client.flushall(target_nodes=client.PRIMARIES)
        return self._clusters[kind]

    def stop(self) -> None:
        for cluster in self._clusters.values():
            cluster.stop()
        for server in self._servers.values():
            server.process.terminate()
            server.process.wait(60)


SHARED = [
    "sqlite",
    "fakeredis",
    "redis",
    "redis with MACs",
    "redis cluster",
    "valkey",
    "valkey cluster",
    "regions",
]


def make(kind: str, request: Any, tmp_path: Path) -> Any:
    """Return an empty store of a kind."""
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return SqliteStore(tmp_path / "policies.sqlite")
    if kind == "fakeredis":
        return RedisStore(fakeredis.FakeRedis())
    running = request.getfixturevalue("running")
    name = VALKEY if kind.startswith("valkey") else REDIS
    if kind.endswith("cluster"):
        return open_redis(running.cluster(name).url)
    server = running.server(name)
    if kind == "regions":
        return open_store(",".join(f"{name}={server.url[:-1]}{name[-1]}" for name in ("r1", "r2")))
    client = server.client()
    return RedisStore(client, key=KEY if kind == "redis with MACs" else None)
