"""Closing a wrapped scheduler that cannot take back parked requests."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

from scrapy import Request

from robots_guard.scrapy.deferral.buckets import Buckets
from robots_guard.scrapy.deferral.scheduler import GuardScheduler, Leftovers

# A test sets the private `_parked` and `_count`: a scheduler is filled by a whole crawl otherwise.


class Picky:
    """A scheduler that cannot serialize some requests, like a queue on disk or in Redis."""

    def __init__(self):
        self.back, self.closed = [], ""

    def enqueue_request(self, request):
        if "odd" in request.url:
            raise ValueError("cannot be serialized")
        self.back.append(request.url)
        return True

    def close(self, reason):
        self.closed = reason


def test_one_request_that_cannot_be_handed_back_loses_no_others(caplog):
    wrapped = Picky()
    no_job = SimpleNamespace(settings={"JOBDIR": None})
    gate = SimpleNamespace(attach=lambda size: Buckets(lambda _origin, _group: True, size))
    scheduler = GuardScheduler(wrapped, gate, Leftovers(no_job))
    urls = [f"http://a.test/{name}?token=secret" for name in ("1", "odd", "3")]
    scheduler._parked, scheduler._count = {"a.test": deque(map(Request, urls))}, 3

    scheduler.close("finished")

    assert wrapped.back == [urls[0], urls[2]]
    assert wrapped.closed == "finished"
    assert "did not take them back: 1" in caplog.text
    assert "http://a.test/odd" in caplog.text
    assert "secret" not in caplog.text
