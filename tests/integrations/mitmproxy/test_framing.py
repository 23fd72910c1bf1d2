"""One request is sent as one: bodies are framed, and no server finds another request in them."""

from __future__ import annotations

import contextlib
import ssl
import struct
import subprocess

import pytest
from integrations.mitmproxy.conftest import KINDS, get
from integrations.mitmproxy.test_modes import Parent
from integrations.mitmproxy.wire import (
    TIMEOUT,
    H2Client,
    connected,
    exchange,
    request_fields,
    trusting,
    tunnel,
)
from support.programs import program
from support.unread import UnreadSite

from robots_guard.testing import Loopback

SMUGGLED = "GET /private/x HTTP/1.1\r\nHost: {}\r\n\r\n"


def smuggled(site) -> bytes:
    return SMUGGLED.format(site.authority).encode()


def bodies(site) -> list[tuple[str, bytes]]:
    return [
        (request.target, request.body)
        for request in site.origin.received
        if request.target != "/robots.txt"
    ]


# -- HTTP/2 in front, HTTP/1 behind ---------------------------------------------------------------------------


def test_an_upload_of_unknown_length_by_curl(integration, https_site):
    """The command of the report: without framing the site reads the upload as its next request."""
    done = subprocess.run(
        [
            program("curl"),
            "-sS",
            "--http2",
            "--cacert",
            integration.ca,
            "-x",
            integration.url,
            "-T",
            "-",
            https_site.url + "/open",
        ],
        input=smuggled(https_site),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert bodies(https_site) == [("/open", smuggled(https_site))]


@contextlib.contextmanager
def through_socks(integration, site):
    """A TLS connection of a SOCKS client that speaks HTTP/2."""
    host = site.host.encode()
    with connected(integration) as connection:
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2) == b"\x05\x00"
        connection.sendall(
            b"\x05\x01\x00\x03" + bytes([len(host)]) + host + struct.pack("!H", site.port)
        )
        assert connection.recv(10)[1] == 0
        with secured(integration, connection, site) as inside:
            yield inside


@contextlib.contextmanager
def secured(integration, connection, site):
    context = trusting(integration)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(connection, server_hostname=site.host) as inside:
        yield inside


@contextlib.contextmanager
def in_front_of(integration, site):
    with connected(integration) as connection, secured(integration, connection, site) as inside:
        yield inside


MODES = {
    "regular": ((), lambda integration, site: tunnel(integration, site.authority, alpn=["h2"])),
    "reverse": (("--mode", "reverse:{site}"), in_front_of),
    "socks5": (("--mode", "socks5"), through_socks),
    "upstream": (
        ("--mode", "upstream:{parent}"),
        lambda integration, site: tunnel(integration, site.authority, alpn=["h2"]),
    ),
}


@pytest.fixture(
    scope="module", params=[(kind, mode) for kind in KINDS for mode in MODES], ids="-".join
)
def way(request, start, sites):
    """A proxy of each kind in each mode, a site behind it, and how a client of HTTP/2 gets there."""
    kind, mode = request.param
    options, connect = MODES[mode]
    site, parent = sites.start("https"), Parent()
    options = [option.format(site=site.url, parent=parent.url) for option in options]
    with start(kind, *options, audit="all") as integration:
        yield integration, site, connect
    parent.close()


BODIES = {
    "in-one-piece": [b"{}"],
    "in-pieces": [b"GET /priv", b"", b"ate/x HTTP/1.1\r\nHost: x\r\n\r\n", b"{}"],
    "with-an-empty-end": [b"{}", b""],
}


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("target", ["/open", "/robots.txt"])
def test_a_body_of_unknown_length(way, method, target):
    integration, site, connect = way
    with connect(integration, site) as connection:
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
@pytest.mark.parametrize("pieces", BODIES.values(), ids=BODIES)
def test_a_body_in_pieces(way, pieces, expects, trailers):
    integration, site, connect = way
    pieces = [piece.replace(b"{}", smuggled(site)) for piece in pieces]
    with connect(integration, site) as connection:
        fields = [*request_fields(site.authority, "/open", "POST"), *expects]
        assert H2Client(connection, checks=False).exchange(fields, pieces, trailers).status == 200
    request = site.origin.received[-1]
    assert (request.target, request.body) == ("/open", b"".join(pieces))
    assert "x-trailer" not in request.headers
    assert site.origin.pages_matching("/private/") == []


def test_every_request_that_arrived_is_recorded(way):
    """The last test of this proxy: the requests at the site are those that the audit log permitted."""
    integration, site, _ = way
    passed = {record["url"] for record in integration.records() if record["action"] == "pass"}
    assert {f"{site.url}{target}" for target in site.origin.targets} <= passed


NODE = """
const net = require("net"), tls = require("tls"), http2 = require("http2");
const [host, port, authority, ca, body] = process.argv.slice(1);
const connect = `CONNECT ${authority} HTTP/1.1\\r\\nHost: ${authority}\\r\\n\\r\\n`;
const raw = net.connect(Number(port), host, () => raw.write(connect));
raw.once("data", () => {
  const trusted = { ca: require("fs").readFileSync(ca), host: authority.split(":")[0] };
  const socket = tls.connect({ socket: raw, ALPNProtocols: ["h2"], ...trusted });
  const session = http2.connect(`https://${authority}`, { createConnection: () => socket });
  const request = session.request({ ":method": "POST", ":path": "/open" });
  request.on("response", (headers) => { console.log(headers[":status"]); session.close(); raw.end(); });
  request.resume();
  request.write(body.slice(0, 7));
  request.end(body.slice(7));
});
"""


def test_an_upload_by_node(integration, https_site):
    body = smuggled(https_site).decode()
    arguments = [
        integration.host,
        str(integration.port),
        https_site.authority,
        str(integration.ca),
        body,
    ]
    done = subprocess.run(
        [program("node"), "-e", NODE, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("200\n", "")
    assert bodies(https_site) == [("/open", body.encode())]


# -- servers that do not read bodies --------------------------------------------------------------------------


@pytest.fixture(params=["http", "https"])
def deaf(request, authority):
    with UnreadSite(authority if request.param == "https" else None) as server:
        yield server
        server.shutdown()


@contextlib.contextmanager
def kept(integration, site):
    """A connection of a client that sends several requests, and the beginning of their targets."""
    if site.scheme == "https":
        with tunnel(integration, site.authority) as connection:
            yield connection, ""
    else:
        with connected(integration) as connection:
            yield connection, site.url


@pytest.mark.parametrize("target", ["/open", "/robots.txt"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_the_server_does_not_read(integration, deaf, target, framing):
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


def test_a_connection_is_used_again_after_requests_without_a_body(integration, http_site):
    with connected(integration) as connection:
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n".encode()
        for _ in range(3):
            assert exchange(connection, head).status == 200
    pages = [request for request in http_site.origin.received if request.target == "/open"]
    assert len(pages) == 3
    assert not any("connection" in request.headers for request in pages)
    assert http_site.origin.connections == 2  # robots.txt has its own


# -- the Host that leaves -------------------------------------------------------------------------------------


def spellings(site):
    first, second, third, fourth = map(int, site.host.split("."))
    number = (first << 24) + (second << 16) + (third << 8) + fourth
    port = site.port
    return [
        f"{number}:{port}",
        f"{number:#x}:{port}",
        f"{first}.{second}.{(third << 8) + fourth}:{port}",
        f"0x{first:x}.{second}.{third}.{fourth}:{port}",
        f"{site.host}.:{port}",
        f"{site.host}:0{port}",
    ]


def test_the_host_that_is_sent_is_the_judged_one(integration, sites):
    site = sites.start("http")
    for spelling in spellings(site):
        with connected(integration) as connection:
            head = f"GET http://{spelling}/open HTTP/1.1\r\nHost: {spelling}\r\nConnection: close\r\n\r\n"
            answer = exchange(connection, head.encode())
        if answer.status == 200:
            assert site.origin.received[-1].headers["host"] == site.authority, spelling
        else:
            assert answer.status == 400, spelling
    assert len(site.origin.targets) >= 4
    assert {request.headers["host"] for request in site.origin.received} == {site.authority}


def test_a_name_is_sent_in_lower_case_without_a_trailing_dot(integration, site_on_localhost):
    for authority in (
        f"LOCALHOST:{site_on_localhost.port}",
        f"localhost.:{site_on_localhost.port}",
    ):
        with connected(integration) as connection:
            head = f"GET http://{authority}/open HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
            assert exchange(connection, head.encode()).status == 200
    assert {request.headers["host"] for request in site_on_localhost.received} == {
        f"localhost:{site_on_localhost.port}"
    }


@pytest.fixture
def site_on_localhost():
    with Loopback() as net:
        yield net.origin("User-agent: *\nDisallow: /private/\n", address="127.0.0.1")


# -- fields of one connection ---------------------------------------------------------------------------------


def test_connection_fields_of_the_client_are_removed(integration, site):
    said = "Connection: X-Mine, Keep-Alive, Content-Length, Host, User-Agent\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n"
    assert (
        get(
            integration,
            site,
            "/open",
            fields=f"{said}TE: trailers\r\nTrailer: X-T\r\nUser-Agent: me/1\r\n",
        ).status
        == 200
    )
    received = site.origin.received[-1].headers
    assert not {"x-mine", "keep-alive", "te", "trailer"} & received.keys()
    assert (received["host"], received["user-agent"]) == (site.authority, "me/1")


def test_a_parent_proxy_gets_no_connection_fields_of_the_client(start, http_site):
    parent = Parent()
    body = b"x" * 10
    head = f"POST {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\nContent-Length: 10\r\n"
    with (
        start("proxy", "--mode", f"upstream:{parent.url}") as integration,
        connected(integration) as connection,
    ):
        answer = exchange(
            connection, f"{head}Connection: Content-Length, Host\r\n\r\n".encode() + body
        )
        assert answer.status == 200
    parent.close()
    sent = parent.heads[-1].lower().split("\r\n")
    assert f"host: {http_site.authority}" in sent
    assert "content-length: 10" in sent
    assert [line for line in sent if line.startswith("connection:")] == ["connection: close"]
    assert http_site.origin.received[-1].body == body


def test_an_http2_client_of_a_proxy_behind_a_parent(start, http_site):
    """The parent gets the absolute URL, as from any client of a proxy (RFC 9112 section 3.2.2)."""
    parent = Parent()
    with (
        start("proxy", "--mode", f"upstream:{parent.url}") as integration,
        connected(integration) as connection,
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with context.wrap_socket(connection, server_hostname="proxy.test") as inside:
            assert inside.selected_alpn_protocol() == "h2"
            fields = request_fields(http_site.authority, "/open", scheme="http")
            assert H2Client(inside).exchange(fields).status == 200
    parent.close()
    assert parent.lines() == [f"GET {http_site.url}/robots.txt", f"GET {http_site.url}/open"]
    assert http_site.origin.targets == ["/open"]
