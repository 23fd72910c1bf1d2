"""What taking a request from Scrapy's queue costs: from Scrapy's own queue, and from the guard's.

    python benchmarks/scrapy_queue.py [rounds]

Each queue holds requests of 100, 1,000 or 20,000 origins in memory, three of each, while 16 requests
to other origins are being downloaded. In each round, each queue hands out 64 requests, one queue
after another in shuffled order; only that is timed, as CPU time, and the requests are pushed back.

    none shut, one shut, half shut   so many origins may not be visited for a day
    each closes                      no policy is known: each origin closes when its request leaves,
                                     and opens when that has ended; both are timed

The result is the median of the rounds with its quartiles, and the median of the paired ratios.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any

from scrapy import Request, Spider
from scrapy.core.downloader import Downloader
from scrapy.crawler import Crawler
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import LifoMemoryQueue
from scrapy.utils.misc import build_from_crawler

from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.deferral.queue import GuardPriorityQueue

ORIGINS = (100, 1_000, 20_000)
PER_ORIGIN, ACTIVE, POPS = 3, 16, 64
DAY = 86_400.0


class BusyDownloader(Downloader):
    """A downloader that has requests, and never ends one."""

    def __init__(self) -> None:
        self.ip_concurrency = 0
        self.active = set()
        self.slots = {}
        for number in range(ACTIVE):
            request = Request(f"http://busy.{number}.example/")
            request.meta["download_slot"] = self.get_slot_key(request)
            self.active.add(request)
            slot: Any = SimpleNamespace(active={request})
            self.slots[request.meta["download_slot"]] = slot


class Side:
    """One queue with its crawler; `shut` of its origins are shut."""

    def __init__(
        self,
        queue: type[DownloaderAwarePriorityQueue],
        origins: int,
        shut: int = 0,
        *,
        closes: bool = False,
    ) -> None:
        self._crawler: Any = Crawler(Spider)
        self._crawler.engine = SimpleNamespace(downloader=BusyDownloader(), _slot=None)
        self._queue = build_from_crawler(
            queue, self._crawler, downstream_queue_cls=LifoMemoryQueue, key=""
        )
        hosts = [f"http://www.{number}.example" for number in range(origins)]
        random.Random(1).shuffle(hosts)
        for page in range(PER_ORIGIN):
            for host in hosts:
                self._queue.push(Request(f"{host}/{page}"))
        self._gate = OriginGate.of(self._crawler)
        for host in hosts[:shut]:
            self._gate.shut(host, DAY)
        self._closes = closes
        if closes:
            self._gate.lacks_policy = lambda _origin: True

    def microseconds_per_pop(self) -> float:
        """Return the CPU time of a pop in this round."""
        began = time.process_time()
        taken = [self._take() for _ in range(POPS)]
        spent = time.process_time() - began
        for request in taken:
            self._gate.mark_begun(request)
            self._queue.push(request)
        return spent / POPS * 1e6

    def _take(self) -> Request:
        request = self._queue.pop()
        assert request is not None
        if self._closes:
            self._gate.mark_begun(request)
            self._gate.mark_ended(request)
        return request


def shown(samples: list[float]) -> str:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(samples, n=4)
    return f"{median:9.1f} us (quartiles {low:.1f} to {high:.1f})"


def main(rounds: int) -> None:
    """Print one line for each number of origins and each side."""
    for origins in ORIGINS:
        sides = {
            "built-in": Side(DownloaderAwarePriorityQueue, origins),
            "none shut": Side(GuardPriorityQueue, origins),
            "one shut": Side(GuardPriorityQueue, origins, 1),
            "half shut": Side(GuardPriorityQueue, origins, origins // 2),
            "each closes": Side(GuardPriorityQueue, origins, closes=True),
        }
        samples: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name in random.sample(list(sides), len(sides)):
                samples[name].append(sides[name].microseconds_per_pop())
        for name, taken in samples.items():
            ratio = statistics.median(
                ours / theirs for ours, theirs in zip(taken, samples["built-in"], strict=True)
            )
            print(f"{origins:6} origins, {name:11} {shown(taken)}, {ratio:.3f} of the built-in")


if __name__ == "__main__":
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
