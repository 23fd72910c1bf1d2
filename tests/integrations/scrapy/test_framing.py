"""Request framing: no server finds a second request in the body of a permitted one."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import MODES, crawl
from support.unread import UnreadSite

SMUGGLED = "GET /private/x HTTP/1.1\r\nHost: site.test\r\n\r\n"


@pytest.fixture
def unread():
    with UnreadSite() as server:
        yield server
        server.shutdown()


@pytest.mark.parametrize("mode", MODES)
def test_an_unread_body_is_no_second_request(unread, mode):
    url = unread.url
    requests = [{"url": f"{url}/open", "method": "GET", "body": SMUGGLED}, f"{url}/second"]
    done = crawl(requests, **MODES[mode])
    assert [done.verdict(f"{url}{path}")[0] for path in ("/open", "/second")] == ["pass", "pass"]
    assert sorted(unread.lines) == [
        "GET /open HTTP/1.1",
        "GET /robots.txt HTTP/1.1",
        "GET /second HTTP/1.1",
    ]


FIELDS = [
    {"Transfer-Encoding": "chunked"},
    {"Content-Length": "0"},
    {"Content_Length": "0"},
    {"content-length": ["0", "9"], "Transfer-Encoding": "chunked"},
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_framing_fields_of_a_spider_are_removed(net, fields, mode):
    site = net.origin("User-agent: *\nDisallow: /private/\n")
    body = "0\r\n\r\n" + SMUGGLED
    request = {"url": f"{site.url}/open", "method": "POST", "body": body, "headers": fields}
    done = crawl([request], **MODES[mode])
    assert done.verdict(f"{site.url}/open")[0] == "pass"
    assert [(each.target, each.body) for each in site.received[1:]] == [("/open", body.encode())]
    received = site.received[-1].headers
    assert (received["content-length"], received["connection"]) == (str(len(body)), "close")
    assert not {"transfer-encoding", "content_length"} & received.keys()
