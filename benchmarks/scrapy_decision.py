"""The CPU time of one decision from memory in a Scrapy crawl, by Scrapy's own middleware and by the
guard's.

    python benchmarks/scrapy_decision.py [rounds]

Two crawls of the same four origins run in one process, one with each middleware, and then wait. Now
the middlewares get batches of 200 new requests, in a shuffled order of the sides. As in a crawl,
each request has been put into a bucket by the queue of its side: both queues parse its URL, and the
guard's also splits it. What that costs is measured by scrapy_queue.py.

    decision        `process_request` for a request that may be made
    with the seal   `process_request` of both of the guard's middlewares
    and response    `process_response` of both, too, for a page that states nothing
    until gone      all of this, and the deletion of the request

The result is the median of the rounds with its quartiles, and the median of the paired ratios.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from crawling import in_reactor, serving, settings

BATCH, ORIGINS = 200, 4
SIDES = ("builtin", "guard")


class Rendezvous:
    """Where the crawls hand over their crawlers, and wait until these have been measured."""

    def __init__(self) -> None:
        self.crawlers: dict[str, asyncio.Future[Any]] = {side: asyncio.Future() for side in SIDES}
        self.over: asyncio.Future[None] = asyncio.Future()


def spider(side: str, port: int, rendezvous: Rendezvous) -> Any:
    """Return a spider that downloads a page of each origin, and then waits."""
    import scrapy

    class Waiting(scrapy.Spider):
        name = side
        count = 0

        async def start(self) -> Any:
            for number in range(ORIGINS):
                yield scrapy.Request(f"http://127.2.0.{number + 1}:{port}/first")

        async def parse(self, _response: Any) -> None:
            self.count += 1
            if self.count == ORIGINS:
                rendezvous.crawlers[side].set_result(self.crawler)
                await rendezvous.over

    return Waiting


def run(coroutine: Any) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the decision was not made from memory")


class Side:
    """One crawl, and its new requests."""

    def __init__(self, crawler: Any, port: int) -> None:
        from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware

        from robots_guard.scrapy import RobotsGuardMiddleware, RobotsGuardSeal
        from robots_guard.scrapy.deferral.gate import OriginGate

        self._first = crawler.get_downloader_middleware(RobotsGuardMiddleware)
        self._last = crawler.get_downloader_middleware(RobotsGuardSeal)
        if self._first is not None:
            self._bucket_of = OriginGate.of(crawler).bucket
        else:
            self._first = crawler.get_downloader_middleware(RobotsTxtMiddleware)
        self._bucket_of = crawler.engine.downloader.get_slot_key
        self._port = port
        self._number = 0

    def requests(self) -> list[Any]:
        from scrapy import Request

        made = []
        for _ in range(BATCH):
            self._number += 1
            host = f"127.2.0.{self._number % ORIGINS + 1}:{self._port}"
            made.append(Request(f"http://{host}/shop/item-{self._number}.html"))
        for request in made:
            self._bucket_of(request)
        return made

    def decisions(self) -> float:
        requests, decide = self.requests(), self._first.process_request

        def work() -> None:
            for request in requests:
                run(decide(request))

        return timed(work)

    def sealed(self) -> float:
        requests, decide, seal = self.requests(), self._first.process_request, self._seal

        def work() -> None:
            for request in requests:
                run(decide(request))
                seal(request)

        return timed(work)

    def responses(self, *, until_gone: bool = False) -> float:
        from scrapy.http import TextResponse

        requests, decide, seal = self.requests(), self._first.process_request, self._seal
        headers = {"Content-Type": "text/plain", "Server": "nginx"}
        responses = [TextResponse(request.url, headers=headers) for request in requests]
        receive = getattr(self._last, "process_response", returned)
        admit = getattr(self._first, "process_response", returned)

        def work() -> None:
            for request, response in zip(requests, responses, strict=True):
                run(decide(request))
                seal(request)
                receive(request, response)
                admit(request, response)
            if until_gone:
                requests.clear()

        return timed(work)

    def _seal(self, request: Any) -> None:
        if self._last is not None:
            assert self._last.process_request(request) is None


def returned(_request: Any, response: Any) -> Any:
    """Return the response, as the manager of the middlewares does without a method."""
    return response


def timed(work: Callable[[], None]) -> float:
    """Return the microseconds of CPU for one of the batch."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / BATCH / 1e3


PHASES: dict[str, Callable[[Side], float]] = {
    "decision": Side.decisions,
    "with the seal": Side.sealed,
    "and response": Side.responses,
    "until gone": lambda side: side.responses(until_gone=True),
}


def compare(sides: dict[str, Side], rounds: int) -> None:
    for phase, measure in PHASES.items():
        samples: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name in random.sample(list(sides), len(sides)):
                samples[name].append(measure(sides[name]))
        for name, taken in samples.items():
            print(f"{phase:13} {name:8} {shown(taken)} us")
        pairs = zip(samples["guard"], samples["builtin"], strict=True)
        print(f"{phase:13} ratio    {shown([ours / theirs for ours, theirs in pairs])}")


def shown(samples: list[float]) -> str:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(samples, n=4)
    return f"{median:6.2f} (quartiles {low:.2f} to {high:.2f})"


async def main(rounds: int, port: int, scratch: str) -> None:
    from scrapy.crawler import AsyncCrawlerRunner

    rendezvous = Rendezvous()
    crawls = [
        AsyncCrawlerRunner(settings(side, scratch)).crawl(spider(side, port, rendezvous))
        for side in SIDES
    ]
    sides = {side: Side(await rendezvous.crawlers[side], port) for side in SIDES}
    for side in sides.values():
        side.decisions()
    compare(sides, rounds)
    rendezvous.over.set_result(None)
    await asyncio.gather(*crawls)


if __name__ == "__main__":
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with serving(latency=0.0) as port:
        in_reactor(lambda scratch: main(many, port, scratch))
