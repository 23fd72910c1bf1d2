"""Fields for the proxy itself, or that name another target for a server: which of them an origin gets."""

from __future__ import annotations

import pytest
from integrations.mitmproxy.conftest import get
from integrations.mitmproxy.wire import connected, exchange, http2, plain, tunnel

CREDENTIALS = "Basic Y3Jhd2xlcjpzZWNyZXQ="
SAID = f"proxy-AUTHORIZATION: {CREDENTIALS}\r\nProxy-Authorization: Basic c2Vjb25k\r\nProxy-Connection: keep-alive\r\n"


def received(site):
    return [
        name
        for request in site.origin.received
        for name in request.headers
        if name.startswith("proxy-")
    ]


def test_fields_for_the_proxy_are_removed(integration, site):
    assert get(integration, site, "/open", fields=SAID).status == 200
    assert received(site) == []


def test_in_http2_too(integration, https_site):
    fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", https_site.authority),
        (":path", "/open"),
    ]
    with tunnel(integration, https_site.authority, alpn=["h2"]) as connection:
        assert http2(connection, [*fields, ("proxy-authorization", CREDENTIALS)]).status == 200
    assert (https_site.origin.targets, received(https_site)) == (["/open"], [])


def test_an_upload(integration, http_site):
    fields = f"{SAID}Content-Length: 3\r\n"
    assert (
        plain(
            integration, http_site.url + "/open", method="POST", fields=fields, body=b"abc"
        ).status
        == 200
    )
    assert received(http_site) == []


def test_in_reverse_mode(start, http_site):
    with (
        start("proxy", "--mode", f"reverse:{http_site.url}") as integration,
        connected(integration) as connection,
    ):
        head = f"GET /open HTTP/1.1\r\nHost: x.test\r\n{SAID}Authorization: Basic b3duZXI=\r\n\r\n"
        assert exchange(connection, head.encode()).status == 200
    assert received(http_site) == []
    # These credentials are for the site.
    assert http_site.origin.received[-1].headers["authorization"] == "Basic b3duZXI="


@pytest.mark.parametrize(
    ("matching", "left"), [("strict", []), ("standard", ["x-original-url", "x-rewrite-url"])]
)
def test_fields_that_name_another_target(start, http_site, matching, left):
    said = "X-Original-URL: /private/x\r\nX-REWRITE-url: /private/x\r\n"
    with start("proxy", matching=matching) as integration:
        assert plain(integration, http_site.url + "/open", fields=said).status == 200
    assert [name for name in http_site.origin.received[-1].headers if name.startswith("x-")] == left


def test_fields_that_some_servers_read_as_framing(integration, site):
    """Behind CGI and WSGI an underscore is a hyphen: such a field gave a request a length that it does not have."""
    said = "Content_Length: 9\r\ntransfer_encoding: chunked\r\nX_Kept: yes\r\n"
    assert get(integration, site, "/open", fields=said).status == 200
    assert [name for name in site.origin.received[-1].headers if "_" in name] == ["x_kept"]


def test_the_proxys_own_authentication_sees_it_first(start, http_site, https_site):
    with start("mitmdump", "--set", "proxyauth=crawler:secret") as integration:
        assert plain(integration, http_site.url + "/open").status == 407
        allowed = f"Proxy-Authorization: {CREDENTIALS}\r\nProxy-Connection: keep-alive\r\n"
        assert plain(integration, http_site.url + "/open", fields=allowed).status == 200
        # A second tunnel inside the first.
        with tunnel(integration, https_site.authority, fields=allowed) as connection:
            head = f"GET /open HTTP/1.1\r\nHost: {https_site.authority}\r\n{SAID}\r\n"
            assert exchange(connection, head.encode()).status == 200
    assert (http_site.origin.targets, https_site.origin.targets) == (["/open"], ["/open"])
    assert received(http_site) + received(https_site) == []
