"""What all tests share: a clock that stands still until it is moved, origins on loopback, a Redis server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stores import Cluster, Redis, start_cluster, start_redis

from robots_guard.testing import Loopback


class Clock:
    """A settable clock, for both wall and monotonic time."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def net() -> Iterator[Loopback]:
    with Loopback() as network:
        yield network


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A real redis-server."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.terminate()
    server.process.wait(10)


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Redis Cluster of three nodes."""
    cluster = start_cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """To ask for the timed tests among some that have none is no failure: tox asks for them apart."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.markexpr.startswith("timing"):
        session.exitstatus = pytest.ExitCode.OK
