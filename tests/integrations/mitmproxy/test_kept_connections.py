"""A site closes a kept connection just as the next request arrives on it: that request is sent once more.

RFC 9110 section 9.2.2 allows that if the method is idempotent. Browsers do it if no byte of a response has arrived.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from integrations.mitmproxy.h2_site import h2_site
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.test_write_gate import LATE
from integrations.mitmproxy.wire import H2Client, connected, exchange, request_fields, tunnel

from robots_guard.testing import Reply

LEAVES = Reply(reset=True)
DELAY = 0.5


def in_order(*replies: Reply):
    """A page that gives these replies, and then the last of them again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def conversation(integration, site, *requests: tuple[str, str, bytes], fields: str = ""):
    """The statuses of requests on one connection, each a method, a target and a body.

    The last one has these further fields.
    """
    absolute = site.url if site.scheme == "http" else ""
    with (
        connected(integration)
        if site.scheme == "http"
        else tunnel(integration, site.authority) as connection
    ):
        statuses = []
        for method, target, body in requests:
            length = f"Content-Length: {len(body)}\r\n" if method in ("PUT", "POST") else ""
            more = length + fields * (target == requests[-1][1])
            head = f"{method} {absolute}{target} HTTP/1.1\r\nHost: {site.authority}\r\n{more}\r\n"
            answer = exchange(connection, head.encode() + body, body=method != "HEAD")
            statuses.append(answer.status)
        return statuses


FIRST = ("GET", "/first", b"")
OK = Reply(body="ok")


@pytest.mark.parametrize(
    ("method", "body", "replies", "status", "sent"),
    [
        ("GET", b"", (LEAVES, OK), 200, 2),
        ("HEAD", b"", (LEAVES, OK), 200, 2),
        ("DELETE", b"", (LEAVES, OK), 200, 2),
        ("PUT", b"whole", (LEAVES, OK), 200, 2),
        ("POST", b"", (LEAVES, OK), 502, 1),  # not idempotent
        ("GET", b"", (LEAVES, LEAVES, OK), 502, 2),  # RFC 9110: a retry is not retried
        ("GET", b"", (Reply(raw=b"HTTP/1.1 2"), OK), 502, 1),  # part of a response
        ("GET", b"", (Reply(raw=b"HTTP/1.1 103 Early Hints\r\n\r\n"), OK), 502, 1),
    ],
    ids=["get", "head", "delete", "put", "post", "twice", "partial", "interim"],
)
def test_a_request_that_got_no_answer_on_a_kept_connection(
    integration, sites, request, method, body, replies, status, sent
):
    scheme = "https" if integration.kind == "proxy" else "http"
    target = f"/{request.node.callspec.id}"
    site = sites.start(scheme, pages={target: in_order(*replies)})

    statuses = conversation(integration, site, FIRST, (method, target, body))

    # curl and others take an interim response for one; `exchange` does, too
    assert statuses[0] == 200
    assert statuses[1] in ((status, 103) if b"103" in (replies[0].raw or b"") else (status,))
    received = [each for each in site.origin.received if each.target == target]
    assert [(each.method, each.body) for each in received] == [(method, body)] * sent
    passes = [each for each in integration.records() if each["url"] == site.url + target]
    assert [each["action"] for each in passes] == ["pass"] * sent  # a record for each time


def test_a_new_connection_that_the_site_closes_at_once(integration, sites):
    """It is not repeated: the site does not want the request."""
    site = sites.start("http", pages={"/gone": LEAVES})
    assert conversation(integration, site, ("GET", "/gone", b"")) == [502]
    assert site.origin.targets == ["/gone"]


@pytest.mark.timing
def test_the_delay_of_a_site_is_kept(integration, sites):
    """The site may have read it the first time, so that the second needs a turn of its own."""
    robots = f"User-agent: *\nCrawl-delay: {DELAY}\n"
    site = sites.start("http", robots, pages={"/gone": in_order(LEAVES, OK)})

    assert conversation(integration, site, FIRST, ("GET", "/gone", b""), FIRST) == [200, 200, 200]

    pages = [each for each in site.origin.received if each.target != "/robots.txt"]
    assert [each.target for each in pages] == ["/first", "/gone", "/gone", "/first"]
    assert min(later.at - earlier.at for earlier, later in pairwise(pages)) >= DELAY * 0.99


@pytest.mark.parametrize("way", ["goaway", "refused", "closed"])
def test_an_http2_site(integration, authority, tmp_path, way):
    """It announces the end, refuses the stream (RFC 9113 sections 6.8 and 8.7), or closes the connection."""
    with (
        h2_site(tmp_path, authority, "127.3.250.7") as site,
        tunnel(integration, site.authority, alpn=["h2"]) as connection,
    ):
        client = H2Client(connection)
        paths = ("/first", f"/once/{way}", "/last")
        answers = [client.exchange(request_fields(site.authority, path)) for path in paths]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert answers[1].body == b"whole"


def test_the_requests_that_wait_in_the_queue_of_an_http2_connection(
    integration, authority, tmp_path
):
    """mitmproxy sends ten at once before it knows how many the site permits."""
    paths = ["/once/goaway", *(f"/{number}" for number in range(11))]
    with (
        h2_site(tmp_path, authority, "127.3.250.8", streams=10) as site,
        tunnel(integration, site.authority, alpn=["h2"]) as connection,
    ):
        statuses = H2Client(connection).together(
            [request_fields(site.authority, path) for path in paths]
        )
    assert statuses == ["200"] * 12


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_that_is_changed_before_it_is_sent_again(start, sites, tmp_path, scheme):
    """It passes the write gate as the first did."""
    (tmp_path / "late.py").write_text(LATE)
    site = sites.start(scheme, pages={"/gone": LEAVES})
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(tmp_path / "late.py")) as integration:
        statuses = conversation(
            integration, site, FIRST, ("GET", "/gone", b""), fields="X-Late: connected path\r\n"
        )
    assert statuses == [200, 502]
    assert site.origin.targets == ["/first", "/gone"]
    assert integration.records()[-1]["reason"] == "not-judged"
