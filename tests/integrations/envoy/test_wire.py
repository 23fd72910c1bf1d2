"""Requests that readers could parse differently, through a real Envoy: without TLS and inside it.

Nothing forbidden reaches a site, nothing is changed unnoticed, and one request stays one.
"""

from __future__ import annotations

import contextlib

import pytest
from integrations.envoy.inspection import NAMES, inspecting
from integrations.mitmproxy.wire import (
    H2Client,
    closed,
    connected,
    exchange,
    http2,
    read_answer,
    request_fields,
    tunnel,
)
from support.unread import UnreadSite

from robots_guard.testing import Reply

FORBIDDEN = "/private/x"
SMUGGLED = "GET /private/x HTTP/1.1\r\nHost: {}\r\n\r\n"


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory):
    with inspecting(tmp_path_factory.mktemp("envoy"), ca_file, audit="all") as running:
        yield running


@pytest.fixture(params=["http", "https"])
def site(request, sites):
    return sites.start(request.param)


@contextlib.contextmanager
def kept(integration, site):
    """A connection of a client to a site, and the beginning of its targets there."""
    if site.scheme == "https":
        with tunnel(integration, site.authority) as connection:
            yield connection, ""
    else:
        with connected(integration) as connection:
            yield connection, site.url


def send(integration, site, head, body=b""):
    """Send a head in which `{at}` begins a target, `{host}` is the authority; everything returned."""
    with kept(integration, site) as (connection, at):
        text = head.replace("{at}", at).replace("{host}", site.authority)
        connection.sendall(text.encode("latin-1") + body)
        connection.settimeout(1)
        return closed(connection)


def smuggled(site):
    return SMUGGLED.format(site.authority).encode()


# -- what is refused -------------------------------------------------------------------------------

REFUSED = {
    "two-hosts": "GET {at}/open HTTP/1.1\r\nHost: {host}\r\nHost: elsewhere.test\r\n",
    "a-host-list": "GET {at}/open HTTP/1.1\r\nHost: {host}, {host}\r\n",
    "no-host": "GET /open HTTP/1.1\r\n",
    "an-empty-host": "GET /open HTTP/1.1\r\nHost:\r\n",
    "a-host-with-a-space": "GET /open HTTP/1.1\r\nHost: a b\r\n",
    "a-host-with-userinfo": "GET /open HTTP/1.1\r\nHost: user@{host}\r\n",
    "a-host-that-is-not-ascii": "GET /open HTTP/1.1\r\nHost: \xe9.test\r\n",
    "userinfo-in-the-target": "GET http://user@{host}/open HTTP/1.1\r\nHost: {host}\r\n",
    "two-userinfos": "GET http://a@b@{host}/open HTTP/1.1\r\nHost: {host}\r\n",
    "a-fragment": "GET {at}/open#x HTTP/1.1\r\nHost: {host}\r\n",
    "a-backslash": "GET {at}/open\\..\\private/x HTTP/1.1\r\nHost: {host}\r\n",
    "a-space-in-the-target": "GET {at}/open /private/x HTTP/1.1\r\nHost: {host}\r\n",
    "a-tab-in-the-target": "GET {at}/open\t/private/x HTTP/1.1\r\nHost: {host}\r\n",
    "a-nul-in-the-target": "GET {at}/open\0 HTTP/1.1\r\nHost: {host}\r\n",
    "a-target-without-a-slash": "GET private/x HTTP/1.1\r\nHost: {host}\r\n",
    "another-scheme": "GET ftp://{host}/open HTTP/1.1\r\nHost: {host}\r\n",
    "a-folded-host": "GET /open HTTP/1.1\r\nHost: {host}\r\n folded\r\n",
    "a-space-before-the-colon": "GET {at}/open HTTP/1.1\r\nHost : {host}\r\n",
    "a-line-without-a-colon": "GET {at}/open HTTP/1.1\r\nHost: {host}\r\nX\r\n",
    "a-nul-in-a-field": "GET {at}/open HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n",
    "a-method-with-a-slash": "G/T {at}/open HTTP/1.1\r\nHost: {host}\r\n",
    "no-version": "GET {at}/open\r\nHost: {host}\r\n",
    "length-and-chunked": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n"
    "Transfer-Encoding: chunked\r\n",
    "two-lengths": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
    "a-length-with-a-sign": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nContent-Length: +5\r\n",
    "a-length-list": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5, 5\r\n",
    "gzip-chunked": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: gzip, chunked\r\n",
    "an-unknown-coding": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n",
    "chunked-twice": "POST {at}/open HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n"
    "Transfer-Encoding: chunked\r\n",
    "a-websocket": "GET {at}/private/x HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
}


#: With an absolute target, Envoy takes the authority from it, and drops userinfo and Host.
REWRITTEN_WITHOUT_TLS = {"two-hosts", "a-host-list", "userinfo-in-the-target", "no-version"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_readers_may_parse_differently(integration, site, name):
    """No request arrives; or, without TLS, the one page with the Host that was judged, unless Envoy
    reads what follows first, and ends the connection."""
    answer = send(integration, site, REFUSED[name] + "\r\n", smuggled(site))
    if site.scheme == "http" and name in REWRITTEN_WITHOUT_TLS:
        assert {request.headers["host"] for request in site.origin.received} <= {site.authority}
        assert site.origin.targets in ([], ["/open"])
    else:
        assert not answer.startswith(b"HTTP/1.1 2"), answer
        assert site.origin.targets == []


#: RFC 9112 sections 2.3, 5.2 and 2.2 let a proxy read these; Envoy rewrites them.
NORMALISED = {
    "a-folded-field": "GET {at}/open HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\n",
    "a-bare-cr-in-a-field": "GET {at}/open HTTP/1.1\r\nHost: {host}\r\nX: a\rY: b\r\n",
    "http-2-as-text": "GET {at}/open HTTP/2.0\r\nHost: {host}\r\n",
    "http-1.2": "GET {at}/open HTTP/1.2\r\nHost: {host}\r\n",
}


@pytest.mark.parametrize("head", NORMALISED.values(), ids=NORMALISED)
def test_what_envoy_rewrites(integration, site, head):
    with kept(integration, site) as (connection, at):
        text = head.replace("{at}", at).replace("{host}", site.authority)
        assert exchange(connection, f"{text}\r\n".encode()).status == 200
        second = smuggled(site).replace(b" /", f" {at}/".encode(), 1)
        assert exchange(connection, second).status in (0, 403)
    (page,) = (each for each in site.origin.received if each.target != "/robots.txt")
    assert page.target == "/open"
    assert page.headers.keys() <= {"host", "x"}
    assert page.headers.get("x") in (None, "a b", "aY: b")


@pytest.mark.parametrize(
    "line",
    ["GET {at}/open HTTP/1.1\nHost: {host}\n\n", "GET {at}/private/x HTTP/1.1\nHost: {host}\n\n"],
)
def test_a_bare_line_feed(integration, site, line):
    """A recipient may take it for the end of a line (RFC 9112 section 2.2)."""
    send(integration, site, line)
    assert set(site.origin.targets) <= {"/open"}


def test_the_host_follows_an_absolute_target(integration, sites):
    """Envoy does what RFC 9112 section 3.2.2 says; the site gets the Host that was judged."""
    site, other = sites.start("http"), sites.start("http")
    with connected(integration) as connection:
        head = f"GET {site.url}/open HTTP/1.1\r\nHost: {other.authority}\r\n\r\n"
        assert exchange(connection, head.encode()).status == 200
    assert site.origin.received[-1].headers["host"] == site.authority
    assert other.origin.received == []


@pytest.mark.parametrize(
    "method", ["GET /private/x?", "GET\t/private/x", "G\xe9T", "GET\r\nX: y", ""]
)
def test_http2_methods_that_are_no_tokens(integration, sites, method):
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(site.authority, "/open", method))
    assert answer.status in (0, 400, 403, 404)
    assert site.origin.targets == []


@pytest.mark.parametrize(
    "path",
    [
        "/open /private/x",
        "/open\t",
        "private/x",
        "https://elsewhere.test/",
        "/open\\..\\private",
        "*",
        "",
    ],
)
def test_http2_paths_that_are_no_targets(integration, sites, path):
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(site.authority, path))
    assert answer.status in (0, 400, 403, 404)
    assert site.origin.targets == []


def test_a_fragment_over_http2(integration, sites):
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(site.authority, "/open#/private/x"))
    assert answer.status in (0, 400, 403, 404)
    assert site.origin.targets == []


@pytest.mark.parametrize(
    "field",
    [
        ("x", "y\r\n\r\nGET /private/x HTTP/1.1\r\nHost: {}"),
        ("x\r\ny", "z"),
        ("host", "elsewhere.test"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("connection", "close"),
    ],
)
def test_http2_fields_that_http1_would_read_otherwise(integration, sites, field):
    site = sites.start("https")
    name, value = field
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        fields = request_fields(site.authority, "/open")
        http2(connection, [*fields, (name, value.replace("{}", site.authority))])
    assert set(site.origin.targets) <= {"/open"}
    for request in site.origin.received:
        assert request.headers["host"] == site.authority
        assert "transfer-encoding" not in request.headers


def test_http2_without_an_authority(integration, sites):
    site = sites.start("https")
    fields = [pair for pair in request_fields(site.authority, "/open") if pair[0] != ":authority"]
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        assert http2(connection, fields).status in (0, 400, 403)
    assert site.origin.targets == []


def test_connect_over_http2(integration, sites):
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        fields = [(":method", "CONNECT"), (":authority", site.authority)]
        assert http2(connection, fields).status in (0, 400, 403, 404)
    assert site.origin.received == []


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("target", ["/open", "/robots.txt"])
def test_a_body_of_unknown_length(integration, sites, method, target):
    """HTTP/2 in front, HTTP/1 behind: without framing the site would read a second request."""
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        fields = request_fields(site.authority, target, method)
        answer = H2Client(connection, checks=False).exchange(fields, [smuggled(site)])
    assert answer.status == 200
    request = site.origin.received[-1]
    assert (request.method, request.target, request.body) == (method, target, smuggled(site))
    assert site.origin.pages_matching("/private/") == []


@pytest.mark.parametrize(
    "trailers", [(), [("x-trailer", "GET /private/x HTTP/1.1")]], ids=["", "trailers"]
)
@pytest.mark.parametrize("expects", [(), [("expect", "100-continue")]], ids=["", "expects"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_body_in_pieces(integration, sites, pieces, expects, trailers):
    site = sites.start("https")
    body = smuggled(site)
    size = -(-len(body) // pieces)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        fields = [*request_fields(site.authority, "/open", "POST"), *expects]
        assert H2Client(connection, checks=False).exchange(fields, parts, trailers).status == 200
    request = site.origin.received[-1]
    assert (request.target, request.body) == ("/open", body)
    assert site.origin.pages_matching("/private/") == []


@pytest.fixture(params=["http", "https"])
def deaf(request, authority):
    NAMES["deaf.test"] = "127.0.0.1"
    with UnreadSite(authority if request.param == "https" else None, "deaf.test") as server:
        yield server
        server.shutdown()


@pytest.mark.parametrize("target", ["/open", "/robots.txt"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_the_site_does_not_read(integration, deaf, target, framing):
    """It would be the site's next request, so it is the last one of its connection."""
    body = smuggled(deaf)
    said, sent = f"Content-Length: {len(body)}", body
    if framing == "chunked":
        said, sent = "Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with kept(integration, deaf) as (connection, prefix):
        host = f"Host: {deaf.authority}\r\n"
        first = f"GET {prefix}{target} HTTP/1.1\r\n{host}{said}\r\n\r\n".encode() + sent
        assert exchange(connection, first).status == 200
        for page in ("/second", "/third"):
            answer = exchange(connection, f"GET {prefix}{page} HTTP/1.1\r\n{host}\r\n".encode())
            assert (answer.status, answer.body) == (200, page.encode())
    assert [line for line in deaf.lines if "/private/" in line] == []


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "POST"])
@pytest.mark.parametrize(
    "fields", ["", "Expect: 100-continue\r\n", "TE: trailers\r\nTrailer: X\r\n"]
)
def test_a_chunked_body_of_any_method_that_the_site_does_not_read(
    integration, deaf, method, fields
):
    body = smuggled(deaf)
    sent = b"%x\r\n%s\r\n0\r\nX: GET /private/x HTTP/1.1\r\n\r\n" % (len(body), body)
    with kept(integration, deaf) as (connection, prefix):
        head = f"{method} {prefix}/open HTTP/1.1\r\nHost: {deaf.authority}\r\n{fields}"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + sent)
        connection.sendall(
            f"GET {prefix}/second HTTP/1.1\r\nHost: {deaf.authority}\r\n\r\n".encode()
        )
        connection.settimeout(2)
        assert b"/second" in closed(connection)
    assert [line for line in deaf.lines if "/private/" in line] == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_a_body_over_http2_that_the_site_does_not_read(integration, authority, method):
    NAMES["deaf.test"] = "127.0.0.1"
    with UnreadSite(authority, "deaf.test") as deaf:
        with tunnel(integration, deaf.authority, alpn=["h2"]) as connection:
            client = H2Client(connection, checks=False)
            fields = request_fields(deaf.authority, "/open", method)
            client.exchange(fields, [smuggled(deaf)])
            answer = client.exchange(request_fields(deaf.authority, "/second"))
            assert (answer.status, answer.body) == (200, b"/second")
        deaf.shutdown()
    assert [line for line in deaf.lines if "/private/" in line] == []


def test_a_connection_is_used_again_after_requests_without_a_body(integration, site):
    with kept(integration, site) as (connection, at):
        head = f"GET {at}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        for _ in range(3):
            assert exchange(connection, head).status == 200
    assert len(site.origin.targets) == 3
    assert site.origin.connections < 4  # robots.txt has its own


# -- several requests on a connection --------------------------------------------------------------


#: What Envoy's router does at the request of a client that it takes for internal.
REPEATS = {
    "retries": "x-envoy-retry-on: 5xx,reset,connect-failure\r\nx-envoy-max-retries: 3\r\n",
    "hedging": "x-envoy-hedge-on-per-try-timeout: true\r\nx-envoy-retry-on: 5xx\r\n"
    "x-envoy-upstream-rq-per-try-timeout-ms: 100\r\n",
}


@pytest.mark.parametrize("fields", REPEATS.values(), ids=REPEATS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_client_cannot_have_a_request_sent_twice(integration, sites, scheme, fields):
    """Each request was permitted once, and has one turn."""
    pages = {"/error": Reply(status=500), "/reset": Reply(reset=True), "/slow": Reply(delay=0.3)}
    site = sites.start(scheme, pages=pages)
    for target in pages:
        with kept(integration, site) as (connection, at):
            head = f"GET {at}{target} HTTP/1.1\r\nHost: {site.authority}\r\n{fields}\r\n"
            exchange(connection, head.encode())
    assert site.origin.targets == [*pages]


def test_pipelined_requests_are_judged_one_by_one(integration, site):
    with kept(integration, site) as (connection, at):
        for target in ("/open", FORBIDDEN, "/open2"):
            head = f"GET {at}{target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            connection.sendall(head.encode())
        statuses = [read_answer(connection).status for _ in range(3)]
    assert statuses == [200, 403, 200]
    assert site.origin.targets == ["/open", "/open2"]


@pytest.mark.parametrize("upgrade", ["h2c", "TLS/1.0", "foo, websocket"])
def test_an_upgrade_is_refused_or_removed(integration, site, upgrade):
    fields = (
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n"
    )
    with kept(integration, site) as (connection, at):
        head = f"GET {at}/open HTTP/1.1\r\nHost: {site.authority}\r\n{fields}\r\n"
        assert exchange(connection, head.encode()).status in (200, 400, 403)
    for arrived in site.origin.received:
        assert not {"upgrade", "http2-settings"} & arrived.headers.keys()


def test_a_site_that_switches_protocols(integration, sites):
    switching = Reply(raw=b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
    for scheme in ("http", "https"):
        site = sites.start(scheme, pages={"/switch": switching})
        with kept(integration, site) as (connection, at):
            head = f"GET {at}/switch HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            assert exchange(connection, head.encode()).status in (0, 101, 502, 503)
            with contextlib.suppress(OSError):
                connection.sendall(smuggled(site))
            connection.settimeout(1)
            closed(connection)
        assert site.origin.targets == ["/switch"]


def test_a_head_without_end(integration, site):
    with kept(integration, site) as (connection, at), contextlib.suppress(ConnectionError):
        connection.sendall(f"GET {at}/open?".encode() + b"a" * 1_000_000)
        assert connection.recv(12) in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"HTTP/1.1 414", b"")
    assert site.origin.received == []


def test_every_page_that_arrived_is_recorded(integration, sites):
    """The last test of this module: what arrived at its sites is what the log permitted."""
    for scheme in ("http", "https"):
        site = sites.start(scheme)
        with kept(integration, site) as (connection, at):
            head = f"GET {at}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            assert exchange(connection, head.encode()).status == 200
    passed = {record["url"] for record in integration.records() if record["action"] == "pass"}
    arrived = {f"{site.url}{target}" for site in sites.started for target in site.origin.targets}
    assert len(arrived) >= 2
    assert arrived <= passed
