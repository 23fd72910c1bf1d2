"""Run one real crawl in a process of its own and say what became of each request.

    from hosts.scrapy.crawl import Crawl, crawl

    done = crawl(["http://127.0.0.1:8000/a", "http://127.0.0.1:8000/private/b"], settings={"ROBOTS_GUARD_AGENT": "mybot"})
    done["http://127.0.0.1:8000/private/b"]     # {"action": "drop", "reason": "disallowed", "line": 2, ...}
    done["http://127.0.0.1:8000/a"]             # {"action": "pass", "status": 200, ...}
    done.records, done.stats, done.log

A request is a URL, or a dictionary with `url` and any of

    meta, headers, method, dont_filter     as in scrapy.Request
    inline      ask by `engine.download_async` instead of through the scheduler
    after       seconds after the start
    key         the name of its result, if not its URL

The same from a shell, a plan in and a report out: `python tests/hosts/scrapy/crawl.py < plan.json`.
Deferred requests are reported as such when nothing else is left to wait for, and the spider is closed; with
`see_through=True` the crawl goes on until they too are decided.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUIET = {"TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False, "RETRY_ENABLED": False}
EPOLL = "twisted.internet.epollreactor.EPollReactor"


# -- the parent's side ---------------------------------------------------------------------------------------


@dataclass
class Crawl:
    """What a crawl left behind."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    code: int = 0
    seconds: float = 0.0

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self.results[key]

    def record(self, url: str) -> dict[str, Any]:
        """The last journal record on a URL."""
        return next(record for record in reversed(self.records) if record["url"] == url)


def crawl(
    requests: Sequence[str | Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    deferred_api: bool = False,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    **plan: Any,
) -> Crawl:
    """Run a crawl. Store and journal lie in `folder` unless `settings` say otherwise.

    `deferred_api` starts it by CrawlerProcess, not AsyncCrawlerProcess. Further words of a plan: `spider` (a file
    with a class Spider), `retry_min` (seconds of the first back-off), `see_through`, `stop_after` (seconds, as by
    SIGINT), `preload` (a file run first).
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder or Path(scratch)
        journal = folder / "journal"
        chosen = {
            "ROBOTS_GUARD_AGENT": "mybot",
            "ROBOTS_GUARD_STORE": "memory:",
            "ROBOTS_GUARD_JOURNAL": str(journal),
            "ADDONS": {"robots_guard.scrapy.Addon": 500},
            **QUIET,
            **(settings or {}),
        }
        plan.update(requests=list(requests), settings=chosen, deferred_api=deferred_api)
        began = time.monotonic()
        child = subprocess.run(
            # Deprecated things may be used by Scrapy and Twisted among themselves, but not by us.
            [sys.executable, "-W", "default::DeprecationWarning", __file__],
            input=json.dumps(plan),
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **(env or {})},
        )
        done = Crawl(log=child.stderr, code=child.returncode, seconds=time.monotonic() - began)
        if child.stdout.strip():
            report = json.loads(child.stdout.splitlines()[-1])
            done.results, done.stats = report["results"], report["stats"]
        done.records = _records(journal)
        for warning in [line for line in child.stderr.splitlines() if "Deprecat" in line]:
            assert "robots_guard" not in warning, warning
        return done


def _records(journal: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted(journal.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["at"])


# -- the child's side ----------------------------------------------------------------------------------------


def _spider(plan: dict[str, Any]) -> Any:
    import scrapy
    from scrapy import signals
    from scrapy.exceptions import IgnoreRequest
    from scrapy.http.request import NO_CALLBACK
    from scrapy.utils.asyncio import call_later
    from scrapy.utils.defer import deferred_from_coro

    began = time.monotonic()

    def decided(decision: Any) -> dict[str, Any]:
        verdict = decision.verdict
        rule = {"rule": verdict.rule.text, "line": verdict.rule.line} if verdict.rule else {}
        return {"action": str(verdict.action), "reason": str(verdict.reason), "detail": verdict.detail, **rule}

    def failed(error: BaseException) -> dict[str, Any]:
        found = {"error": type(error).__name__, "message": str(error), "at": time.monotonic() - began}
        return {**found, **decided(error.decision)} if hasattr(error, "decision") else found

    def answered(response: Any) -> dict[str, Any]:
        return {
            "action": "pass",
            "status": response.status,
            "url": response.url,
            "meta": sorted(response.meta),
            "dont_filter": response.request.dont_filter,
            "at": time.monotonic() - began,
            "length": len(response.body),
        }

    class Asker(scrapy.Spider):
        name = "asker"
        results: dict[str, dict[str, Any]] = {}

        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.scheduled, signals.request_scheduled)
            crawler.signals.connect(spider.dropped, signals.request_dropped)
            if "stop_after" in plan:
                crawler.signals.connect(
                    lambda: call_later(plan["stop_after"], spider.close_early, "stopped"), signals.spider_opened, weak=False
                )
            return spider

        async def start(self) -> Any:
            for asked in plan["requests"]:
                asked = {"url": asked} if isinstance(asked, str) else dict(asked)
                inline, after, key = asked.pop("inline", False), asked.pop("after", 0), asked.pop("key", asked["url"])
                request = scrapy.Request(
                    **asked,
                    callback=NO_CALLBACK if inline else self.parse,
                    errback=None if inline else self.failed,
                    cb_kwargs={} if inline else {"key": key},
                )
                if after:
                    await self.pause(after)
                if inline:
                    await self.ask_inline(request, key)
                else:
                    self.results.setdefault(key, {"action": "waiting"})
                    yield request

        async def pause(self, seconds: float) -> None:
            from scrapy.utils.asyncio import is_asyncio_available

            if is_asyncio_available():
                await asyncio.sleep(seconds)
            else:
                from twisted.internet import reactor, task

                await task.deferLater(reactor, seconds)

        async def ask_inline(self, request: Any, key: str) -> None:
            try:
                self.results[key] = answered(await self.crawler.engine.download_async(request))
            except Exception as error:
                self.results[key] = failed(error)

        def parse(self, response: Any, key: str) -> Any:
            self.results[key] = answered(response)
            self.look_around()
            for url in (plan.get("follow") or {}).get(response.url, ()):
                self.results.setdefault(url, {"action": "waiting"})
                yield response.follow(url, callback=self.parse, errback=self.failed, cb_kwargs={"key": url})

        def failed(self, failure: Any) -> None:
            self.results[failure.request.cb_kwargs["key"]] = failed(failure.value)
            self.look_around()

        def scheduled(self, request: Any) -> None:
            key = request.cb_kwargs.get("key")
            if key is None:
                return
            if "_robots_guard_df" in request.meta:
                count = self.results[key].get("deferrals", 0) + 1
                self.results[key] = {"action": "defer", "reason": "unreachable", "deferrals": count}
                self.look_around()

        def dropped(self, request: Any) -> None:
            key = request.cb_kwargs.get("key")
            if key is not None and self.results.get(key, {}).get("action") == "waiting":
                self.results[key] = {"action": "duplicate"}

        def look_around(self) -> None:
            """Close when all that is left was put off."""
            if plan.get("see_through") or len(self.results) < len(plan["requests"]):
                return
            if all(result["action"] != "waiting" for result in self.results.values()):
                if any(result["action"] == "defer" for result in self.results.values()):
                    call_later(0, self.close_early, "only deferred requests are left")

        def close_early(self, reason: str) -> None:
            if self.crawler.engine.spider is not None:
                deferred_from_coro(self.crawler.engine.close_spider_async(reason=reason))

    return Asker


def main() -> None:
    """Do as the plan on stdin says; the report is the last line of stdout."""
    plan = json.loads(sys.stdin.read())
    from robots_guard.core import freshness
    from scrapy.crawler import AsyncCrawlerProcess, CrawlerProcess

    freshness.RETRY_MIN = plan.get("retry_min", freshness.RETRY_MIN)  # 30 s is longer than a test may last
    process = (CrawlerProcess if plan["deferred_api"] else AsyncCrawlerProcess)(plan["settings"])
    spider = _spider(plan)
    crawler = process.create_crawler(spider)
    process.crawl(crawler)
    process.start()
    print(json.dumps({"results": spider.results, "stats": crawler.stats.get_stats()}, default=str))


if __name__ == "__main__":
    main()
