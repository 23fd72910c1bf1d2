"""Waiting limits: a crawl ends when all that is left may be requested much later only, and keeps it.

No request is made early.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from integrations.scrapy.crawl import crawl, run_scrapy
from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.crawler import Crawler

from robots_guard.decisions.access import Failed, Failure, Scope
from robots_guard.decisions.component import Component
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import REASONS, Action, Decision, Question, Verdict
from robots_guard.origin import origin_of
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.deferral.waiting_limits import (
    CLOSE_REASON,
    DEAD_HOST_WAIT,
    WaitingLimits,
    is_for_one_page,
)
from robots_guard.testing import Reply

# `limits._gate` is private: it is the gate to which a crawl would send requests back.

RULES = "User-agent: *\nDisallow: /private/\n"
PROJECT = """
import scrapy

LOG_LEVEL = "WARNING"
SPIDER_MODULES = ["project"]
ADDONS = {{"robots_guard.scrapy.Addon": 500}}
ROBOTS_GUARD_AGENT = "mybot"
ROBOTS_GUARD_STORE = "memory:"
ROBOTS_GUARD_AUDIT_LOG = {folder!r}


class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        pass
"""
OWN_QUEUE = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}
A = origin_of("http://a.test")


IN_TEN_HOURS = datetime.now(UTC) + timedelta(hours=10)
NOT_NOW = (
    f"User-agent: *\nVisit-time: {IN_TEN_HOURS:%H%M}-{IN_TEN_HOURS + timedelta(minutes=9):%H%M}\n"
)


@pytest.mark.parametrize("queue", [{}, OWN_QUEUE], ids=["the guard's queue", "a wrapped queue"])
def test_a_crawl_does_not_wait_for_hours_and_keeps_what_is_left(net, tmp_path, queue):
    texts = [NOT_NOW]
    closed, other = net.origin(lambda _: Reply(body=texts[-1])), net.origin(RULES)
    pages = [f"{site.url}/{number}" for site in (closed, other) for number in range(5)]
    job = {"JOBDIR": str(tmp_path), **queue}

    first = crawl(pages, job, see_through=True)

    assert first.stats["finish_reason"] == CLOSE_REASON
    assert closed.targets == []
    assert sorted(other.targets) == [f"/{number}" for number in range(5)]
    warnings = [line for line in first.log.splitlines() if "The crawl ends with" in line]
    assert len(warnings) == 1
    assert "WARNING: The crawl ends with 5 deferred requests not made" in warnings[0]
    assert f"{closed.url} (5, not before {IN_TEN_HOURS:%Y-%m-%d %H:%M}:00 UTC)" in warnings[0]
    assert "JOBDIR keeps them for the next run" in warnings[0]

    texts.append(RULES)
    second = crawl([], job, see_through=True)

    assert second.stats["finish_reason"] == "finished"
    assert sorted(closed.targets) == [f"/{number}" for number in range(5)]


def test_a_crawl_waits_up_to_max_idle(net):
    """A delay between requests is waited for if it is shorter."""
    slow = net.origin("User-agent: *\nCrawl-delay: 2\n")
    pages = [f"{slow.url}/{number}" for number in range(3)]

    patient = crawl(pages[:2], {"ROBOTS_GUARD_MAX_IDLE": 4}, see_through=True)
    impatient = crawl(pages, {"ROBOTS_GUARD_MAX_IDLE": 0.5}, see_through=True)

    assert [patient[page]["status"] for page in pages[:2]] == [200, 200]
    assert impatient.stats["finish_reason"] == CLOSE_REASON
    assert "set JOBDIR; to wait longer, ROBOTS_GUARD_MAX_IDLE" in impatient.log


@pytest.mark.parametrize(
    "command",
    [
        ["fetch"],
        ["parse", "--spider", "pages"],
        ["shell", "-c", "print('RESPONSE', response)"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_for_one_page_does_not_wait(net, tmp_path, command):
    site = net.origin(NOT_NOW)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = project\n")
    (tmp_path / "project.py").write_text(PROJECT.format(folder=str(tmp_path)))
    name, *rest = command

    child = run_scrapy(tmp_path, name, *rest, f"{site.url}/a")

    assert f"WARNING: {site.url}/a is given up: it may be requested in" in child.stderr
    assert "a command for one page does not wait longer than 25 s" in child.stderr
    assert site.targets == []


def test_a_shell_makes_a_request_of_its_responses_own_request(net, tmp_path):
    """The shell waits for a request by its callback, which a copy of the request would have, too."""
    site = net.origin("User-agent: *\nAllow: /\n")
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = project\n")
    (tmp_path / "project.py").write_text(PROJECT.format(folder=str(tmp_path)))
    code = f"fetch('{site.url}/a') or fetch(response.request.replace(url='{site.url}/b'))"

    child = run_scrapy(tmp_path, "shell", "-c", code)

    assert child.returncode == 0, child.stderr
    assert site.targets == ["/a", "/b"]


def test_a_spider_that_adds_requests_when_it_is_idle(net):
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/a"],
        {"EXTENSIONS": {"integrations.scrapy.components.CrawlsWhenIdle": 0}},
        spider={"site": site.url},
    )

    assert site.targets == ["/a", "/1", "/0"]
    assert done.stats["finish_reason"] == "finished"
    assert "log_count/ERROR" not in done.stats


# -- one decision ---------------------------------------------------------------------------------------------


@pytest.fixture
def limits() -> WaitingLimits:
    crawler = Crawler(Spider)
    crawler.crawling = True
    return WaitingLimits(crawler, OriginGate.of(crawler), 60.0)


def failing(
    failure: Failure, before: Decision | None = None, *, at: float = 1000.0, route: str = ""
) -> Decision:
    """A deferral because a robots.txt has failed, at `at` or once more after an earlier one."""
    cached = None
    if before is not None:
        cached, at = before.policy, before.verdict.until
    failed = Failed(failure=failure, about=Scope.ROUTE if route else None, route=route)
    policy = begin(A, cached, "direct").next(failed, at).policy
    reason = REASONS[policy.trouble.scope]
    verdict = Verdict(action=Action.DEFER, reason=reason, until=policy.trouble.retry_at)
    return Decision(
        id="1-1",
        at=at,
        component=Component.SCRAPY,
        question=Question(origin=A, target="/a", agent="mybot"),
        verdict=verdict,
        policy=policy,
    )


def failing_for_half_a_minute(failure: Failure, route: str = "") -> list[Decision]:
    tries = [failing(failure, route=route)]
    while tries[-1].at < 1031:
        tries.append(failing(failure, tries[-1], route=route))
    return tries


@pytest.mark.parametrize(
    ("failure", "route", "cause"),
    [
        (Failure.DNS, "", "its host name has not been resolved"),
        (Failure.CONNECT, "", "no connection to it could be made"),
        (
            Failure.CONNECT,
            "127.0.0.1:3128",
            "no connection to it could be made (through 127.0.0.1:3128)",
        ),
        (Failure.TIMEOUT, "", ""),
    ],
)
def test_a_dead_host_is_tried_for_half_a_minute(limits, caplog, failure, route, cause):
    request = Request("http://a.test/a")
    tries = failing_for_half_a_minute(failure, route)

    assert all(limits.can_wait(request, each) for each in tries[:-1])
    assert len(tries) == 6
    assert limits.can_wait(request, tries[-1]) is not bool(cause)
    assert limits.can_wait(request, tries[-1]) is not bool(cause)
    assert tries[-1].verdict.until - 1000 > DEAD_HOST_WAIT
    lasted = tries[-1].at - 1000
    text = f"http://a.test/a is given up: {cause} for {lasted:.0f} s"
    assert (text in caplog.text) is bool(cause)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(cause)


def test_a_dead_proxy_among_others_is_no_dead_host(limits, monkeypatch):
    """The next try may take another one."""
    monkeypatch.setattr("robots_guard.scrapy.deferral.gate.call_later", lambda *_: None)
    request = Request("http://a.test/a")
    for route in ("127.0.0.1:3128", "127.0.0.2:3128"):
        limits._gate.send_back(request, failing(Failure.CONNECT, route=route))

    tries = failing_for_half_a_minute(Failure.CONNECT, "127.0.0.1:3128")

    assert all(limits.can_wait(request, each) for each in tries)


def test_what_another_crawl_has_waited_does_not_count(limits):
    """The host may be back, and the stored failure is soon tried again."""
    tries = failing_for_half_a_minute(Failure.CONNECT)
    later = replace(tries[-1], at=tries[-1].verdict.until - 10)

    assert limits.can_wait(Request("http://a.test/a"), later)


def test_only_commands_for_one_page_are_hurried():
    crawler = Crawler(Spider)
    assert is_for_one_page(crawler), "the shell does not crawl"
    crawler.crawling = True
    assert not is_for_one_page(crawler)
