"""Programs that a soak test kills and restarts, the clocks that it sets, and the resource usage of
processes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# faketime makes time.sleep fail (EINVAL from clock_nanosleep), so the clock is patched where Python
# reads it.
CLOCK = '''"""The wall clock of this process is off by the seconds in a file."""
import mmap, os, struct, time
def _shift(path, now=time.time):
    shift = mmap.mmap(os.open(path, os.O_RDONLY), 8, prot=mmap.PROT_READ)
    time.time = lambda: now() + struct.unpack("d", shift)[0]
    time.time_ns = lambda: int(time.time() * 1e9)
_shift(os.environ["SOAK_CLOCK"])
'''


def path_of(name: str) -> str:
    """Return the path of a program, next to this Python's executable or on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed: apt-get install {name}")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class Clock:
    """The wall clock of a program, which can be set."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"clock-{name}"
        path.write_bytes(bytes(8))
        code = folder / "clock"
        code.mkdir(exist_ok=True)
        (code / "sitecustomize.py").write_text(CLOCK)
        with path.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), 8)
        self.environment = {**os.environ, "SOAK_CLOCK": str(path), "PYTHONPATH": str(code)}

    def shift(self, seconds: float) -> None:
        self._shift[:] = struct.pack("d", seconds)


class Program:
    """A program that is restarted whenever it exits with an error, until it is stopped."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Callable[[], list[str]],
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.starts = 0
        self.is_held = False  # not to be restarted now
        self.has_ended = threading.Event()  # exited with status 0, or stopped
        self.stop_took = 0.0
        self._command = command
        self._environment = environment
        self._start()
        self._watch = threading.Thread(target=self._keep, name=name, daemon=True)
        self._watch.start()

    def _start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, env=self._environment
            )

    def _keep(self) -> None:
        while not self.has_ended.wait(0.1):
            status = self.process.poll()
            if status == 0:
                self.has_ended.set()
            elif status is not None and not self.is_held:
                self._start()

    def pids(self) -> list[int]:
        """Return the processes of the program, or its children if it has any."""
        first = self.process.pid
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
            return [int(child) for child in children] or [first]
        return []

    def signal(self, number: int, chance: Random) -> None:
        """Send a signal to a random process of the program."""
        pids = self.pids()
        if pids and not self.has_ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), number)

    def stop(self, seconds: float) -> bool:
        """Stop the program. Returns whether it stopped in time."""
        self.has_ended.set()
        self._watch.join()
        began = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in (*self.pids(), self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return False
        finally:
            self.stop_took = time.monotonic() - began
        return True


@dataclass(slots=True)
class Usage:
    """Samples of a process's resource usage: MiB of memory, descriptors, threads."""

    program: str
    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def take(self, pid: int) -> None:
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError, KeyError, ValueError):
            lines = (line.partition(":") for line in (folder / "status").read_text().splitlines())
            status = {name: value.split() for name, _, value in lines}
            descriptors = sum(1 for _ in (folder / "fd").iterdir())
            self.samples.append(
                (int(status["VmRSS"][0]) / 1024, descriptors, int(status["Threads"][0]))
            )


class Watch:
    """Samples the resource usage of all processes of the programs once a second."""

    def __init__(self, programs: list[Program]) -> None:
        self.usages: dict[int, Usage] = {}
        self._programs = programs
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def _run(self) -> None:
        while not self._over.wait(1.0):
            for program in self._programs:
                for pid in program.pids():
                    self.usages.setdefault(pid, Usage(program.name)).take(pid)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def longest_lived(self) -> Iterator[Usage]:
        """Yield the usage of the longest-lived process of each program."""
        for program in self._programs:
            of_it = [usage for usage in self.usages.values() if usage.program == program.name]
            if of_it:
                yield max(of_it, key=lambda usage: len(usage.samples))
