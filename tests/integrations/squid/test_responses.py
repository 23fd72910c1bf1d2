"""Responses behind Squid: a site asks to wait, or states that its page may not be used."""

from __future__ import annotations

import json

import pytest
from integrations.squid.conftest import get
from integrations.squid.process import squid

from robots_guard.testing import Reply

BUSY = {
    f"/{status}": Reply(status=status, headers=(("Retry-After", "60"),), body=b"busy")
    for status in (402, 429, 503)
}


@pytest.mark.parametrize("status", [402, 429, 503])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_retry_after_pauses_the_origin(integration, sites, scheme, status):
    site = sites.start(scheme, pages=BUSY)
    answer = get(integration, site, f"/{status}")
    assert (answer.status, answer.body) == (status, b"busy")
    answer = get(integration, site, "/open")
    assert ("defer" in answer.guard, answer.status) == (True, 429), answer
    assert 50 <= int(answer.headers["retry-after"]) <= 61
    assert site.origin.targets == [f"/{status}"]


def test_a_503_without_retry_after_is_no_pause(integration, sites):
    site = sites.start("http", pages={"/503": Reply(status=503)})
    assert get(integration, site, "/503").status == 503
    assert get(integration, site, "/open").status == 200


def test_the_site_gets_the_request_of_the_client(integration, site):
    """Neither the id of the decision nor anything else of the guard or of Squid is added."""
    fields = "User-Agent: me/1\r\nX-Mine: 1\r\nAccept: text/html\r\n"
    assert get(integration, site, "/open?a=%7e", fields=fields).status == 200
    received = site.origin.received[-1]
    assert received.target == "/open?a=%7e"
    assert received.headers == {
        "user-agent": "me/1",
        "x-mine": "1",
        "accept": "text/html",
        "host": site.authority,
        "connection": received.headers["connection"],
    }


def test_the_client_gets_the_response_of_the_site(integration, sites):
    page = Reply(headers=(("X-Robots-Tag", "noindex"), ("X-Mine", "1")), body=b"page")
    site = sites.start("http", pages={"/page": page})
    answer = get(integration, site, "/page")
    assert (answer.status, answer.body, answer.headers["x-mine"]) == (200, b"page", "1")
    assert not {"via", "x-cache", "x-cache-lookup", "x-robots-guard-decision"} & set(answer.headers)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_site_cannot_state_what_robots_guard_found(integration, sites, scheme):
    """Clients may trust the field `Robots-Guard-Signals`."""
    forged = Reply(headers=(("Robots-Guard-Signals", "ai-train=y"),), body=b"page")
    site = sites.start(scheme, pages={"/page": forged})
    answer = get(integration, site, "/page")
    assert (answer.status, answer.body) == (200, b"page")
    assert "robots-guard-signals" not in answer.headers


# -- signals -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searching(ca_file, tmp_path_factory):
    """A Squid of an operator that has declared a purpose."""
    folder = tmp_path_factory.mktemp("purposes")
    with squid(folder, upstream_ca=ca_file, purposes="search", audit="all") as started:
        yield started


SIGNED = {
    "/noindex": Reply(headers=(("X-Robots-Tag", "noindex"),), body=b"secret"),
    "/other": Reply(headers=(("X-Robots-Tag", "otherbot: noindex"),), body=b"page"),
    "/plain": Reply(body=b"page"),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_page_that_may_not_be_used_is_refused(searching, sites, scheme):
    site = sites.start(scheme, pages=SIGNED)
    answer = get(searching, site, "/noindex")
    assert answer.status == 403
    assert b"secret" not in answer.body
    assert "search" in json.loads(answer.body)["denied"]
    assert "usage-reserved" in answer.guard
    for target in ("/other", "/plain"):
        answer = get(searching, site, target)
        assert (answer.status, answer.body) == (200, b"page")
    assert site.origin.targets == ["/noindex", "/other", "/plain"]


def test_a_refusal_before_the_request_says_what_was_found(searching, sites):
    site = sites.start("http", "User-agent: *\nContent-Usage: search=n\nAllow: /\n")
    answer = get(searching, site, "/page")
    assert answer.status == 403
    assert answer.headers["robots-guard-signals"].startswith("search=n")


def test_a_head_of_such_a_page_has_no_body(searching, sites):
    site = sites.start("http", pages=SIGNED)
    assert get(searching, site, "/noindex", method="HEAD").status == 403
