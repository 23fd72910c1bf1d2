"""The CPU time of a broad crawl, with Scrapy's own robots.txt middleware and with the guard.

    python benchmarks/scrapy_broad.py [rounds] [origins] [side ...]

Each crawl visits 2,000 origins, each a loopback address with a robots.txt of its own, three pages
each. Of the files, three quarters have rules (5 to 60, a quarter of them with wildcards), one in
ten is a 404, and one in twenty forbids everything; every fourth origin has a page that is
forbidden. Another process serves the pages.

    builtin   ROBOTSTXT_OBEY = True
    none      ROBOTSTXT_OBEY = False
    memory    the add-on, with store = "memory:"
    sqlite    the add-on, with a new SQLite store in each crawl

The add-on's other settings are the defaults, and the audit log is new in each crawl. A crawl is a
fork of this process, which has imported every module that a short first crawl of each side has
needed. Its CPU time is that of the whole process, user and system, from the fork to the end. In
each round the sides run one after another in shuffled order; the result is the median of the rounds
with its quartiles, and the median of the paired ratios.

The time of the garbage collector is also shown apart. For each response, Scrapy starts
CONCURRENT_ITEMS (100) tasks. When several responses arrive at once, these tasks trigger collections
of everything in the process, and whether they do varies from run to run, on each side.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import multiprocessing
import os
import random
import socket
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from crawling import QUIET

ORIGINS, PAGES = 2_000, 3
FORBIDDEN_EVERY = 4  # origins
HEAD = "HTTP/1.1 {} X\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n"
BODY = "<html><title>A page</title><body>" + "Some text. " * 150 + "</body></html>"
ANSWER = (HEAD.format(200, len(BODY)).replace("plain", "html") + BODY).encode()
FORBIDDEN = "/private/page"


def address(number: int) -> str:
    return f"127.20.{number // 250}.{number % 250 + 1}"


def robots(number: int) -> bytes:
    """Return the response to a request for the robots.txt of an origin."""
    kind = random.Random(number)
    drawn = kind.random()
    if drawn < 0.1:
        return HEAD.format(404, 0).encode()
    if drawn < 0.15:
        text = "User-agent: *\nDisallow: /\n"
    elif drawn < 0.25:
        text = "User-agent: *\nDisallow:\n"
    else:
        text = _rules(number, kind)
    return (HEAD.format(200, len(text)) + text).encode()


def _rules(number: int, kind: random.Random) -> str:
    lines = [f"# robots.txt of site {number}", "User-agent: *", "Disallow: /private/"]
    has_wildcards = kind.random() < 0.25
    for rule in range(kind.choice((4, 5, 6, 8, 12, 20, 30, 60))):
        path = f"/{kind.choice(('admin', 'search', 'cart', 'tmp', 'user'))}/{number}/{rule}"
        lines.append(f"Disallow: {path}{kind.choice(('/*.php', '*?sort=', '$')) * has_wildcards}")
    lines += ["User-agent: badbot", "Disallow: /", f"Sitemap: http://{address(number)}/sitemap.xml"]
    return "\n".join(lines) + "\n"


# -- the sites -------------------------------------------------------------------------------------


class _Site(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            answer = ANSWER
            if head.startswith(b"GET /robots.txt "):
                _, _, third, fourth = self._transport.get_extra_info("sockname")[0].split(".")
                answer = robots(int(third) * 250 + int(fourth) - 1)
            self._transport.write(answer)


async def _serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
    server = await loop.create_server(_Site, sock=listener, backlog=1024)
    pipe.send(listener.getsockname()[1])
    await server.serve_forever()


def _run_sites(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


@contextlib.contextmanager
def sites() -> Iterator[int]:
    """Run all sites in a separate process, and yield their port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run_sites, args=(theirs,), daemon=True
    )
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


# -- a crawl ---------------------------------------------------------------------------------------


def settings(side: str, scratch: str) -> dict[str, Any]:
    """Return the settings of one side."""
    common = {**QUIET, "CONCURRENT_REQUESTS": 64, "COOKIES_ENABLED": False}
    if side in ("builtin", "none"):
        return {**common, "ROBOTSTXT_OBEY": side == "builtin"}
    return {
        **common,
        "ADDONS": {"robots_guard.scrapy.Addon": 500},
        "ROBOTS_GUARD_AGENT": "mybot",
        "ROBOTS_GUARD_STORE": "memory:" if side == "memory" else f"sqlite:///{scratch}/store.db",
        "ROBOTS_GUARD_AUDIT_LOG": f"{scratch}/audit",
    }


def spider(port: int, origins: int) -> Any:
    import scrapy

    class Broad(scrapy.Spider):
        name = "broad"

        async def start(self) -> Any:
            for page in range(PAGES):
                for number in random.Random(page).sample(range(origins), origins):
                    path = f"/page-{page}.html"
                    if page == PAGES - 1 and not number % FORBIDDEN_EVERY:
                        path = FORBIDDEN
                    yield scrapy.Request(f"http://{address(number)}:{port}{path}")

        def parse(self, _response: Any) -> None:
            return None

    return Broad


def crawl(side: str, port: int, origins: int, scratch: str) -> dict[str, Any]:
    """Crawl all pages in this process. Returns Scrapy's statistics."""
    from scrapy.crawler import AsyncCrawlerProcess

    process = AsyncCrawlerProcess(settings(side, scratch))
    crawler = process.create_crawler(spider(port, origins))
    process.crawl(crawler)
    process.start()
    assert crawler.stats is not None
    return crawler.stats.get_stats()


class Taken(NamedTuple):
    """The seconds of CPU that a crawl took, and those of the garbage collector in it."""

    seconds: float
    collecting: float


class CollectorClock:
    """Adds up the CPU time of the garbage collector."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


def crawl_in_fork(side: str, port: int, origins: int) -> tuple[Taken, list[str]]:
    """Crawl in a fork. Returns what it took, and the modules it has imported."""
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = multiprocessing.Pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                clock = CollectorClock()
                crawl(side, port, origins, scratch)
                theirs.send((clock.seconds, list(sys.modules)))
                status = 0
            except BaseException:  # noqa: BLE001  the parent reports the status
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status, usage = os.wait4(child, 0)
        assert status == 0, f"the crawl with {side} failed"
        collecting, modules = ours.recv()
        return Taken(usage.ru_utime + usage.ru_stime, collecting), modules


def import_all(modules: list[str]) -> None:
    """Import what a crawl has imported, except for the reactor, which a crawl must choose itself."""
    for module in modules:
        if module != "twisted.internet.reactor":
            with contextlib.suppress(ImportError):  # made by a package that is not imported by name
                importlib.import_module(module)


def shown(samples: list[float], digits: int) -> str:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(samples, n=4)
    return f"{median:.{digits}f} (quartiles {low:.{digits}f} to {high:.{digits}f})"


def ratios(ours: list[float], theirs: list[float]) -> str:
    return shown([mine / other for mine, other in zip(ours, theirs, strict=True)], 3)


def main(rounds: int, origins: int, sides: list[str]) -> None:
    """Print two lines for each side, with its ratio to the first."""
    taken: dict[str, list[Taken]] = {side: [] for side in sides}
    with sites() as port:
        for side in sides:
            import_all(crawl_in_fork(side, port, 20)[1])
        for _ in range(rounds):
            for side in random.sample(sides, len(sides)):
                taken[side].append(crawl_in_fork(side, port, origins)[0])
    whole = {side: [each.seconds for each in crawls] for side, crawls in taken.items()}
    rest = {side: [each.seconds - each.collecting for each in taken[side]] for side in sides}
    for side in sides:
        for name, seconds in (("", whole), ("without gc", rest)):
            ratio = ratios(seconds[side], seconds[sides[0]])
            print(f"{side:8} {name:10} {shown(seconds[side], 2)} s; {ratio} of {sides[0]}")


if __name__ == "__main__":
    import protego  # noqa: F401  each fork would import it again

    import robots_guard.scrapy.addon  # noqa: F401  and this

    given = sys.argv[1:]
    main(
        int(given[0]) if given else 5,
        int(given[1]) if given[1:] else ORIGINS,
        given[2:] or ["builtin", "none", "memory", "sqlite"],
    )
