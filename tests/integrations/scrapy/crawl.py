"""Runs one real crawl in a separate process and reports the outcome of each request.

    from integrations.scrapy.crawl import crawl

    done = crawl(["http://127.0.0.1:8000/a", "http://127.0.0.1:8000/private/b"], {"ROBOTS_GUARD_AGENT": "mybot"})
    done["http://127.0.0.1:8000/private/b"]     # {"action": "drop", "reason": "disallowed", "line": 2, ...}
    done["http://127.0.0.1:8000/a"]             # {"action": "pass", "status": 200, ...}
    done.records, done.stats, done.log          # the audit log, Scrapy's stats, its log

A request is a URL, or a dictionary with `url` and any of

    meta, headers, method, body, dont_filter     as in scrapy.Request
    key         the name of its result, if not its URL
    inline      downloaded by `engine.download_async`, which bypasses the scheduler, before the next request begins
    cancelled   seconds after which an inline request is cancelled

From a shell: `python tests/integrations/scrapy/crawl.py < plan.json`, which prints the report. When only
deferred requests are left, they are reported as deferred, and the spider is closed; with
`see_through=True` the crawl goes on until they are decided, too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from support.audit_log import decisions, signals
from support.preloaded import Preloaded
from support.waiting import eventually

QUIET = {"TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False, "RETRY_ENABLED": False}
EPOLL = "twisted.internet.epollreactor.EPollReactor"
TESTS = Path(__file__).parents[2]
COMMAND = Path(__file__).with_name("command.py")
SCRAPY = tuple(int(part) for part in version("scrapy").split(".")[:2])
#: The ways Scrapy runs coroutines, as arguments of `crawl`.
MODES: dict[str, dict[str, Any]] = {
    "asyncio reactor": {"settings": {}},
    "epoll reactor": {"settings": {"TWISTED_REACTOR": EPOLL}, "deferred_api": True},
    "no reactor": {"settings": {"TWISTED_REACTOR_ENABLED": False}},
}
if SCRAPY < (2, 15):  # which cannot run without a reactor
    del MODES["no reactor"]


#: A process with a crawl's imports, except Twisted's reactor, which each crawl chooses.
_FORKS = Preloaded(
    ["-W", "default::DeprecationWarning"],
    [
        "robots_guard.audit.write.log",
        "robots_guard.guard.fetch.http",
        "robots_guard.scrapy.middleware",
        "robots_guard.guard.stores.memory",
        "robots_guard.guard.stores.sqlite",
        "scrapy.crawler",
        "scrapy.core.downloader.handlers.ftp",
        "scrapy.downloadermiddlewares.cookies",
        "scrapy.extensions.feedexport",
        "scrapy.extensions.telnet",
    ],
)


# -- the parent's side -----------------------------------------------------------------------------


@dataclass
class Crawl:
    """The results of a crawl."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)  # records on responses
    items: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    code: int = 0
    seconds: float = 0.0

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self.results[key]

    def verdict(self, key: str) -> tuple[str, str | None]:
        """Action and reason of a result."""
        result = self.results[key]
        return result["action"], result.get("reason")

    def record(self, url: str) -> dict[str, Any]:
        """The last audit log record on a URL."""
        return next(record for record in reversed(self.records) if record["url"] == url)


def crawl(
    requests: Sequence[str | Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    deferred_api: bool = False,
    timeout: float = 150,
    env: Mapping[str, str] | None = None,
    **plan: Any,
) -> Crawl:
    """Run a crawl. Its audit log is in `folder`, its store in memory, unless `settings` say
    otherwise.

    `deferred_api` starts it by CrawlerProcess instead of AsyncCrawlerProcess. Further keys of a
    plan:

        spider          attributes of the spider, such as {"allowed_domains": [...]}
        follow          {URL: [URLs to request from its page]}
        items           {URL: items to make from its page}
        files           URLs for a FilesPipeline, in an item made from the first page
        retry_min       seconds of the first back-off, by default 30
        parked          the maximum of requests that GuardScheduler parks
        remembered      the maximum of origins that the gate remembers
        see_through     do not close while requests are deferred
        stop_after      seconds after which the crawl is stopped as by SIGINT
        stop_after_last the same, but counted from when the last of the requests has been scheduled
        stop_when       URLs; when all of them have been decided, the crawl is stopped likewise
        no_dns          no name resolves
        public          a network that counts as public
    """
    with tempfile.TemporaryDirectory() as scratch:
        audit_log = (folder or Path(scratch)) / "audit_log"
        plan.update(
            requests=list(requests),
            settings=crawl_settings(settings, audit_log),
            deferred_api=deferred_api,
        )
        began = time.monotonic()
        child = _FORKS.run([__file__], crawl_environment(env), timeout, json.dumps(plan))
        _refuse_warnings(child.stderr)
        done = Crawl(log=child.stderr, code=child.returncode, seconds=time.monotonic() - began)
        if child.stdout.strip():
            report = json.loads(child.stdout.splitlines()[-1])
            done.results, done.stats = report["results"], report["stats"]
            done.items = report["items"]
        done.records = decisions(audit_log)
        done.signals = signals(audit_log)
        return done


def crawl_settings(settings: Mapping[str, Any] | None, audit_log: Path) -> dict[str, Any]:
    return {
        "ROBOTS_GUARD_AGENT": "mybot",
        "ROBOTS_GUARD_STORE": "memory:",
        "ROBOTS_GUARD_AUDIT_LOG": str(audit_log),
        "ADDONS": {"robots_guard.scrapy.Addon": 500},
        "ROBOTSTXT_OBEY": True,  # as in every project made by `scrapy startproject`
        **QUIET,
        **(settings or {}),
    }


def crawl_together(
    request_lists: Sequence[Sequence[str]],
    settings: Mapping[str, Any],
    folder: Path,
) -> list[int]:
    """Run several crawls at once, which begin when all are ready. Returns their exit statuses.

    Logs and audit logs are in `folder`.
    """
    crawls = []
    for number, requests in enumerate(request_lists):
        subfolder = folder / str(number)
        subfolder.mkdir()
        plan = {
            "requests": list(requests),
            "settings": crawl_settings(settings, subfolder / "audit_log"),
            "deferred_api": False,
            "see_through": True,
            "ready": [str(subfolder / "ready"), str(folder / "go")],
        }
        (subfolder / "plan").write_text(json.dumps(plan))
        with (subfolder / "plan").open() as stdin, (subfolder / "log").open("w") as log:
            streams = {"stdin": stdin.fileno(), "stdout": log.fileno(), "stderr": log.fileno()}
            crawls.append(_FORKS.start([__file__], crawl_environment(), **streams))
    with ExitStack() as ends:
        for each in crawls:
            ends.enter_context(each)
        eventually(
            lambda: (
                len([*folder.glob("*/ready")]) == len(crawls) or any(each.poll() for each in crawls)
            )
        )
        (folder / "go").touch()
        return [each.wait(150) for each in crawls]


def shortest_gap(site: Any) -> float:
    """The shortest time in seconds between two requests for pages, as the origin received them."""
    at = sorted(request.at for request in site.received if request.target != "/robots.txt")
    return min(later - earlier for earlier, later in itertools.pairwise(at))


def crawl_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **(more or {})}


def run_scrapy(
    folder: Path, *arguments: str, timeout: float = 150
) -> subprocess.CompletedProcess[str]:
    """Run the command `scrapy` in a folder, as a fork."""
    return fork(str(COMMAND), str(folder), *arguments, timeout=timeout)


def fork(*command: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
    """Run a Python script as a fork of a process that has imported Scrapy."""
    child = _FORKS.run(command, crawl_environment(), timeout)
    _refuse_warnings(child.stderr)
    return child


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with the tests importable.

    Scrapy may use deprecated features, the package may not.
    """
    child = subprocess.run(
        [sys.executable, "-W", "default::DeprecationWarning", *arguments],
        capture_output=True,
        text=True,
        env=crawl_environment(options.pop("env", None)),
        check=False,
        **options,
    )
    _refuse_warnings(child.stderr)
    return child


def _refuse_warnings(log: str) -> None:
    warnings = [
        line for line in log.splitlines() if "Warning:" in line and "/robots_guard/" in line
    ]
    assert not warnings, warnings


# -- the child's side ------------------------------------------------------------------------------


def _decision_result(decision: Any) -> dict[str, Any]:
    verdict = decision.verdict
    rule = {"rule": verdict.rule.text, "line": verdict.rule.line} if verdict.rule else {}
    return {
        "action": str(verdict.action),
        "reason": str(verdict.reason),
        "detail": verdict.detail,
        **rule,
    }


def _error_result(error: BaseException) -> dict[str, Any]:
    result = {"action": "error", "error": type(error).__name__, "message": str(error)}
    if hasattr(error, "decision"):
        result.update(_decision_result(error.decision))
    return result


def _response_result(response: Any) -> dict[str, Any]:
    return {
        "action": "pass",
        "status": response.status,
        "url": response.url,
        "meta": sorted(response.meta),
        "dont_filter": response.request.dont_filter,
        "priority": response.request.priority,
        "length": len(response.body),
        "signals": response.meta.get("robots_guard_signals"),
        "cached": "cached" in response.flags,
    }


def _spider_class(plan: dict[str, Any]) -> Any:
    import scrapy
    from scrapy import signals
    from scrapy.http.request import NO_CALLBACK
    from scrapy.utils.asyncio import call_later
    from scrapy.utils.defer import deferred_from_coro

    from robots_guard.scrapy.guarded_request import DEFERRAL

    class PlanSpider(scrapy.Spider):
        name = "plan"

        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.on_scheduled, signals.request_scheduled)
            crawler.signals.connect(spider.on_dropped, signals.request_dropped)
            crawler.signals.connect(spider.on_item, signals.item_scraped)
            return spider

        async def start(self) -> AsyncIterator[Any]:
            self.start_time = time.monotonic()
            if "stop_after" in plan:
                call_later(plan["stop_after"], self.close_early, "stopped")
            for number, given in enumerate(plan["requests"]):
                options = {"url": given} if isinstance(given, str) else dict(given)
                key = options.pop("key", options["url"])
                self.remaining = len(plan["requests"]) - number - 1
                if options.pop("inline", False):
                    await self.download_inline(key, options)
                else:
                    yield self.make_request(key, options)
            if "stop_after_last" in plan:
                call_later(plan["stop_after_last"], self.close_early, "stopped")

        def make_request(self, key: str, options: dict[str, Any]) -> Any:
            results[key] = {"action": "waiting"}
            return scrapy.Request(
                **options,
                callback=self.parse,
                errback=self.on_error,
                cb_kwargs={"key": key},
            )

        async def download_inline(self, key: str, options: dict[str, Any]) -> None:
            cancel_after = options.pop("cancelled", None)
            download = self.crawler.engine.download_async(
                scrapy.Request(**options, callback=NO_CALLBACK)
            )
            if cancel_after:
                download = asyncio.wait_for(download, cancel_after)
            try:
                self.record(key, _response_result(await download))
            except Exception as error:  # noqa: BLE001  any exception is the result
                self.record(key, _error_result(error))

        def parse(self, response: Any, key: str) -> Iterator[Any]:
            self.record(key, _response_result(response))
            yield from plan.get("items", {}).get(response.url, ())
            if "files" in plan:
                yield {"file_urls": plan.pop("files")}
            for url in plan.get("follow", {}).get(response.url, ()):
                yield self.make_request(url, {"url": url, "meta": getattr(self, "meta", {})})

        def on_error(self, failure: Any) -> None:
            annotation = failure.request.meta.get("robots_guard_signals")
            result = {**_error_result(failure.value), "signals": annotation}
            self.record(failure.request.cb_kwargs["key"], result)

        def on_item(self, item: Any) -> None:
            items.append(dict(item))

        def on_scheduled(self, request: Any) -> None:
            key = request.cb_kwargs.get("key")
            # Without this value it is sent back while its policy is fetched, without a verdict.
            if key is not None and DEFERRAL in request.meta:
                count = results[key].get("deferrals", 0) + 1
                self.record(key, {"action": "defer", "reason": "unreachable", "deferrals": count})

        def on_dropped(self, request: Any) -> None:
            self.record(request.cb_kwargs["key"], {"action": "duplicate"})

        def record(self, key: str, result: dict[str, Any]) -> None:
            """Record a result. Closes the spider when only deferred requests are left."""
            before = results.get(key, {})
            results[key] = {
                "deferrals": before.get("deferrals", 0),
                **result,
                "at": time.monotonic() - self.start_time,
            }
            if "stop_when" in plan and all(
                results.get(url, {}).get("action") in ("pass", "drop") for url in plan["stop_when"]
            ):
                call_later(0, self.close_early, "all requests of stop_when are decided")
                return
            actions = {result["action"] for result in results.values()}
            is_waiting = plan.get("see_through") or self.remaining or "waiting" in actions
            if not is_waiting and "defer" in actions:
                call_later(0, self.close_early, "only deferred requests are left")

        def close_early(self, reason: str) -> None:
            if self.crawler.engine.spider is not None:
                deferred_from_coro(self.crawler.engine.close_spider_async(reason=reason))

    results: dict[str, dict[str, Any]] = {}
    items: list[dict[str, Any]] = []
    PlanSpider.results = results
    PlanSpider.items = items
    for name, value in plan.get("spider", {}).items():
        setattr(PlanSpider, name, value)
    return PlanSpider


def _no_dns() -> None:
    import socket

    resolve = socket.getaddrinfo

    def addresses_only(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host and not str(host).replace(".", "").isdigit():
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return resolve(host, *args, **kwargs)

    socket.getaddrinfo = addresses_only


def _make_public(network: str) -> None:
    from ipaddress import ip_network

    from robots_guard.guard.fetch import destinations
    from robots_guard.scrapy.fetch import fetcher

    public, is_public = ip_network(network), destinations.is_public
    destinations.is_public = fetcher.is_public = lambda address: (
        address in public or is_public(address)
    )


def main() -> None:
    """Run the plan on stdin; the report is the last line of stdout."""
    plan = json.loads(sys.stdin.read())
    from scrapy.crawler import AsyncCrawlerProcess, CrawlerProcess

    from robots_guard.decisions import freshness

    # By default longer than a test, so that a request which is deferred stays so.
    freshness.RETRY_MIN = plan.get("retry_min", 30.0)
    if "parked" in plan:
        from robots_guard.scrapy.deferral import scheduler

        scheduler.MAX_PARKED = plan["parked"]
    if "remembered" in plan:
        from robots_guard.scrapy.deferral import gate

        gate.REMEMBERED = plan["remembered"]
    if plan.get("no_dns"):
        _no_dns()
    if "public" in plan:
        _make_public(plan["public"])
    process = (CrawlerProcess if plan["deferred_api"] else AsyncCrawlerProcess)(plan["settings"])
    spider = _spider_class(plan)
    if "ready" in plan:
        ready, go = map(Path, plan["ready"])
        ready.touch()
        eventually(go.exists)
    crawler = process.create_crawler(spider)
    process.crawl(crawler)
    process.start()
    report = {
        "results": spider.results,
        "items": spider.items,
        "stats": crawler.stats.get_stats(),
    }
    print(json.dumps(report, default=str))


if __name__ == "__main__":
    main()
