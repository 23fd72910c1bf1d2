"""The URLs that a download has reached besides the judged one, found by its request and its
response."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.http import Response

from robots_guard.scrapy.guarded_request import GuardedRequests, seal_of

A, B, C, D = (f"http://{host}.test/" for host in "abcd")


class Judged:
    """The requests of a crawl, each judged when its download begins."""

    def __init__(self):
        self.requests = GuardedRequests()

    def begin(self, request):
        history = request.meta.get("redirect_urls")
        self.requests.begin(request).let_pass(seal_of(request), None, history)

    def note_passed(self, request, url):
        self.requests.of(request).reached |= {url}

    def missing(self, request, response, judged):
        guarded = self.requests.of(request)
        assert guarded.judged_url == judged
        return guarded.unjudged_urls(request, response)


@pytest.fixture
def judged():
    return Judged()


def begin_download(judged, url, history=None):
    request = Request(url, meta={} if history is None else {"redirect_urls": history})
    judged.begin(request)
    return request


def test_the_requested_url_is_not_missing(judged):
    assert judged.missing(begin_download(judged, A), Response(A), A) == []


@pytest.mark.parametrize(
    "url", ["HTTP://A.TEST", "http://a.test:80/", "http://a.test./#part", "http://someone@a.test/"]
)
def test_another_spelling_of_the_url_is_not_missing(judged, url):
    assert judged.missing(begin_download(judged, A), Response(url), A) == []


@pytest.mark.parametrize(
    "url", ["https://a.test/", "http://a.test:81/", "http://a.test/?", "http://a.test//", ""]
)
def test_another_origin_or_target_is_missing(judged, url):
    assert judged.missing(begin_download(judged, A), Response(url), A) == [url]


def test_earlier_redirects_of_scrapy_are_not_missing(judged):
    request = begin_download(judged, C, [A, B])

    assert judged.missing(request, Response(C), C) == []


def test_hops_that_a_handler_adds_are_missing(judged):
    request = begin_download(judged, C, [A, B])
    request.meta["redirect_urls"].append(D)

    assert judged.missing(request, Response(C), C) == [D]


def test_hops_of_a_history_that_a_handler_replaces_are_missing(judged):
    request = begin_download(judged, C, [A, B])
    request.meta["redirect_urls"] = [C, D]

    assert judged.missing(request, Response(B), C) == [D, B]


def test_a_passed_url_is_missing_again_in_the_next_download(judged):
    request = begin_download(judged, A)
    request.meta["redirect_urls"] = [A, B]
    response = Response(C)
    assert judged.missing(request, response, A) == [B, C]
    judged.note_passed(request, C)
    assert judged.missing(request, response, A) == [B]

    judged.begin(request)
    request.meta["redirect_urls"] = [A, B]
    assert judged.missing(request, response, A) == [B, C]


def test_a_request_that_was_not_judged_is_missing_itself(judged):
    assert judged.missing(Request(A), Response(A), None) == [A]


@pytest.mark.parametrize("history", ["text", 7, [None, 3], {"a": 1}])
def test_an_invalid_history_is_ignored(judged, history):
    request = begin_download(judged, A)
    request.meta["redirect_urls"] = history

    assert judged.missing(request, Response(A), A) == []
