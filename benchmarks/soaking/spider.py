"""The crawl of a soak test: requests the pages without an outcome in a file, and appends each
outcome in one write.

    python spider.py JSON      (the fields of Work)

A line contains the page's number, the outcome, the decision's id, and the time on the monotonic
clock.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]

from crawling import QUIET  # noqa: E402  (found on the path set above)

from soaking.sites import url  # noqa: E402  (likewise)

# chains of requests, each of which continues when its page ends; many wait for their origins
AT_ONCE = 512


class Work(msgspec.Struct):
    """The task of a crawl."""

    seed: int
    first: int
    pages: int
    sites: list[str]
    outcomes: str
    settings: dict[str, Any]


class Outcome(msgspec.Struct, array_like=True):
    """How a page ended."""

    number: int
    end: str
    id: str
    at: float


def outcomes(path: Path) -> list[Outcome]:
    """Return the outcomes in the file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Outcome) for line in lines]


def main() -> None:
    import scrapy
    from scrapy.crawler import CrawlerProcess

    from robots_guard.scrapy.errors import _Refused

    work = msgspec.json.decode(sys.argv[1], type=Work)
    done = {outcome.number for outcome in outcomes(Path(work.outcomes))}
    left = (number for number in range(work.first, work.first + work.pages) if number not in done)
    file = os.open(work.outcomes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Pages(scrapy.Spider):
        name = "soak"
        handle_httpstatus_all = True

        async def start(self) -> AsyncIterator[Any]:
            for _ in range(AT_ONCE):
                for request in self.next():
                    yield request

        def next(self) -> Iterator[Any]:
            for number in left:
                yield scrapy.Request(
                    url(work.seed, number, work.sites),
                    errback=self.failed,
                    cb_kwargs={"number": number},
                    meta={"handle_httpstatus_all": True},
                    dont_filter=True,
                )
                return

        def parse(self, response: Any, number: int) -> Iterator[Any]:
            note(number, str(response.status))
            return self.next()

        def failed(self, failure: Any) -> Iterator[Any]:
            error = failure.value
            decision = error.decision if isinstance(error, _Refused) else None
            end = str(decision.verdict.reason) if decision else type(error).__name__
            note(failure.request.cb_kwargs["number"], end, decision.id if decision else "")
            return self.next()

    def note(number: int, end: str, identity: str = "") -> None:
        os.write(
            file, msgspec.json.encode(Outcome(number, end, identity, time.monotonic())) + b"\n"
        )

    process = CrawlerProcess({**QUIET, **work.settings})
    process.crawl(Pages)
    process.start()


if __name__ == "__main__":
    main()
