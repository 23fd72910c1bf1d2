"""The cost of a slow host for other hosts, which should be none.

    python benchmarks/scrapy_stall.py [rounds]

16 concurrent requests; one host with `Crawl-delay: 0.5` and 1,000 URLs in the queue; other hosts
whose 50 pages are discovered one by one. Measures, alternately, how long the other hosts take with
the slow host in the crawl and without it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import Any

from crawling import in_reactor, serving, settings

LENGTH = 50


def spider(port: int, hosts: int, slow: int) -> Any:
    import scrapy
    from scrapy.exceptions import CloseSpider

    class Chains(scrapy.Spider):
        name = "chains"
        left, began, ended, slow_pages = hosts, 0.0, 0.0, 0

        async def start(self) -> Any:
            for number in range(slow):
                yield scrapy.Request(f"http://127.3.0.1:{port}/{number}", callback=self.paced)
            Chains.began = time.monotonic()
            for host in range(hosts):
                yield scrapy.Request(f"http://127.2.1.{host + 1}:{port}/0", cb_kwargs={"number": 0})

        def paced(self, _response: Any) -> None:
            Chains.slow_pages += 1

        def parse(self, response: Any, number: int) -> Any:
            if number + 1 < LENGTH:
                url = response.urljoin(f"/{number + 1}")
                yield scrapy.Request(url, cb_kwargs={"number": number + 1})
                return
            self.left -= 1
            if not self.left:
                Chains.ended = time.monotonic()
                raise CloseSpider("the others are done")

    return Chains


async def seconds(port: int, hosts: int, slow: int, scratch: str) -> float:
    from scrapy.crawler import AsyncCrawlerRunner

    chains = spider(port, hosts, slow)
    await AsyncCrawlerRunner({**settings("guard", scratch), "CONCURRENT_REQUESTS": 16}).crawl(
        chains
    )
    took = chains.ended - chains.began
    assert chains.slow_pages <= took / 0.5 + 2, "the slow host was not paced"
    return took


async def main(rounds: int, port: int, scratch: str) -> None:
    for hosts in (20, 1):
        await seconds(port, hosts, 0, scratch)
        both = []
        for _ in range(rounds):
            taken = {
                slow: await seconds(port, hosts, slow, scratch)
                for slow in random.sample((0, 1000), 2)
            }
            both.append((taken[1000], taken[0]))
        ratio = statistics.median(one / other for one, other in both)
        with_slow, without = (statistics.median(column) for column in zip(*both, strict=True))
        print(f"{hosts:2} other hosts, {LENGTH} pages each: {with_slow:.2f} s beside the slow one, {without:.2f} s"
              f" without it; ratio {ratio:.2f}")  # fmt: skip


if __name__ == "__main__":
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with serving(latency=0.01) as port:
        in_reactor(lambda scratch: main(many, port, scratch))
