"""What a download has reached beside what was judged, told from its request and its answer."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.http import Response

from robots_guard.scrapy.reached import Judged

A, B, C, D = (f"http://{host}.test/" for host in "abcd")


@pytest.fixture
def judged():
    return Judged()


def asked(judged, url, history=None):
    request = Request(url, meta={} if history is None else {"redirect_urls": history})
    judged.begin(request)
    return request


def test_nothing_is_missing_of_what_was_asked_for(judged):
    assert judged.missing(asked(judged, A), Response(A), A) == []


@pytest.mark.parametrize(
    "url", ["HTTP://A.TEST", "http://a.test:80/", "http://a.test./#part", "http://someone@a.test/"]
)
def test_nor_if_it_is_only_spelt_otherwise(judged, url):
    assert judged.missing(asked(judged, A), Response(url), A) == []


@pytest.mark.parametrize("url", ["https://a.test/", "http://a.test:81/", "http://a.test/?", "http://a.test//", ""])
def test_another_origin_or_target_is(judged, url):
    assert judged.missing(asked(judged, A), Response(url), A) == [url]


def test_hops_that_redirects_of_scrapys_have_made_were_judged_when_they_were_requests(judged):
    request = asked(judged, C, [A, B])

    assert judged.missing(request, Response(C), C) == []


def test_hops_that_a_handler_adds_were_not(judged):
    request = asked(judged, C, [A, B])
    request.meta["redirect_urls"].append(D)

    assert judged.missing(request, Response(C), C) == [D]


def test_nor_those_that_it_puts_in_their_place(judged):
    request = asked(judged, C, [A, B])
    request.meta["redirect_urls"] = [C, D]

    assert judged.missing(request, Response(B), C) == [D, B]


def test_what_was_let_pass_is_not_asked_for_twice_in_one_download_but_in_the_next(judged):
    request = asked(judged, A)
    request.meta["redirect_urls"] = [A, B]
    answer = Response(C)
    assert judged.missing(request, answer, A) == [B, C]
    judged.note_passed(request, C)
    assert judged.missing(request, answer, A) == [B]

    judged.begin(request)
    request.meta["redirect_urls"] = [A, B]
    assert judged.missing(request, answer, A) == [B, C]


def test_a_request_that_was_not_judged_is_missing_itself(judged):
    assert judged.missing(Request(A), Response(A), None) == [A]


@pytest.mark.parametrize("odd", ["text", 7, [None, 3], {"a": 1}])
def test_a_history_that_is_none_is_passed_over(judged, odd):
    request = asked(judged, A)
    request.meta["redirect_urls"] = odd

    assert judged.missing(request, Response(A), A) == []
