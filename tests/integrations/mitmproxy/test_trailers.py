"""Trailers of requests and responses never block a client."""

from __future__ import annotations

import pytest
from integrations.mitmproxy.test_clients import run
from integrations.mitmproxy.wire import H2Client, connected, exchange, plain, request_fields, tunnel
from mitmproxy import http, options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import ResponseTrailers
from mitmproxy.proxy.layers.http._http1 import Http1Server
from mitmproxy.test import tflow

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES
from robots_guard.testing import Reply

LAST = b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"


def chunked(target: str, authority: str) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    return head.encode() + LAST


@pytest.mark.parametrize(("path", "status"), [("/open", 200), ("/private/x", 403)])
def test_an_upload_over_http1(integration, http_site, path, status):
    """It is answered, its body arrives whole, and its connection can be used again."""
    with connected(integration) as connection:
        for _ in range(2):
            target = http_site.url + path
            assert exchange(connection, chunked(target, http_site.authority)).status == status
    bodies = [request.body for request in http_site.origin.received if request.method == "POST"]
    assert bodies == [b"abc", b"abc"] * (status == 200)


def test_an_upload_in_a_tunnel(integration, https_site):
    with tunnel(integration, https_site.authority) as connection:
        assert exchange(connection, chunked("/open", https_site.authority)).status == 200
    assert https_site.origin.received[-1].body == b"abc"


def test_endless_trailers(integration, http_site):
    """They are bounded."""
    head = (
        f"POST {http_site.url}/open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    )
    with connected(integration) as connection:
        connection.sendall(head.encode() + b"X: " + b"y" * 200_000)
        assert exchange(connection, b"").status in (0, 400)
    assert plain(integration, http_site.url + "/after").status == 200
    assert http_site.origin.targets == ["/after"]


def test_an_upload_over_http2(integration, sites):
    """Its trailers are left out, also where its site speaks HTTP/1."""
    site = sites.start("https")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        fields = request_fields(site.authority, "/open", method="POST")
        answer = H2Client(connection).exchange(fields, [b"abc"], trailers=[("x-sum", "1")])
    assert (answer.status, site.origin.targets) == (200, ["/open"])


def test_an_upload_from_http2_to_http2(integration, http2_site):
    with tunnel(integration, http2_site.authority, alpn=["h2"]) as connection:
        fields = request_fields(http2_site.authority, "/open", method="POST")
        assert (
            H2Client(connection).exchange(fields, [b"abc"], trailers=[("x-sum", "1")]).body
            == b"whole"
        )
    assert http2_site.next() == {"path": "/open", "body": "abc", "trailers": {}}


# -- of answers -----------------------------------------------------------------------------------------------

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nwhole\r\n0\r\nX-Sum: 1\r\n\r\n"


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_of_an_http1_site(integration, sites, scheme, version):
    site = sites.start(scheme, pages={"/trailers": Reply(raw=ANSWER)})
    done = run(
        "curl",
        integration,
        "-sS",
        version,
        "--cacert",
        str(integration.ca),
        "-m",
        "15",
        site.url + "/trailers",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("whole", "", 0)


def test_what_is_written_to_an_http1_client():
    """A site may speak HTTP/2 where its client does not, for instance behind a parent proxy."""
    install_patches(ADDON_PATCHES)
    server = Http1Server(Context(tflow.tclient_conn(), options.Options()))
    assert list(server.handle_event(ResponseTrailers(1, http.Headers([(b"x-sum", b"1")])))) == []


def test_of_an_http2_site(integration, http2_site):
    """They are passed on to an HTTP/2 client."""
    with tunnel(integration, http2_site.authority, alpn=["h2"]) as connection:
        answer = H2Client(connection).exchange(request_fields(http2_site.authority, "/trailers"))
    assert (answer.body, answer.headers.get("x-sum")) == (b"whole", "1")
    http2_site.next()


def test_robots_txt_with_trailers(integration, sites):
    rules = b"User-agent: *\nDisallow: /private/\n"
    raw = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n"
        % (
            len(rules),
            rules,
        )
    )
    site = sites.start("http", robots=Reply(raw=raw))
    assert plain(integration, site.url + "/open").status == 200
    assert plain(integration, site.url + "/private/x").status == 403
