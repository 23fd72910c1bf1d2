"""HTTP heads inside ICAP are described for the guard, and replies written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.reasons import Reason
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.serve.icap_messages import (
    UnreadableMessage,
    read_request,
    read_response,
    reply_head,
    retry_after,
)


def wire_of(line: bytes, *fields: bytes):
    return read_request(b"\r\n".join([line, *fields, b"", b""])).wire("192.0.2.1")


def test_a_request_of_squid():
    wire = wire_of(
        b"GET http://site.test:8080/a?b=%20c HTTP/1.1", b"Host: site.test:8080", b"User-Agent: me/1"
    )
    question, verdict = wire.question("mybot")
    assert verdict is None
    assert (str(question.origin), question.target) == ("http://site.test:8080", "/a?b=%20c")
    assert (question.user_agent, question.client) == ("me/1", "192.0.2.1")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (b"HTTPS://Site.TEST/", "https://site.test"),
        (b"http://[2001:db8::1]:81/", "http://[2001:db8::1]:81"),
        (b"http://site.test:/", "http://site.test"),
    ],
)
def test_spellings_of_a_host(url, origin):
    question, verdict = wire_of(b"GET %s HTTP/1.1" % url, b"Host: " + url.split(b"/")[2]).question(
        "mybot"
    )
    assert (str(question.origin), verdict) == (origin, None)


@pytest.mark.parametrize(
    "url",
    [
        b"/a",
        b"*",
        b"site.test:443",
        b"ftp://site.test/a",
        b"http:///a",
        b"http://site.test",
        b"http://site.test?a",
        b"http://site.test/a b",
        b"http://site.test/a#b",
        b"http://site.test\\a/",
        b"http://si te.test/",
        b"http://site.test:x/",
        b"http://site.test/\xff\r",
    ],
)
def test_what_is_no_url_of_a_page_is_refused(url):
    _, verdict = wire_of(b"GET %s HTTP/1.1" % url, b"Host: site.test").question("mybot")
    assert verdict is not None
    assert verdict.reason is Reason.MALFORMED_TARGET


def test_hosts_that_disagree_are_refused():
    _, verdict = wire_of(b"GET http://a.test/ HTTP/1.1", b"Host: b.test").question("mybot")
    assert verdict is not None
    assert verdict.reason is Reason.AMBIGUOUS_AUTHORITY


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://a.test/\r\n\r\n",
        b"GET http://a.test/ FTP/1.1\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\nA\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
    ],
)
def test_what_is_no_head_is_refused(head):
    with pytest.raises(UnreadableMessage):
        read_request(head)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_not(data):
    try:
        request = read_request(data)
    except UnreadableMessage:
        return
    request.wire("").question("mybot")


def test_a_response():
    head = read_response(
        b"HTTP/1.1 503 Slow down\r\nRetry-After: 7\r\nX-Robots-Tag:noindex\r\n\r\n", "HEAD"
    )
    assert (head.status, head.method, retry_after(head)) == (503, "HEAD", "7")
    assert ("X-Robots-Tag", "noindex") in head.headers
    assert read_response(b"HTTP/1.1 200\r\n\r\n", "GET").status == 200


@pytest.mark.parametrize("line", [b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b""])
def test_what_is_no_response_is_refused(line):
    with pytest.raises(UnreadableMessage):
        read_response(line + b"\r\n\r\n", "GET")


def test_a_reply():
    fields = (("A", "1"), ("Connection", "close"), ("Content-Length", "9"), ("a", "\udcff"))
    assert reply_head(ProxyReply(403, fields, b"no")) == (
        b"HTTP/1.1 403 Forbidden\r\na: \xff\r\nContent-Length: 2\r\n\r\n"
    )
