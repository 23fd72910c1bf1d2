"""The origins of a soak test: they serve good and bad answers to /robots.txt, and judge each
request they receive.

Each file forbids `/private/`, and all but one of `/v/1/`, `/v/2/`, ..., changing at every second
fetch. A copy may be used for 30 days while an origin is unreachable, which is longer than a soak
test. So a request is forbidden if every file that its origin has served so far forbids it. An
answer that is not a robots.txt (an error, a part, a truncated body) permits nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from simulation.oracle import OPEN, reads
from simulation.plan import Answer

from robots_guard.testing import Loopback, Received, RecordingOrigin, Reply, Script

VERSIONS = 8
ANSWERS = {
    "good": 70,
    "slow": 8,
    "503": 5,
    "500": 3,
    "partial": 4,
    "cut": 4,
    "too long": 2,
    "reset": 2,
    "hang": 2,
}
PAGES = {"good": 960, "slow": 20, "reset": 10, "busy": 10}
AREAS = {"open": 70, "private": 15, "version": 15}
STUB = "User-agent: *\n"  # allows everything, if mistaken for the whole file


@dataclass(slots=True)
class Ledger:
    """What all origins received. `pages` are the page numbers at the ends of the targets."""

    pages: set[int] = field(default_factory=set)
    forbidden: list[str] = field(default_factory=list)
    fetches: dict[str, int] = field(default_factory=dict)
    is_down: bool = False  # no origin serves a robots.txt, and pages are slow


class Site:
    """An origin, and the robots.txt files it has served."""

    def __init__(self, net: Loopback, number: int, seed: int, ledger: Ledger) -> None:
        self._chance = Random(f"{seed}/site/{number}")
        self._ledger = ledger
        self._status = {0: 404, 1: 403}.get(number % 20, 200)
        self._pace = "Crawl-delay: 0.2\n" if number % 20 == 2 else ""
        self._served: dict[str, Answer] = {}
        self._fetches = 0
        self.origin: RecordingOrigin = net.origin(robots=self._robots, pages=_Every(self._page))

    def _robots(self, _request: Received) -> Reply:
        kind = "503" if self._ledger.is_down else _draw(self._chance, ANSWERS)
        self._ledger.fetches[kind] = self._ledger.fetches.get(kind, 0) + 1
        body = self._body()
        match kind:
            case "good" | "slow":
                self._note(body)
                delay = self._chance.uniform(0.5, 3.0) if kind == "slow" else 0.0
                return Reply(
                    status=self._status,
                    body=body,
                    headers=(("Cache-Control", "max-age=0"),),
                    delay=delay,
                )
            case "partial":
                return Reply(
                    status=206, body=STUB, headers=(("Content-Range", f"bytes 0-13/{len(body)}"),)
                )
            case "cut":
                return Reply(body=STUB, cut=True)
            case "too long":
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(STUB)}\r\n\r\n"
                return Reply(raw=(head + body).encode())
            case "reset":
                return Reply(reset=True)
            case "hang":
                return Reply(hang=True)
            case _:
                return Reply(status=int(kind))

    def _body(self) -> str:
        self._fetches += 1
        version = self._fetches // 2 % VERSIONS
        return f"{STUB}Disallow: /private/\nDisallow: /v/\nAllow: /v/{version}/\n{self._pace}"

    def _note(self, body: str) -> None:
        self._served[body] = Answer(
            since=time.monotonic(), version="", status=self._status, body=body.encode()
        )

    def _page(self, request: Received) -> Reply:
        self.origin.received.clear()
        self._ledger.pages.add(int(request.target.rpartition("/")[2]))
        if all(reads(answer, request.target) != OPEN for answer in self._served.values()):
            self._ledger.forbidden.append(f"{self.origin.url}{request.target}")
        kind = "slow" if self._ledger.is_down else _draw(self._chance, PAGES)
        match kind:
            case "slow":
                return Reply(body="page", delay=self._chance.uniform(0.2, 2.0))
            case "reset":
                return Reply(reset=True)
            case "busy":
                return Reply(status=503, headers=(("Retry-After", "1"),))
            case _:
                return Reply(body="page")


class _Every(Mapping[str, Script]):
    """The same script for all targets."""

    def __init__(self, script: Callable[[Received], Reply]) -> None:
        self._script = script

    def __getitem__(self, target: str) -> Script:
        return self._script

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def url(seed: int, number: int, sites: list[str]) -> str:
    """Return the URL of a page, which ends with its number."""
    chance = Random(f"{seed}/page/{number}")
    area = _draw(chance, AREAS)
    path = f"v/{chance.randrange(VERSIONS)}" if area == "version" else area
    return f"{chance.choice(sites)}/{path}/{number}"


class Numbers:
    """A thread-safe iterator of request numbers."""

    def __init__(self, count: int) -> None:
        self._numbers = iter(range(count))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)


def _draw(chance: Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]
