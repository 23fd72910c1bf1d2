"""A spider that follows the links of a site and lists each page's title, and the pages that are refused.

scrapy crawl titles -a start=https://example.com/
"""

from collections.abc import Iterator
from typing import Any

import scrapy

from robots_guard.scrapy import RobotsDisallowed


class TitlesSpider(scrapy.Spider):
    name = "titles"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(start_urls=[start], **kwargs)

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in response.css("a::attr(href)"):
            yield response.follow(link, callback=self.parse, errback=self.refused)

    def refused(self, failure: Any) -> Iterator[Any]:
        if not failure.check(RobotsDisallowed):
            return
        verdict = failure.value.decision.verdict
        yield {
            "url": failure.request.url,
            "refused": str(verdict.reason),
            "rule": verdict.rule.text if verdict.rule else None,
            "line": verdict.rule.line if verdict.rule else None,
        }
