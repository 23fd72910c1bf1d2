"""Processes that share a store file and execute a test's commands: ``python -m support.fleet``."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.renewal import begin
from robots_guard.errors import RobotsGuardError, StoreError
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import Origin, origin_of
from support.preloaded import is_readable

ORIGINS = [origin_of(f"https://{n}.test") for n in range(40)]
NOW = 1000.0
TIMEOUT = 120  # seconds; a longer call counts as a hang


def policy_for(origin: Origin, at: float) -> Policy:
    """Return a policy whose rules contain the origin's host."""
    body = f"User-agent: *\nDisallow: /{origin.host}\n".encode() * 60
    return begin(origin, None, "direct").next(Fetched(status=200, body=body), at).policy


class Member:
    """One process. Its results report how often the store failed, and the last error message."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.fleet"],
            cwd=Path(__file__).parents[1],
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._pending = 0

    @property
    def is_ready(self) -> bool:
        """Whether the process is alive and has answered every command."""
        return self._process.poll() is None and not self._pending

    def send(self, command: str, **arguments: Any) -> None:
        """Send a command. `receive` waits for its end."""
        assert self._process.stdin is not None
        self._pending += 1
        self._process.stdin.write(json.dumps([command, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Return the result of a command. A process that died or hangs fails the test."""
        out = self._process.stdout
        assert out is not None
        assert is_readable(out, TIMEOUT), "the process hangs"
        line = out.readline()
        assert line, f"the process died: {signal.Signals(-self._process.wait(60)).name}"
        self._pending -= 1
        return json.loads(line)

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.receive()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Worker:
    """The commands, as executed in the process."""

    def __init__(self) -> None:
        self.store: SqliteStore | None = None

    def open(self, path: str) -> str:
        try:
            self.store = SqliteStore(Path(path))
        except RobotsGuardError as error:
            return str(error)
        return ""

    def close(self) -> str:
        if self.store:
            self.store.close()
        self.store = None
        return ""

    def limit(self, size: int) -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        return ""

    def work(self, calls: int, seed: int) -> dict[str, Any]:
        chance = random.Random(seed)
        failures = []
        for number in range(calls):
            try:
                self._call(chance, NOW + number)
            except StoreError as error:
                failures.append(str(error))
        return {"failures": len(failures), "last": failures[-1] if failures else ""}

    def _call(self, chance: random.Random, now: float) -> None:
        assert self.store is not None
        origin = chance.choice(ORIGINS)
        match chance.randrange(4):
            case 0:
                self.store.put(policy_for(origin, now), now)
            case 1:
                self.store.release(origin, "one") if self.store.take(
                    origin, "one", now, 5.0
                ) else None
            case _:
                stored = self.store.get(origin)
                assert stored is None or stored == policy_for(origin, stored.settled_at), (
                    "another origin's policy"
                )


def main() -> None:
    worker = _Worker()
    for line in sys.stdin:
        command, arguments = json.loads(line)
        print(json.dumps(getattr(worker, command)(**arguments)), flush=True)


if __name__ == "__main__":
    main()
