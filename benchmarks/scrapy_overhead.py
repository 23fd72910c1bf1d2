"""The processor time per page: with the guard, with Scrapy's own check, and with none.

    python benchmarks/scrapy_overhead.py [blocks]

Runs whole crawls of 4 origins in this process, one after another in shuffled order. In each, 400
pages in the middle are measured, with as many requests outstanding at the beginning as at the end.
The server is another process. Because machines are noisy, the result is the median of paired
ratios: each block contains one crawl of each kind. benchmarks/scrapy_decision.py measures the
decision alone.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import Any

from crawling import in_reactor, serving, settings

PAGES, ORIGINS, MARGIN = 400, 4, 100
MODES = ("none", "builtin", "guard")


def spider(port: int) -> Any:
    import scrapy

    class Pages(scrapy.Spider):
        name = "pages"
        count, began, ended = 0, 0.0, 0.0

        async def start(self) -> Any:
            for number in range(PAGES + 2 * MARGIN):
                yield scrapy.Request(
                    f"http://127.2.0.{number % ORIGINS + 1}:{port}/{number}", dont_filter=True
                )

        def parse(self, _response: Any) -> None:
            self.count += 1
            if self.count == MARGIN:
                Pages.began = time.process_time()
            if self.count == MARGIN + PAGES:
                Pages.ended = time.process_time()

    return Pages


async def cpu_per_page(mode: str, port: int, scratch: str) -> float:
    """Return the microseconds of CPU per page."""
    from scrapy.crawler import AsyncCrawlerRunner

    pages = spider(port)
    await AsyncCrawlerRunner(settings(mode, scratch)).crawl(pages)
    assert pages.ended, f"the crawl with {mode} did not get all its pages"
    return (pages.ended - pages.began) / PAGES * 1e6


async def main(blocks: int, port: int, scratch: str) -> None:
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    for mode in MODES:
        await cpu_per_page(mode, port, scratch)  # imports, first use
    for _ in range(blocks):
        for mode in random.sample(MODES, len(MODES)):
            taken[mode].append(await cpu_per_page(mode, port, scratch))
    for mode in MODES:
        print(
            f"{mode:8} {statistics.median(taken[mode]):6.0f} us a page (of {blocks}, best {min(taken[mode]):.0f})"
        )
    for base in ("builtin", "none"):
        ratios = sorted(
            ours / theirs for ours, theirs in zip(taken["guard"], taken[base], strict=True)
        )
        low, high = ratios[len(ratios) // 4], ratios[-len(ratios) // 4]
        best = min(taken["guard"]) / min(taken[base])
        print(
            f"guard / {base:8} {statistics.median(ratios):.3f} (quartiles {low:.3f} to {high:.3f}); of bests {best:.3f}"
        )


if __name__ == "__main__":
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    with serving(latency=0.0) as port:
        in_reactor(lambda scratch: main(many, port, scratch))
