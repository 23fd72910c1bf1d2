"""The shared store of a history: a model, or a real store, which is slower.

model    `stores.ModelStore`
sqlite   the real SqliteStore on a real file; each process has its own connections
redis    the real RedisStore and its real Lua scripts on fakeredis, with the history's clock
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import fakeredis

from robots_guard.guard.stores.redis import RedisStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import Origin
from simulation.kernel import EPOCH, Kernel
from simulation.plan import Plan
from simulation.stores import ModelStore

# The private `_database` has the leases: a store does not list them.


class Tier(Protocol):
    """The store of one history, for all its processes."""

    def connect(self) -> Any:
        """Return a store for one process."""

    def forget_all(self) -> None:
        """Lose all content."""

    def leases(self) -> list[Origin]:
        """Return the origins whose leases were not released."""

    def close(self) -> None:
        """Release all resources."""


class ModelTier:
    """One model that all processes share."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        clock = (lambda: EPOCH + kernel.time) if plan.has_server_clock else None
        self._store = ModelStore(clock)

    def connect(self) -> ModelStore:
        return self._store

    def forget_all(self) -> None:
        self._store.forget_all()

    def leases(self) -> list[Origin]:
        return list(self._store.leases)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class SqliteTier:
    """A file in its own directory. The content is lost by deleting the file."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        memory = Path("/dev/shm")
        self._directory = Path(
            tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None)
        )
        self._path = self._directory / "policies.sqlite"
        self._stores: list[SqliteStore] = []

    def connect(self) -> SqliteStore:
        self._stores.append(SqliteStore(self._path))
        return self._stores[-1]

    def forget_all(self) -> None:
        self._path.unlink(missing_ok=True)

    def leases(self) -> list[Origin]:
        with self._stores[0]._database.reading() as connection:
            return [
                origin
                for (origin,) in connection.execute("SELECT origin FROM leases WHERE origin != ''")
            ]

    def close(self) -> None:
        for store in self._stores:
            store.close()
        shutil.rmtree(self._directory)


_MODULES_WITH_TIME = [
    module
    for name, module in sys.modules.items()
    if name.startswith("fakeredis") and vars(module).get("time") is time
]


class RedisTier:
    """A server in this process. Its scripts and its expiries use the clock of the history."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self._server = fakeredis.FakeServer()
        self._client = fakeredis.FakeRedis(server=self._server)
        virtual = SimpleNamespace(
            time=lambda: EPOCH + kernel.time, sleep=time.sleep, monotonic=time.monotonic
        )
        for module in _MODULES_WITH_TIME:
            vars(module)["time"] = virtual

    def connect(self) -> RedisStore:
        return RedisStore(fakeredis.FakeRedis(server=self._server))

    def forget_all(self) -> None:
        self._client.flushall()

    def leases(self) -> list[Origin]:
        return list(self._client.scan_iter("*:lease"))

    def close(self) -> None:
        self._client.close()
        for module in _MODULES_WITH_TIME:
            vars(module)["time"] = time


TIERS: dict[str, Callable[[Kernel, Plan], Tier]] = {
    "model": ModelTier,
    "sqlite": SqliteTier,
    "redis": RedisTier,
}
