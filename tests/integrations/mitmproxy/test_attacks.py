"""Attempts to bypass the proxy, each tried on both programs, over the wire.

The assertion is not that the client got 403, but that the origin was not touched: no accept, no
ClientHello, no request. An allowed request must get through before and after, so that no test passes
because everything is broken. Where an attack works in plain mitmproxy, docs/proxy.md says why.
"""

from __future__ import annotations

import contextlib
import socket

import pytest
from integrations.mitmproxy.conftest import get, untouched
from integrations.mitmproxy.wire import (
    H2Client,
    closed,
    connected,
    exchange,
    http2,
    plain,
    read_answer,
    request_fields,
    tunnel,
)

from robots_guard.testing import Reply

FORBIDDEN = "/private/x"


def refused(answer, status=403, reason="disallowed"):
    assert (answer.status, reason in answer.guard) == (status, True), answer


# -- the ordinary way -----------------------------------------------------------------------------------------


def test_a_forbidden_page(integration, site):
    with untouched(integration, site):
        refused(get(integration, site, FORBIDDEN))


@pytest.mark.parametrize(
    "method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"]
)
def test_any_method(integration, http_site, method):
    with untouched(integration, http_site):
        refused(plain(integration, http_site.url + FORBIDDEN, method=method))


def test_a_refused_head_request_gets_no_body(integration, http_site):
    with connected(integration) as connection:
        line = f"HEAD {http_site.url}{FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n".encode()
        refused(exchange(connection, line, body=False))
        refused(exchange(connection, line, body=False))


def test_a_range(integration, http_site):
    with untouched(integration, http_site):
        refused(plain(integration, http_site.url + FORBIDDEN, fields="Range: bytes=0-9\r\n"))


@pytest.mark.parametrize(
    "target",
    [
        "/%70rivate/x",
        "/open/../private/x",
        "/open/%2e%2e/private/x",
        "//private/x",
        "/./private/x",
        "/open/..;a/private/x",
    ],
)
def test_spellings_that_servers_decode_to_the_forbidden_path(integration, site, target):
    with untouched(integration, site):
        refused(get(integration, site, target))


@pytest.mark.parametrize(
    "target", ["/robots.txt?x", "/robots.txt/../private/x", "/robots.txt;/../private/x"]
)
def test_only_the_exact_robots_txt_is_exempt(integration, http_site, sites, target):
    closed_site = sites.start(robots="User-agent: *\nDisallow: /\nAllow: /alive\n")
    with untouched(integration, closed_site):
        refused(plain(integration, closed_site.url + target))
    assert plain(integration, closed_site.url + "/robots.txt").status == 200


# -- connections without a request ----------------------------------------------------------------------------


def test_connect_alone_opens_no_connection(integration, site):
    with untouched(integration, site), tunnel(integration, site.authority, tls=False):
        pass


def test_a_handshake_in_a_tunnel_opens_no_connection(integration, https_site):
    with untouched(integration, https_site), tunnel(integration, https_site.authority):
        pass


@pytest.mark.parametrize(
    "first",
    [
        b"\x00\x01\x02GET /private/x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\nGET /private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"\r\n\r\n\r\nGET /private/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"GET /private/x\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=[
        "binary",
        "CRLF-first",
        "CRLFs-first",
        "ssh",
        "broken-tls",
        "http-0.9",
        "h2-prior-knowledge",
    ],
)
def test_raw_bytes_in_a_tunnel(integration, http_site, first):
    with (
        untouched(integration, http_site),
        tunnel(integration, http_site.authority, tls=False) as connection,
    ):
        connection.sendall(first.replace(b"{host}", http_site.authority.encode()))
        connection.shutdown(socket.SHUT_WR)
        closed(connection)


@pytest.mark.parametrize("body", [b"", b"GET /private/x HTTP/1.1\r\n", b"\x16\x03\x01"])
def test_a_connect_with_an_incomplete_body(integration, http_site, body):
    """mitmproxy takes the body for the beginning of the tunnel, and the end of it for that of the connection."""
    logged = len(integration.output)
    with untouched(integration, http_site), connected(integration) as connection:
        authority = http_site.authority
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 50\r\n\r\n"
        assert exchange(connection, head.encode(), body=False).status == 200
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)
        assert closed(connection) == b""
    assert not [line for line in integration.output[logged:] if "has crashed" in line]


def test_two_bytes_first(integration, http_site):
    """mitmproxy decides what a tunnel carries by its first segment, if that is shorter than any method."""
    with (
        untouched(integration, http_site),
        tunnel(integration, http_site.authority, tls=False) as connection,
    ):
        connection.sendall(b"GE")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        rest = f"T {FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
        refused(exchange(connection, rest.encode()))


def test_crlf_first_inside_tls(integration, https_site):
    with (
        untouched(integration, https_site),
        tunnel(integration, https_site.authority) as connection,
    ):
        connection.sendall(
            f"\r\nGET {FORBIDDEN} HTTP/1.1\r\nHost: {https_site.authority}\r\n\r\n".encode()
        )
        connection.shutdown(socket.SHUT_WR)  # mitmproxy waits for more
        closed(connection)


def test_http_0_9_without_a_tunnel(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        connection.sendall(f"GET {http_site.url}{FORBIDDEN}\r\n\r\n".encode())
        assert read_answer(connection).status in (0, 400)


def test_connect_on_a_connection_that_has_been_used(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        request = f"GET {http_site.url}{FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
        refused(exchange(connection, request.encode()))
        connect = f"CONNECT {http_site.authority} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
        assert exchange(connection, connect.encode(), body=False).status == 200
        connection.sendall(b"\x00\x01\x02GET /private/x HTTP/1.1\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        closed(connection)


def test_connect_after_an_allowed_request(integration, http_site):
    """The permit of the allowed request ends with its response."""
    with connected(integration) as connection:
        request = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
        assert exchange(connection, request.encode()).status == 200
        with untouched(integration, http_site):
            connect = (
                f"CONNECT {http_site.authority} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
            )
            assert exchange(connection, connect.encode(), body=False).status == 200
            connection.sendall(b"\x00\x01\x02GET /private/x HTTP/1.1\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            closed(connection)


# -- bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expects", ["", "Expect: 100-continue\r\n"])
def test_an_upload(integration, http_site, expects):
    body = b"x" * 200_000
    fields = f"{expects}Content-Length: {len(body)}\r\n"
    with untouched(integration, http_site), connected(integration) as connection:
        head = f"POST {http_site.url}{FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n{fields}\r\n"
        connection.sendall(head.encode() + body)
        answer = read_answer(connection)
        if expects:
            assert answer.status == 100
            answer = read_answer(connection)
        refused(answer)


def test_a_chunked_upload(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        fields = f"Host: {http_site.authority}\r\nTransfer-Encoding: chunked\r\n"
        head = f"POST {http_site.url}{FORBIDDEN} HTTP/1.1\r\n{fields}\r\n"
        refused(exchange(connection, head.encode() + b"5\r\nhello\r\n0\r\n\r\n"))


def test_a_transfer_coding_that_some_servers_ignore(integration, http_site):
    head = f"POST {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\n"
    inner = f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
    with untouched(integration, http_site), connected(integration) as connection:
        data = (
            f"{head}Transfer-Encoding: gzip, chunked\r\n\r\n{len(inner):x}\r\n{inner}\r\n0\r\n\r\n"
        )
        refused(exchange(connection, data.encode()), 400, "malformed-target")


@pytest.mark.parametrize("endless", ["GET {url}/open?", "GET {url}/open HTTP/1.1\r\nX: "])
def test_a_head_without_end(integration, http_site, endless):
    data = endless.format(url=http_site.url).encode() + b"a" * 1_000_000
    # During the write; a TimeoutError would be a failure.
    cut_off = contextlib.suppress(ConnectionError)
    with untouched(integration, http_site), connected(integration) as connection, cut_off:
        connection.sendall(data)
        assert connection.recv(12) == b"HTTP/1.1 431"


def test_a_tls_hello_without_end(integration, http_site):
    """In records of one byte, each of which makes mitmproxy parse all earlier ones again."""
    data = b"\x01\xff\xff\xff" + bytes(200_000)
    records = b"".join(b"\x16\x03\x01\0\1" + data[at : at + 1] for at in range(len(data)))
    with (
        untouched(integration, http_site),
        connected(integration) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connect = f"CONNECT {http_site.authority} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
        assert exchange(connection, connect.encode(), body=False).status == 200
        connection.settimeout(10)
        connection.sendall(records)
        while connection.recv(65536):  # an alert perhaps, and the end
            pass


def test_an_answer_whose_head_has_no_end(integration, sites):
    site = sites.start(
        "http", pages={"/flood": Reply(raw=b"HTTP/1.1 200 OK\r\nX: ", endless=b"a" * 65536)}
    )
    assert get(integration, site, "/flood").status == 502
    assert get(integration, site, "/open").status == 200


def test_two_lengths_of_one_body(integration, http_site):
    """Request smuggling: what one reader takes for the body, another takes for the next request."""
    smuggled = f"0\r\n\r\nGET {FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
    fields = f"Content-Length: {len(smuggled)}\r\nTransfer-Encoding: chunked\r\n"
    with untouched(integration, http_site):
        answer = plain(
            integration,
            http_site.url + "/open",
            method="POST",
            fields=fields,
            body=smuggled.encode(),
        )
        assert answer.status == 400


# -- names that disagree --------------------------------------------------------------------------------------


def test_a_host_field_that_names_another_site(integration, http_site, sites):
    other = sites.start()
    with untouched(integration, http_site, other), connected(integration) as connection:
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {other.authority}\r\n\r\n"
        refused(exchange(connection, head.encode()), 403, "ambiguous-authority")


def test_a_host_field_with_another_port(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {http_site.host}\r\n\r\n"
        refused(exchange(connection, head.encode()), 403, "ambiguous-authority")


@pytest.mark.parametrize("second", ["{same}", "elsewhere.test"])
def test_two_host_fields(integration, http_site, second):
    second = second.replace("{same}", http_site.authority)
    with untouched(integration, http_site), connected(integration) as connection:
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\nHost: {second}\r\n\r\n"
        refused(exchange(connection, head.encode()), 400, "malformed-target")


@pytest.mark.parametrize(
    "host", ["", "a b", "user@{same}", "{same}, {same}", "{same}\r\n folded", "\xe9.test"]
)
def test_a_host_field_that_cannot_be_read(integration, http_site, host):
    host = host.replace("{same}", http_site.authority)
    with untouched(integration, http_site), connected(integration) as connection:
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {host}\r\n\r\n"
        refused(exchange(connection, head.encode("latin-1")), 400, "malformed-target")


@pytest.mark.parametrize("place", ["/", "http://{}/x", "http://localhost:{port}/x"])
def test_the_proxys_own_address_is_not_a_site(integration, place):
    target = place.format(f"{integration.host}:{integration.port}", port=integration.port)
    host = (
        f"localhost:{integration.port}"
        if "localhost" in place
        else f"{integration.host}:{integration.port}"
    )
    before = len(integration.records())
    with connected(integration) as connection:
        answer = exchange(connection, f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert answer.status == 400
    assert answer.body.startswith(b"This is a proxy for crawlers, not a site")
    assert len(integration.records()) == before


def test_http_1_1_without_a_host_field(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        refused(
            exchange(connection, f"GET {http_site.url}/open HTTP/1.1\r\n\r\n".encode()),
            400,
            "malformed-target",
        )


def test_http_1_0_gets_the_host_field_it_lacks(integration, http_site):
    """RFC 9112 section 3.2.2: the origin gets the Host that was judged."""
    with connected(integration) as connection:
        assert (
            exchange(connection, f"GET {http_site.url}/open HTTP/1.0\r\n\r\n".encode()).status
            == 200
        )
    assert http_site.origin.received[-1].headers["host"] == http_site.authority


def test_an_absolute_target_inside_a_tunnel(integration, https_site, sites):
    other = sites.start("https")
    with (
        untouched(integration, https_site, other),
        tunnel(integration, https_site.authority) as connection,
    ):
        head = f"GET {other.url}/open HTTP/1.1\r\nHost: {https_site.authority}\r\n\r\n"
        refused(exchange(connection, head.encode()), 403, "ambiguous-authority")


def test_a_host_field_that_differs_from_the_tunnel(integration, site, sites):
    other = sites.start(site.scheme)
    with (
        untouched(integration, site, other),
        tunnel(integration, site.authority, tls=site.scheme == "https") as connection,
    ):
        head = f"GET /open HTTP/1.1\r\nHost: {other.authority}\r\n\r\n"
        refused(exchange(connection, head.encode()), 403, "ambiguous-authority")


@pytest.mark.parametrize("host", ["{address}", "localhost:{port}"])
def test_an_sni_that_differs_from_the_tunnel(integration, https_site, host):
    """CONNECT to an address, another name in SNI, and either of them in Host."""
    host = host.format(address=https_site.authority, port=https_site.port)
    with (
        untouched(integration, https_site),
        tunnel(integration, https_site.authority, sni="localhost") as connection,
    ):
        refused(
            exchange(connection, f"GET /open HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()),
            403,
            "ambiguous-authority",
        )


# -- HTTP/2 ---------------------------------------------------------------------------------------------------


def h2_headers(site, method="GET", path="/open", authority=None, *more):
    pseudo = [
        (":method", method),
        (":scheme", "https"),
        (":path", path),
        (":authority", authority or site.authority),
    ]
    return [*pseudo, *more]


def over_h2(integration, site, headers):
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        return http2(connection, headers)


def test_h2_is_judged(integration, https_site):
    with untouched(integration, https_site):
        refused(over_h2(integration, https_site, h2_headers(https_site, path=FORBIDDEN)))
    assert over_h2(integration, https_site, h2_headers(https_site)).status == 200


def test_h2_without_an_authority(integration, https_site):
    """Written as HTTP/1, it would have no Host field, and the origin would choose."""
    headers = [pair for pair in h2_headers(https_site) if pair[0] != ":authority"]
    with untouched(integration, https_site):
        assert over_h2(integration, https_site, headers).status in (0, 400)


def test_h2_authority_of_another_site(integration, https_site, sites):
    other = sites.start("https")
    with untouched(integration, https_site, other):
        answer = over_h2(integration, https_site, h2_headers(https_site, authority=other.authority))
        refused(answer, 403, "ambiguous-authority")


@pytest.mark.parametrize("method", ["GET /private/x?", "GET\t/private/x", "G\xe9T", "GET\r\nX: y"])
def test_h2_methods_that_are_not_tokens(integration, https_site, method):
    """Written as HTTP/1, a method with a space is a method and a target."""
    with untouched(integration, https_site):
        answer = over_h2(integration, https_site, h2_headers(https_site, method=method))
        assert answer.status in (0, 400)
        assert not answer.status or "malformed-target" in answer.guard


@pytest.mark.parametrize(
    "path",
    [
        "/open /private/x",
        "/open\t",
        "private/x",
        "https://elsewhere.test/",
        "/open#x",
        "/open\\..\\private",
        "*",
    ],
)
def test_h2_paths_that_are_not_valid_targets(integration, https_site, path):
    with untouched(integration, https_site):
        answer = over_h2(integration, https_site, h2_headers(https_site, path=path))
        assert answer.status in (0, 400)
        assert not answer.status or "malformed-target" in answer.guard


def test_h2_fields_with_line_breaks(integration, https_site):
    smuggled = f"y\r\n\r\nGET {FORBIDDEN} HTTP/1.1\r\nHost: {https_site.authority}"
    with untouched(integration, https_site):
        answer = over_h2(
            integration, https_site, h2_headers(https_site, "GET", "/open", None, ("x", smuggled))
        )
        assert answer.status in (0, 400)


# -- other protocols ------------------------------------------------------------------------------------------

WEBSOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"


def test_a_websocket_to_a_forbidden_path(integration, http_site):
    with untouched(integration, http_site), connected(integration) as connection:
        head = f"GET {http_site.url}{FORBIDDEN} HTTP/1.1\r\nHost: {http_site.authority}\r\n{WEBSOCKET}\r\n"
        refused(exchange(connection, head.encode()))


@pytest.mark.parametrize("upgrade", ["h2c", "TLS/1.0", "foo, websocket"])
def test_any_other_upgrade_is_removed(integration, http_site, upgrade):
    with connected(integration) as connection:
        fields = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n"
        head = f"GET {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\n{fields}\r\n"
        assert exchange(connection, head.encode()).status == 200
    arrived = http_site.origin.received[-1]
    assert (arrived.target, "upgrade" in arrived.headers, "http2-settings" in arrived.headers) == (
        "/open",
        False,
        False,
    )


def test_an_origin_that_switches_protocols_without_a_request(integration, sites):
    switching = Reply(raw=b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
    site = sites.start(pages={"/switch": switching})
    with untouched(integration, site):
        pass
    before = len(site.origin.received)
    with connected(integration) as connection:
        connection.sendall(
            f"GET {site.url}/switch HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        assert read_answer(connection).status == 502
        connection.sendall(f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode())
        closed(connection)
    assert get(integration, site, "/alive").status == 200
    assert [request.target for request in site.origin.received[before:]] == ["/switch", "/alive"]


def test_an_origin_that_switches_protocols_over_h2(integration, sites):
    """The other streams of the client continue."""
    switching = Reply(
        raw=b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    site = sites.start("https", pages={"/switch": switching})
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        client = H2Client(connection)
        targets = ("/switch", "/open")
        statuses = [
            client.exchange(request_fields(site.authority, target)).status for target in targets
        ]
    assert statuses == [502, 200]
    assert site.origin.targets == ["/switch", "/open"]


# -- connections that carry more than one request -------------------------------------------------------------


@pytest.mark.parametrize("before", ["\r\n", "\n", "\r\n\r\n\r\n"])
def test_empty_lines_before_a_request(integration, http_site, before):
    """Some clients send one after a body (RFC 9112 section 2.2)."""
    host = f"Host: {http_site.authority}\r\n"
    post = f"POST {http_site.url}/first HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\nx"
    get_forbidden = f"GET {http_site.url}/private/x HTTP/1.1\r\n{host}\r\n"
    with connected(integration) as connection:
        connection.sendall(f"{before}{post}{before}{get_forbidden}".encode())
        assert [read_answer(connection).status for _ in range(2)] == [200, 403]
    assert http_site.origin.targets == ["/first"]


def test_pipelined_requests_are_judged_one_by_one(integration, http_site):
    before = len(http_site.origin.received)
    with connected(integration) as connection:
        for target in ("/open", FORBIDDEN, "/open2"):
            connection.sendall(
                f"GET {http_site.url}{target} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n".encode()
            )
        assert [read_answer(connection).status for _ in range(3)] == [200, 403, 200]
    assert [request.target for request in http_site.origin.received[before:]] == [
        "/robots.txt",
        "/open",
        "/open2",
    ]


def test_a_kept_connection_is_not_used_for_a_forbidden_page(integration, https_site):
    with tunnel(integration, https_site.authority) as connection:
        for target, status in (("/open", 200), (FORBIDDEN, 403), ("/open2", 200)):
            head = f"GET {target} HTTP/1.1\r\nHost: {https_site.authority}\r\n\r\n"
            assert exchange(connection, head.encode()).status == status
    assert https_site.origin.targets == ["/open", "/open2"]
