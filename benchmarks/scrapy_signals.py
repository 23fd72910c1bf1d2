"""The processor time of one response's signals in Scrapy, without network.

    python benchmarks/scrapy_signals.py

A crawl of one page prepares the guard. Then responses are handed to its middleware, 5,000 at a
time, best of five: what `process_response` costs, and what remembering the decision costs. A page
costs Scrapy about 1,150 us altogether (benchmarks/scrapy_overhead.py).
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from crawling import in_reactor, serving, settings

COUNT = 5000
FIELDS = {
    "Content-Type": "text/html; charset=utf-8",
    "Date": "Sun, 22 Nov 2026 00:00:00 GMT",
    "Server": "nginx",
    "Cache-Control": "max-age=600",
    "Vary": "Accept-Encoding",
    "Content-Length": "100000",
}
STATED = {**FIELDS, "X-Robots-Tag": "noarchive"}
HEAD = b'<!doctype html><html><head><title>t</title><meta name="viewport" content="width=1">'
TEXT = b"<p>Some <a href='/page'>text</a> of a page."
PAGE = HEAD + b"<style>" + b"a{b:c}" * 1300 + b"</style></head><body>" + TEXT * 2100

CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "signals = off": ({"ROBOTS_GUARD_SIGNALS": "off"}, FIELDS),
    "no purposes, nothing stated": ({}, FIELDS),
    "no purposes, X-Robots-Tag": ({}, STATED),
    "purposes, 100 KB page": ({"ROBOTS_GUARD_PURPOSES": "search"}, FIELDS),
}


async def cost(options: dict[str, str], fields: dict[str, str], port: int, scratch: str) -> float:
    """Return the microseconds for one response, best of five."""
    import scrapy
    from scrapy.crawler import AsyncCrawlerRunner

    best: list[float] = []

    class OnePage(scrapy.Spider):
        name = "one"

        async def start(self) -> Any:
            yield scrapy.Request(f"http://127.2.0.1:{port}/1", dont_filter=True)

        def parse(self, _response: Any) -> None:
            from robots_guard.scrapy import RobotsGuardMiddleware

            guard = self.crawler.get_downloader_middleware(RobotsGuardMiddleware)
            best.extend(_measure(guard, port, fields) for _ in range(5))

    await AsyncCrawlerRunner({**settings("guard", scratch), **options}).crawl(OnePage)
    return min(best)


def _measure(guard: Any, port: int, fields: dict[str, str]) -> float:
    from scrapy import Request
    from scrapy.http import HtmlResponse

    urls = [f"http://127.2.0.1:{port}/{number}" for number in range(COUNT)]
    requests = [Request(url) for url in urls]
    responses = [HtmlResponse(url, headers=fields, body=PAGE) for url in urls]
    for request in requests:
        _run(guard.process_request(request))
    began = time.process_time()
    for request, response in zip(requests, responses, strict=True):
        guard.process_response(request, response)
    return (time.process_time() - began) / COUNT * 1e6


def _run(judging: Any) -> None:
    with contextlib.suppress(StopIteration):
        judging.send(None)


async def main(port: int, scratch: str) -> None:
    for name, (options, fields) in CASES.items():
        print(f"{name:32} {await cost(options, fields, port, scratch):6.2f} us a response")


if __name__ == "__main__":
    with serving(latency=0.0) as port:
        in_reactor(lambda scratch: main(port, scratch))
