"""Fixtures for all tests: a settable clock, origins on loopback, a Redis server and a cluster."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from support.guards import make_guard
from support.name_server import NameServer
from support.stores import REDIS, Redis, Running

from robots_guard.guard.guard import Guard
from robots_guard.testing import Loopback

TIMING = "timing"  # the group of all timing tests
WAITING = "tests/integrations/"  # for the programs that they drive
YIELDING = (
    19  # the niceness of workers that run other tests: another environment may run timing tests
)
IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ

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
def name_server(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    """Resolves the names of `.test` in this process."""
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    return server


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
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Servers and clusters of Redis and Valkey."""
    servers = Running(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.stop()


@pytest.fixture
def redis_server(running: Running) -> Redis:
    """A real redis-server, empty."""
    return running.server(REDIS)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the configuration files of this machine out of the tests, and restore the handling of
    SIGINT, which a shell disables for background processes.
    """
    os.environ["ROBOTS_GUARD_CONFIG"] = ""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.option.loadscopereorder = False  # the order of the groups is that of `_in_order`


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Replace the scheduler of `--dist loadgroup`; the others remain."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from support.scheduling import Scheduling

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among the tests while they are collected, nor later: they and the imported
    modules are most of a worker's objects, and none of them is garbage.
    """
    gc.disable()
    try:
        with _after_the_first():
            return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else extension modules report what is left as leaked
        gc.enable()


@contextmanager
def _after_the_first() -> Iterator[None]:
    """Let one worker of an environment collect first. It compiles the tests and what they import;
    the others would do so at the same time, and read what it has written instead.
    """
    if not IN_WORKER or sys.dont_write_bytecode:
        yield
        return
    lock = os.open(sys.prefix, os.O_RDONLY)  # the folder of the environment
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)  # with the others
        yield
    finally:
        os.close(lock)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Run tests that share a module fixture in one worker, so that the fixture is created only
    once, and all timing tests in one worker, one after the other.
    """
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    yield
    if IN_WORKER:
        items[:] = _in_order(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout counts
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let the workers that run other tests wait for the one that runs the timing tests: beside four
    busy workers, what a crawler sends after 300 ms arrives 20 ms earlier or later.
    """
    if IN_WORKER:
        if _is_timed(item):
            _quiet.begin()
        else:
            _quiet.end()
            _quiet.wait()
            os.nice(YIELDING - os.nice(0))
    return (yield)


class _Quiet:
    """The time in which no worker of an environment begins another test."""

    def __init__(self) -> None:
        self._lock = -1

    def begin(self) -> None:
        if self._lock < 0:
            self._lock = self._open()
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def end(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def wait(self) -> None:
        lock = self._open()
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.close(lock)

    def _open(self) -> int:
        return os.open(Path(sys.prefix, "bin"), os.O_RDONLY)


_quiet = _Quiet()


def _is_timed(item: pytest.Item) -> bool:
    return item.get_closest_marker("timing") is not None


def _group(item: pytest.Item) -> str | None:
    """Return the name of the group that a test is added to, or None if it needs none."""
    if _is_timed(item):
        return TIMING
    shared = _shared_fixtures(item) if isinstance(item, pytest.Function) else []
    if not shared or item.get_closest_marker("xdist_group"):
        return None
    return "-".join([item.module.__name__, *shared])


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which workers get their groups: the timing tests first,
    then the largest groups, so that no long group is left to one worker at the end.

    The tests of integrations mostly wait and the others mostly compute, so each kind is spread
    evenly over the whole run.
    """
    groups = [_name_of_group(item) for item in items]
    sizes = Counter(groups)
    largest_first = sorted(range(len(items)), key=lambda n: -sizes[groups[n]])
    places = {}
    for waits in (True, False):
        kind = [n for n in largest_first if items[n].nodeid.startswith(WAITING) is waits]
        places.update({n: place / len(kind) for place, n in enumerate(kind)})
    order = sorted(largest_first, key=lambda n: (groups[n] != TIMING, places[n]))
    return [items[n] for n in order]


def _name_of_group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else item.nodeid


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
