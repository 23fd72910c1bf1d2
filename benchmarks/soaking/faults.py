"""The faults of a soak test, and the schedule of their begins and ends, both drawn by a seed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import redis

from soaking.programs import Clock, Program
from soaking.sites import Ledger

# Not by up to an hour: a pause (Retry-After) that was noted meanwhile is believed for up to an hour
# afterwards.
JUMPS = (-172_800.0, -7200.0, -60.0, 60.0, 7200.0, 86_400.0, 120 * 86_400.0)
ROOMY = "size=16g"
SPARE = 16 * 1024  # bytes left free on a nearly full disk

# begins a fault and returns the function that ends it
Begin = Callable[[Random], Callable[[], None]]


class Fault(NamedTuple):
    """A planned fault: seconds after the start, duration, and name."""

    at: float
    seconds: float
    name: str


def schedule(seed: int, seconds: float, lanes: dict[str, list[str]]) -> list[Fault]:
    """Draw a schedule. Faults in one lane never overlap; those in different lanes may."""
    planned = []
    for lane, names in lanes.items():
        chance = Random(f"{seed}/{lane}")
        at = chance.uniform(3, 10)
        while at < seconds:
            lasts = chance.choice((0.3, 1.0, 3.0, 6.0))
            planned.append(Fault(at, lasts, chance.choice(names)))
            at += lasts + chance.uniform(2, 12)
    return sorted(planned)


@dataclass(slots=True)
class Spans:
    """Spans of time on the monotonic clock; the last may be open."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def begin(self) -> None:
        self.spans.append((time.monotonic(), float("inf")))

    def end(self) -> None:
        self.spans[-1] = (self.spans[-1][0], time.monotonic())

    def meet(self, first: float, last: float) -> bool:
        return any(first <= ends and last >= begins for begins, ends in self.spans)


class Disk:
    """A file system in memory that can be filled."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.full = Spans()
        place.mkdir(parents=True)
        self.is_mounted = _mount("-t", "tmpfs", "-o", ROOMY, "soak", str(place))

    def fill(self, _chance: Random) -> Callable[[], None]:
        self.full.begin()
        there = os.statvfs(self.place)
        used = (there.f_blocks - there.f_bfree) * there.f_frsize
        _mount("-o", f"remount,size={used + SPARE}", str(self.place))
        return self._free

    def _free(self) -> None:
        _mount("-o", f"remount,{ROOMY}", str(self.place))
        self.full.end()

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", str(self.place)], check=False)


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0


class Faults:
    """Begins and ends the planned faults, each in its own thread."""

    def __init__(self, seed: int, planned: list[Fault], begins: dict[str, Begin]) -> None:
        self.done: dict[str, int] = {}
        self._planned = planned
        self._begins = begins
        self._chance = Random(f"{seed}/faults")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        ends: list[tuple[float, Fault, Callable[[], None]]] = []
        for moment, fault in _moments(self._planned):
            if self._over.wait(max(0.0, began + moment - time.monotonic())):
                break
            if moment == fault.at:
                ends.append((moment + fault.seconds, fault, self._begin(fault)))
            for each in [each for each in ends if each[0] <= moment]:
                ends.remove(each)
                each[2]()
        for _, _, end in ends:
            end()

    def _begin(self, fault: Fault) -> Callable[[], None]:
        self.done[fault.name] = self.done.get(fault.name, 0) + 1
        return self._begins[fault.name](self._chance)


def _moments(planned: list[Fault]) -> list[tuple[float, Fault]]:
    """Yield all begins and ends, in order."""
    both = [(moment, fault) for fault in planned for moment in (fault.at, fault.at + fault.seconds)]
    return sorted(both, key=lambda each: each[0])


# -- the faults ------------------------------------------------------------------------------------


def _nothing() -> None:
    """End a fault that has no duration."""


def pause(program: Program) -> Begin:
    def begin(chance: Random) -> Callable[[], None]:
        program.signal(signal.SIGSTOP, chance)
        return lambda: program.signal(signal.SIGCONT, chance)

    return begin


def kill(program: Program, *, held: bool = False) -> Begin:
    """Kill a process of a program.

    With `held`, the program is restarted only when the fault ends.
    """

    def begin(chance: Random) -> Callable[[], None]:
        program.is_held = held
        program.signal(signal.SIGKILL, chance)
        return release

    def release() -> None:
        program.is_held = False

    return begin


def flush(port: int) -> Begin:
    def begin(_chance: Random) -> Callable[[], None]:
        with contextlib.suppress(redis.RedisError):
            redis.Redis(port=port, socket_timeout=1.0).flushall()
        return _nothing

    return begin


def delete(database: Path) -> Begin:
    """Delete the file, with or without the files beside it."""

    def begin(chance: Random) -> Callable[[], None]:
        beside = ("-wal", "-shm") if chance.random() < 0.5 else ()
        for end in ("", *beside):
            database.with_name(database.name + end).unlink(missing_ok=True)
        return _nothing

    return begin


def jump(clock: Clock) -> Begin:
    def begin(chance: Random) -> Callable[[], None]:
        clock.shift(chance.choice(JUMPS))
        return lambda: clock.shift(0.0)

    return begin


def down(ledger: Ledger) -> Begin:
    """Let no origin serve a robots.txt."""

    def begin(_chance: Random) -> Callable[[], None]:
        ledger.is_down = True
        return up

    def up() -> None:
        ledger.is_down = False

    return begin


def shown(planned: list[Fault]) -> Iterator[str]:
    for fault in planned:
        yield f"{fault.at:8.1f} s to {fault.at + fault.seconds:8.1f} s  {fault.name}"
