"""The demo's spider, run as a separate process: `python -m robots_guard.app.demo.spider CONFIG`.

CONFIG is JSON with the URLs and the guard's settings. A real project needs no more code than this, and would have its
settings in settings.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess


class DemoSpider(scrapy.Spider):
    """A spider that requests each URL once."""

    name = "demo"
    urls: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """Yield a request for each URL."""
        for url in self.urls:
            yield scrapy.Request(url)

    def parse(self, response: Any, **_: Any) -> None:
        """Do nothing: the demo scrapes no data."""


def main() -> None:
    """Crawl until a signal stops the process: deferred requests keep the crawl open."""
    config = json.loads(sys.argv[1])
    settings = {f"ROBOTS_GUARD_{name.upper()}": value for name, value in config["settings"].items()}
    process = CrawlerProcess(
        {
            "ADDONS": {"robots_guard.scrapy.Addon": 500},
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "REMOTE_CONTROL_ENABLED": False,
            "RETRY_ENABLED": False,
            **settings,
        }
    )
    process.crawl(DemoSpider, urls=config["urls"])
    process.start()


if __name__ == "__main__":
    main()
