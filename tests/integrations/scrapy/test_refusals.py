"""Which refusals of a crawl are logged at which level, and what the summary says."""

from __future__ import annotations

import logging

import pytest
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Question, Verdict
from robots_guard.origin import Origin
from robots_guard.scrapy import refusals
from robots_guard.scrapy.refusals import RefusalLog


class FakeCrawler:
    def __init__(self):
        self.settings = Settings()
        self.stats = MemoryStatsCollector(self)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "robots_guard")
    return RefusalLog(FakeCrawler())


def refusal(host, reason=Reason.DISALLOWED, action=Action.DROP, *, sent=False):
    question = Question(origin=Origin("http", host, 80), target="/x", agent="mybot", sent=sent)
    verdict = Verdict(action=action, reason=reason)
    return Decision(id="1-1", at=0.0, component="scrapy", question=question, verdict=verdict)


def test_only_the_first_refusal_of_each_origin_is_above_debug(log, caplog):
    for each in (
        refusal("a.test", Reason.UNREACHABLE, Action.DEFER),
        refusal("a.test"),
        refusal("a.test"),
        refusal("b.test"),
        refusal("b.test", Reason.UNREACHABLE, Action.DEFER),
        refusal("b.test", Reason.UNREACHABLE, Action.DEFER),
        refusal("c.test", Reason.LINK_NOFOLLOW),
        refusal("b.test", sent=True),
    ):
        log.report(each)

    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "DEBUG", "INFO", "INFO", "DEBUG", "DEBUG", "WARNING"]


def test_the_summary_counts_by_origin_and_reason(log, caplog):
    for _ in range(3):
        log.report(refusal("a.test"))
    log.report(refusal("a.test", Reason.UNREACHABLE))
    log.report(refusal("b.test"))
    log.report(refusal("c.test", Reason.UNREACHABLE, Action.DEFER))
    log.summarise()

    assert caplog.records[-1].levelname == "INFO"
    assert caplog.messages[-1] == (
        "dropped 5 requests:\n  http://a.test: 3 disallowed, 1 unreachable\n  http://b.test: 1 disallowed"
    )


def test_a_crawl_without_drops_has_no_summary(log, caplog):
    log.report(refusal("c.test", Reason.UNREACHABLE, Action.DEFER))
    log.summarise()

    assert len(caplog.records) == 1


def test_log_and_memory_are_bounded(log, caplog, monkeypatch):
    monkeypatch.setattr(refusals, "COUNTED_ORIGINS", 30)
    for number in range(50):
        log.report(refusal(f"h{number}.test"))
        log.report(refusal(f"h{number}.test", Reason.UNREACHABLE, Action.DEFER))
    log.summarise()

    loud = [record for record in caplog.records[:-1] if record.levelno > logging.DEBUG]
    assert len(loud) == 60
    lines = caplog.messages[-1].splitlines()
    assert lines[0] == "dropped 50 requests:"
    assert len(lines) == 1 + refusals.SHOWN_ORIGINS + 1
    assert lines[-1] == "  other origins: 30 disallowed"
