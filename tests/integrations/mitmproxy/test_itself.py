"""The status site, cached copies of robots.txt, and the ALPN cache."""

from __future__ import annotations

import re

from integrations.mitmproxy.wire import http2, inside, plain, tunnel

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"


def test_readiness(integration):
    answer = plain(integration, "http://robots.guard/ready")
    assert (answer.status, answer.body) == (200, b"ready\n")
    page = plain(integration, "http://robots.guard/")
    assert (page.status, b"<h1>Ready</h1>" in page.body) == (200, True)
    assert plain(integration, "http://robots.guard/nowhere").status == 404
    assert plain(integration, "http://robots.guard/ready", method="HEAD").body == b""


def test_the_certificate(integration, https_site):
    assert inside(integration, https_site.authority, "/open").status == 200
    assert plain(integration, "http://robots.guard/ca.pem").body == integration.ca.read_bytes()


def test_over_tls_too(integration):
    assert inside(integration, "robots.guard:443", "/ready").body == b"ready\n"


def test_why_a_request_was_refused(integration, http_site):
    before = len(integration.records())
    refused = plain(integration, http_site.url + "/private/<x>?token=hidden&page=2")
    number = re.search('id="([^"]+)"', refused.guard)[1]
    why = plain(integration, f"http://robots.guard/why/{number}")

    assert why.status == 200
    assert b"Disallow: /private/" in why.body
    assert b"<x>" not in why.body
    assert (b"page=2" in why.body, b"hidden" in why.body) == (True, False)  # others may ask, too
    assert plain(integration, "http://robots.guard/why/0-0").status == 404
    # Requests for the proxy itself are not recorded.
    assert len(integration.records()) == before + 1


def test_the_console_behind_the_proxy_is_read_only(start, sites):
    site = sites.start(robots=Reply(body=RULES))
    with start("proxy", "--console") as integration:
        assert plain(integration, f"{site.url}/private/<x>").status == 403
        overview = plain(integration, "http://robots.guard/console/")
        listed = plain(integration, "http://robots.guard/console/decisions?action=drop")

        assert overview.status == 200
        assert b"/console/static/" in overview.body
        assert b"{" in plain(integration, "http://robots.guard/console/static/console.css").body
        assert b"/private/&lt;x&gt;" in listed.body
        assert b"<x>" not in listed.body
        assert (
            plain(
                integration,
                "http://robots.guard/console/",
                method="POST",
                fields="Content-Length: 0\r\n",
            ).status
            == 405
        )
        assert plain(integration, "http://robots.guard/consoles").body == (
            b"The pages are /, /ready, /ca.pem, /console/ and /why/ID.\n"
        )
        assert b'<a href="/console/">' in plain(integration, "http://robots.guard/").body
        assert plain(integration, "http://robots.guard/ready").status == 200


def test_the_console_is_off_by_default(integration):
    assert plain(integration, "http://robots.guard/console/").status == 404
    assert (
        plain(integration, "http://robots.guard/console/").body
        == b"The pages are /, /ready, /ca.pem and /why/ID.\n"
    )
    assert b"/console/" not in plain(integration, "http://robots.guard/").body


# -- robots.txt requested by the crawler itself ---------------------------------------------------------------


def test_robots_txt_is_requested_from_the_site(start, sites):
    """A crawler's own headers could fetch another file than the one that applies."""
    site = sites.start(
        robots=lambda request: Reply(body="" if "x-open" in request.headers else RULES)
    )
    with start("proxy") as integration:
        assert plain(integration, site.url + "/robots.txt", fields="X-Open: 1\r\n").body == b""
        assert plain(integration, site.url + "/private/x").status == 403
    assert len(site.origin.robots_fetches) == 2


# -- what an origin speaks ------------------------------------------------------------------------------------


def test_the_next_client_is_offered_the_origins_protocol(integration, sites):
    """An origin without HTTP/2 would cost a client of HTTP/2 a connection for each request."""
    site = sites.start("https")
    chosen = []
    for _ in range(2):
        with tunnel(integration, site.authority, alpn=["h2", "http/1.1"]) as connection:
            chosen.append(connection.selected_alpn_protocol())
            if chosen[-1] == "h2":
                pseudo = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", site.authority),
                    (":path", "/open"),
                ]
                assert http2(connection, pseudo).status == 200
    assert chosen == ["h2", "http/1.1"]
