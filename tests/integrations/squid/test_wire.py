"""Hostile bytes through a real Squid: nothing that is forbidden reaches a site.

What a client gets for malformed bytes is Squid's choice. What arrives at the site is ours: each
request there has been permitted, and is in the audit log.
"""

from __future__ import annotations

import contextlib
import socket
from functools import partial

import pytest
from integrations.mitmproxy.wire import closed, connected, exchange, read_answer, tunnel
from integrations.squid.conftest import bumped, get
from support.unread import UnreadSite
from support.waiting import eventually

from robots_guard.testing import Reply

FORBIDDEN = "/private/x"
WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: eA==\r\n"
)


@contextlib.contextmanager
def kept(integration, site):
    """A connection to the site, through a tunnel for https, and what precedes each target."""
    if site.scheme == "https":
        with bumped(integration, site.authority) as connection:
            yield connection, ""
    else:
        with connected(integration) as connection:
            yield connection, site.url


@pytest.fixture(params=["http", "https"])
def site(request, integration, sites):
    """A site. After the test: no forbidden request has arrived, each that has is in the log, and
    Squid lives."""
    site = sites.start(request.param)
    yield site
    # Squid answers 502 if the site ends a kept connection just then (RFC 9112 section 9.3.1).
    eventually(lambda: get(integration, site, "/alive").status == 200)
    assert site.origin.pages_matching("private") == []
    assert {each.method for each in site.origin.received} <= {"GET", "POST", "HEAD", "PUT"}
    passed = {each["url"] for each in integration.records() if each["action"] == "pass"}
    assert {f"{site.url}{target}" for target in site.origin.targets} <= passed


def smuggled(site) -> str:
    return f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"


#: Fields of a POST, and its body, in which some readers find a second request.
BODIES = {
    "length and chunks": ("Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n{x}"),
    "chunks and length": ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n{x}"),
    "two lengths": ("Content-Length: 0\r\nContent-Length: {n}\r\n", "{x}"),
    "a list of lengths": ("Content-Length: 0, {n}\r\n", "{x}"),
    "a signed length": ("Content-Length: +{n}\r\n", "{x}"),
    "a length with a space": ("Content-Length : {n}\r\n", "{x}"),
    "gzip": ("Transfer-Encoding: gzip, chunked\r\n", "{n:x}\r\n{x}\r\n0\r\n\r\n"),
    "xchunked": ("Transfer-Encoding: xchunked\r\n", "{x}"),
    "chunked twice": (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n{x}",
    ),
    "chunked, identity": ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n{x}"),
    "a tab": ("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n{x}"),
    "a folded coding": ("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n{x}"),
    "a vertical tab": ("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n{x}"),
    "a bare line break": ("X: y\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n{x}"),
    "a length named by Connection": (
        "Connection: Content-Length\r\nContent-Length: {n}\r\n",
        "{x}",
    ),
    "a coding named by Connection": (
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
        "{n:x}\r\n{x}\r\n0\r\n\r\n",
    ),
    "a long chunk": ("Transfer-Encoding: chunked\r\n", "1\r\nab\r\n0\r\n\r\n{x}"),
    "a chunk of a line break": ("Transfer-Encoding: chunked\r\n", "0\n\n{x}"),
    "a negative chunk": ("Transfer-Encoding: chunked\r\n", "-1\r\n{x}"),
    "a huge chunk": ("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{x}"),
    "trailers": ("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\nX: {x}"),
    "no length": ("", "{x}"),
}


@pytest.mark.parametrize(("fields", "body"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_request_in_a_body(integration, site, method, fields, body):
    inner = smuggled(site)
    body = body.format(x=inner, n=len(inner))
    fields = fields.format(n=len(inner))
    with kept(integration, site) as (connection, prefix):
        connection.settimeout(1)
        head = f"{method} {prefix}/open HTTP/1.1\r\nHost: {site.authority}\r\n{fields}\r\n"
        with contextlib.suppress(OSError):
            connection.sendall((head + body).encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
        closed(connection)


@pytest.fixture(params=["http", "https"])
def deaf(request, authority):
    with UnreadSite(authority if request.param == "https" else None) as server:
        yield server
        server.shutdown()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "TRACE"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_the_site_does_not_read(integration, deaf, method, framing):
    """It would be the site's next request, so it is the last one of its connection."""
    body = smuggled(deaf).encode()
    said, sent = f"Content-Length: {len(body)}", body
    if framing == "chunked":
        said, sent = "Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with kept(integration, deaf) as (connection, prefix):
        host = f"Host: {deaf.authority}\r\n"
        first = f"{method} {prefix}/open HTTP/1.1\r\n{host}{said}\r\n\r\n".encode() + sent
        assert exchange(connection, first).status == 200
        for page in ("/second", "/third"):
            request = f"GET {prefix}{page} HTTP/1.1\r\n{host}\r\n".encode()
            # The site closes connections, which Squid may notice only when it uses one: a 502.
            answer = eventually(partial(answered, connection, request))
            assert (answer.status, answer.body) == (200, page.encode())
    assert deaf.lines[1:] == [
        f"{each} HTTP/1.1" for each in (f"{method} /open", "GET /second", "GET /third")
    ]


def answered(connection, request):
    """The response, or None if it is a 502."""
    answer = exchange(connection, request)
    return answer if answer.status != 502 else None


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upload_arrives_as_it_is(integration, site, framing):
    body = smuggled(site).encode() * 3
    said, sent = f"Content-Length: {len(body)}", body
    if framing == "chunked":
        said, sent = "Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with kept(integration, site) as (connection, prefix):
        head = f"POST {prefix}/open HTTP/1.1\r\nHost: {site.authority}\r\n{said}\r\n\r\n"
        assert exchange(connection, head.encode() + sent).status == 200
    assert site.origin.received[-1].body == body


def test_a_large_upload(integration, site):
    body = b"x" * 2_000_000
    with kept(integration, site) as (connection, prefix):
        connection.sendall(upload(site, f"{prefix}/open", body))
        assert read_answer(connection).status == 200
    # Squid may end the connection of a refused upload before all is sent.
    with kept(integration, site) as (connection, prefix), contextlib.suppress(OSError):
        connection.sendall(upload(site, prefix + FORBIDDEN, body))
        assert read_answer(connection).status == 403
    assert [each.body for each in site.origin.received if each.method == "PUT"] == [body]


def upload(site, target, body):
    head = f"PUT {target} HTTP/1.1\r\nHost: {site.authority}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_an_upload_that_expects_to_be_asked(integration, site):
    with kept(integration, site) as (connection, prefix):
        head = f"POST {prefix}{FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n"
        head += "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        answer = exchange(connection, head.encode())
        assert answer.status in (100, 403)


HEADS = {
    "HTTP/0.9": "GET {url}/private/x\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.0": "GET {url}/private/x HTTP/3.0\r\nHost: {host}\r\n\r\n",
    "no host": "GET {url}/private/x HTTP/1.1\r\n\r\n",
    "two hosts": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nHost: x.test\r\n\r\n",
    "another host": "GET {url}/private/x HTTP/1.1\r\nHost: x.test\r\n\r\n",
    "a folded host": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\n folded\r\n\r\n",
    "bare line breaks": "GET {url}/private/x HTTP/1.1\nHost: {host}\n\n",
    "a bare return": "GET {url}/private/x HTTP/1.1\rHost: {host}\r\n\r\n",
    "NUL": "GET {url}/private/x\0 HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "NUL in a field": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nX: \0\r\n\r\n",
    "many spaces": "GET   {url}/private/x   HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "tabs": "GET\t{url}/private/x\tHTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a space first": " GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a line first": "\r\nGET {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "two targets": "GET {url}/open {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a method with a target": "GET{url}/open? GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "another method": "FOO {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "lower case": "get {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "TRACE": "TRACE {url}/private/x HTTP/1.1\r\nHost: {host}\r\nMax-Forwards: 5\r\n\r\n",
    "PURGE": "PURGE {url}/private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "CONNECT inside": "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "WebSocket": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\n" + WEBSOCKET + "\r\n",
    "h2c": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "override": "POST {url}/private/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n"
    "X-HTTP-Method-Override: GET\r\n\r\n",
    "rewriting": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nX-Original-URL: /open\r\n\r\n",
    "its own ICAP": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nX-Robots-Guard-Decision: 1\r\n"
    "X-Next-Services: none\r\nAllow: 204\r\nPreview: 0\r\n\r\n",
    "a cached copy": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nCache-Control: only-if-cached\r\n\r\n",
    "an endless head": "GET {url}/private/x HTTP/1.1\r\nHost: {host}\r\nX: " + "a" * 1_000_000,
    "an endless target": "GET {url}/private/x?" + "a" * 1_000_000,
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_hostile_head(integration, site, head):
    with kept(integration, site) as (connection, prefix):
        connection.settimeout(1)
        with contextlib.suppress(OSError):
            connection.sendall(head.format(url=prefix, host=site.authority).encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
        closed(connection)


def test_pipelined_requests_are_judged_one_by_one(integration, site):
    with kept(integration, site) as (connection, prefix):
        for target in ("/open", FORBIDDEN, "/open2"):
            head = f"GET {prefix}{target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            connection.sendall(head.encode())
        connection.settimeout(2)
        statuses = [read_answer(connection).status for _ in range(3)]
    # Squid may close the connection behind a refusal.
    assert statuses in ([200, 403, 200], [200, 403, 0])


def test_a_connection_is_kept_after_a_refusal(integration, site):
    """Squid 5.7 would close it if it got the whole reply at once, as it may on a busy machine."""
    expected = [403, 200, 403, 200]

    def statuses() -> list[int]:
        with kept(integration, site) as (connection, prefix):
            found = []
            for target in (FORBIDDEN, "/open", FORBIDDEN, "/open"):
                head = f"GET {prefix}{target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
                with contextlib.suppress(OSError):
                    found.append(exchange(connection, head.encode()).status)
            return [each for each in found if each]

    def is_kept() -> bool:
        found = statuses()
        assert found == expected[: len(found)]
        return found == expected

    eventually(is_kept)


def test_a_refused_head_request(integration, site):
    answer = get(integration, site, FORBIDDEN, method="HEAD")
    assert (answer.status, "disallowed" in answer.guard, answer.body) == (403, True, b"")


def test_a_request_is_sent_once(integration, sites):
    """Squid would repeat a request that the site breaks off, without asking and without a turn."""
    site = sites.start("http", pages={"/reset": Reply(reset=True)})
    assert get(integration, site, "/open").status == 200
    for method in ("GET", "POST"):
        answer = get(integration, site, "/reset", method=method, fields="Content-Length: 0\r\n")
        assert answer.status in (502, 503)
    assert site.origin.targets.count("/reset") == 2


def test_a_site_that_switches_protocols(integration, sites):
    switching = Reply(raw=b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
    site = sites.start(pages={"/switch": switching})
    assert get(integration, site, "/open").status == 200
    with connected(integration) as connection:
        connection.settimeout(2)
        line = f"GET {site.url}/switch HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        connection.sendall(line.encode())
        connection.recv(65536)
        connection.sendall(smuggled(site).encode())
        closed(connection)
    assert site.origin.pages_matching("private") == []


# -- tunnels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [b"GET /private/x HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_a_tunnel_carries_nothing_but_tls(integration, http_site, first):
    with tunnel(integration, http_site.authority, tls=False) as connection:
        connection.settimeout(2)
        connection.sendall(first)
        connection.shutdown(socket.SHUT_WR)
        closed(connection)
    assert http_site.seen()[0] == 0


def test_connect_and_a_tls_handshake_touch_nothing(integration, https_site):
    with bumped(integration, https_site.authority) as connection:
        head = f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {https_site.authority}\r\n\r\n"
        assert exchange(connection, head.encode()).status == 403
    assert [each.target for each in https_site.origin.received] == ["/robots.txt"]
    assert https_site.seen()[:2] == (1, 1)  # the service's


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_tunnel_inside_a_tunnel(integration, https_site, sites, scheme):
    """Squid would forward its bytes without looking at them."""
    other = sites.start(scheme)
    with bumped(integration, https_site.authority) as connection:
        connection.settimeout(2)
        head = f"CONNECT {other.authority} HTTP/1.1\r\nHost: {other.authority}\r\n\r\n"
        assert exchange(connection, head.encode(), body=False).status == 403
        with contextlib.suppress(OSError):
            connection.sendall(smuggled(other).encode())
        closed(connection)
    assert (https_site.seen()[0], other.seen()[0]) == (0, 0)


def test_another_site_inside_a_tunnel_is_judged_as_that_site(integration, https_site, sites):
    """Squid connects to the site that the request inside names."""
    other = sites.start("https")
    for target, status in ((FORBIDDEN, 403), ("/open", 200)):
        with bumped(integration, https_site.authority) as connection:
            head = f"GET {target} HTTP/1.1\r\nHost: {other.authority}\r\nConnection: close\r\n\r\n"
            assert exchange(connection, head.encode()).status == status
    assert (https_site.origin.targets, other.origin.targets) == ([], ["/open"])
