"""The demo's spider, run as a process of its own: `python -m robots_guard.cli.demo_spider CONFIG`.

CONFIG is JSON: the URLs, and the guard's settings by their own names. This is all a project needs to write,
save that its settings would stand in settings.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess


class DemoSpider(scrapy.Spider):
    """Asks for each URL once."""

    name = "demo"
    urls: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The URLs, as they stand."""
        for url in self.urls:
            yield scrapy.Request(url)

    def parse(self, response: Any, **_: Any) -> None:
        """Nothing is scraped."""


def main() -> None:
    """Crawl, and end when told to: requests that are deferred keep the crawl open."""
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
