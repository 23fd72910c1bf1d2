"""The states of one Scrapy request, and the map that has them."""

from __future__ import annotations

import gc
import re
import typing
from weakref import ref

import pytest
from scrapy import Request

from robots_guard.scrapy import guarded_request
from robots_guard.scrapy.guarded_request import (
    TRANSITIONS,
    GuardedRequest,
    GuardedRequests,
    State,
    seal_of,
)

STATES = typing.get_args(State)
URL = "http://a.test/page"


def test_the_state_diagram_matches_the_table():
    drawn = re.findall(r"^ +(\w+) +-> (\w+)", guarded_request.__doc__, re.MULTILINE)

    assert sorted(drawn) == sorted(
        (state, following) for state, all_ in TRANSITIONS.items() for following in all_
    )
    assert set(TRANSITIONS) == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_only_a_request_that_has_passed_is_sent(state):
    guarded = GuardedRequest(state=state)

    if state == "PASSED":
        guarded.send()
        assert guarded.state == "SENT"
    else:
        with pytest.raises(AssertionError, match=f"{state} cannot be SENT"):
            guarded.send()


@pytest.mark.parametrize("state", STATES)
def test_an_object_that_is_out_twice_can_be_judged_in_each_state(state):
    request = Request(URL)
    for step, expected in [
        (lambda guarded: guarded.refuse(), "REFUSED"),
        (lambda guarded: guarded.wait(), "WAITING"),
        (lambda guarded: guarded.let_pass(seal_of(request), None), "PASSED"),
        (lambda guarded: guarded.begin(), "NEW"),
    ]:
        guarded = GuardedRequest(state=state)
        step(guarded)
        assert guarded.state == expected


def test_only_an_unchanged_request_that_has_passed_is_sealed():
    request = Request(URL)
    guarded = GuardedRequest()
    assert not guarded.is_sealed(request)

    guarded.let_pass(seal_of(request), None)
    assert guarded.is_sealed(request)

    request.headers["Host"] = "b.test"
    assert not guarded.is_sealed(request)
    guarded.let_pass(seal_of(request), None)
    assert guarded.is_sealed(request)
    guarded.refuse()
    assert not guarded.is_sealed(request)


def test_a_copy_is_another_request():
    requests = GuardedRequests()
    request = Request(URL)
    requests.begin(request).let_pass(seal_of(request), None)

    assert requests.of(request).state == "PASSED"
    assert requests.of(request.replace()).state == "NEW"


def test_a_new_download_knows_nothing_of_the_last_response():
    request = Request(URL, meta={"redirect_urls": [URL]})
    guarded = GuardedRequest(
        state="ANSWERED", is_scheduled=True, reached={URL}, validated=[("a", "b")]
    )
    guarded.let_pass(seal_of(request), None, request.meta["redirect_urls"])
    assert guarded.history == ([URL], 1)

    guarded.begin()

    seal = seal_of(request)
    assert repr(guarded) == repr(GuardedRequest(is_scheduled=True, seal=seal))


# `_known` shows in nothing else.
def test_no_request_is_kept_alive():
    requests = GuardedRequests()
    request = Request(URL, meta={"redirect_urls": [URL]})
    requests.begin(request).let_pass(seal_of(request), None)
    kept = ref(request)

    del request
    gc.collect()

    assert kept() is None
    assert not requests._known
