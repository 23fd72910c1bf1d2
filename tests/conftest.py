"""Fixtures for all tests: a settable clock, origins on loopback, a Redis server and a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
from support.guards import make_guard
from support.stores import Cluster, Redis, start_cluster, start_redis

from robots_guard.guard.guard import Guard
from robots_guard.testing import Loopback

TIMED = Path(__file__).parent / "integrations"  # tox collects timing tests only there

# A deadline is wall-clock time, which a loaded machine exceeds.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


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
def build_guard() -> Iterator[Callable[..., Guard]]:
    """`make_guard`, whose guards are closed after the test."""
    with ExitStack() as ends:

        def build(*args, **options) -> Guard:
            guard = make_guard(*args, **options)
            ends.callback(guard.close)
            return guard

        yield build


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
    server.process.wait(60)


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Redis Cluster of three nodes."""
    cluster = start_cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def pytest_configure() -> None:
    """Keep the configuration files of this machine out of the tests, and restore the handling of
    SIGINT, which a shell disables for background processes."""
    os.environ["ROBOTS_GUARD_CONFIG"] = ""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a module fixture in one worker, so that the fixture is created only
    once.
    """
    for item in items:
        _check_place(item)
        shared = _shared_fixtures(item) if isinstance(item, pytest.Function) else []
        if shared and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("-".join([item.module.__name__, *shared])))


def _check_place(item: pytest.Item) -> None:
    """Refuse a timing test where tox does not look for it."""
    if item.get_closest_marker("timing") and not item.path.is_relative_to(TIMED):
        raise pytest.UsageError(f"{item.nodeid}: put tests marked `timing` into {TIMED}")


def _shared_fixtures(item: pytest.Function) -> list[str]:
    """Return the names of the module fixtures that a test uses, with the index of their parameter,
    if any.
    """
    numbers = item.callspec.indices if hasattr(item, "callspec") else {}
    return sorted(
        f"{name}{numbers.get(name, '')}"
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()
        if definitions[-1].scope == "module" and definitions[-1].baseid.startswith("tests")
    )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Selecting the timing tests (`-m timing`) where there are none is no failure: tox runs them
    separately.
    """
    if (
        exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        and session.config.option.markexpr.startswith("timing")
    ):
        session.exitstatus = pytest.ExitCode.OK
