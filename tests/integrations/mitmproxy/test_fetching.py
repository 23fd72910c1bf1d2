"""The outcome of misbehaving robots.txt files that are fetched through mitmproxy's own stack."""

from __future__ import annotations

import gzip
import ssl
import threading
import time

import pytest
import trustme
from integrations.mitmproxy.conftest import get
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.wire import plain

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
CAP = 512_000


@pytest.fixture(scope="module")
def hurried(start):
    """A proxy with short timeouts."""
    options = {
        "fetch_timeout": "2",
        "audit": "all",
    }
    with start("mitmdump", **options) as integration:
        yield integration


def record_of(integration, site):
    return next(record for record in integration.records() if record["origin"] == site.url)


TROUBLE = {
    "status-503": (Reply(status=503), "status"),
    "hangs": (Reply(hang=True), "timeout"),
    "drips-too-slowly": (Reply(body="x" * 100, drip=0.1), "timeout"),
    "resets": (Reply(reset=True), "reset"),
    "not-http": (Reply(raw=b"SSH-2.0-x\r\n\r\n\r\n"), "protocol"),
    "http-0.9": (Reply(raw=RULES.encode()), "protocol"),
    "cut-short": (Reply(body=RULES, cut=True), "protocol"),
    "endless-head": (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 2_000_000), "protocol"),
    "no-gzip": (Reply(body=b"no gzip at all", headers=(("Content-Encoding", "gzip"),)), "protocol"),
    "unknown-coding": (Reply(body=b"x", headers=(("Content-Encoding", "zstd"),)), "protocol"),
    "both-lengths": (
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "protocol",
    ),
    "redirect-to-ftp": (
        Reply(status=301, headers=(("Location", "ftp://x.test/"),)),
        "redirect-refused",
    ),
    "redirect-to-no-target": (
        Reply(status=301, headers=(("Location", "/a b\\c"),)),
        "redirect-refused",
    ),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_defers(hurried, sites, scheme, name):
    robots, failure = TROUBLE[name]
    site = sites.start(scheme, robots)
    began = time.monotonic()
    answer = get(hurried, site, "/open")
    assert (answer.status, "reason=unreachable" in answer.guard) == (503, True)
    assert 1 <= int(answer.headers["retry-after"]) <= 120
    assert time.monotonic() - began < 4
    assert site.origin.targets == []
    assert record_of(hurried, site)["failure"] == failure


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_server_listens(hurried, sites, scheme):
    site = sites.start(scheme)
    site.tap.close()
    assert get(hurried, site, "/open").status == 503
    assert record_of(hurried, site)["failure"] == "connect"


def test_no_such_host(hurried):
    assert plain(hurried, "http://no-such-host.invalid/open").status == 503
    (record,) = [record for record in hurried.records() if "no-such-host" in record["origin"]]
    assert (record["failure"], record["detail"]) == ("dns", "dns: the host name does not exist")


SHORTENING = """
from mitmproxy.proxy.layers.http import _http1
plain = _http1.ContentLengthReader.__call__

def shortened(self, buf):
    event = plain(self, buf)
    if hasattr(event, "data"):
        event.data = event.data[:-1]
    return event

_http1.ContentLengthReader.__call__ = shortened
"""


def test_a_response_whose_framing_mitmproxy_misreads(start, http_site, tmp_path):
    script = tmp_path / "shortening.py"
    script.write_text(SHORTENING)
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(script)) as integration:
        assert get(integration, http_site, "/open").status == 503
        assert (
            record_of(integration, http_site)["reason"],
            record_of(integration, http_site)["failure"],
        ) == (
            "unreachable",
            "protocol",
        )
    assert http_site.origin.targets == []


def test_an_untrusted_certificate(hurried, sites, net):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.4.0.1").configure_cert(context)
    origin = net.origin(RULES, tls=context, address="127.4.0.1")
    assert plain(hurried, f"https://127.4.0.1:{origin.port}/open").status == 503
    (record,) = [record for record in hurried.records() if record["origin"] == origin.url]
    assert record["failure"] == "tls"
    option = {"proxy": "--upstream-ca", "mitmdump": "ssl_verify_upstream_trusted_ca"}[hurried.kind]
    assert record["detail"] == (
        "tls: the certificate is not trusted: unknown authority;"
        f" to trust its authority, name it with {option}"
    )
    assert origin.received == []


FINE = {
    "gzip-unasked": (
        Reply(body=gzip.compress(RULES.encode()), headers=(("Content-Encoding", "gzip"),)),
        403,
    ),
    "until-close": (Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + RULES.encode()), 403),
    "chunked": (
        Reply(
            raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n22\r\n"
            + RULES.encode()[:34]
            + b"\r\n0\r\n\r\n"
        ),
        403,
    ),
    "404": (Reply(status=404, body=RULES), 200),
    "204": (Reply(status=204), 200),
    "rules-then-too-much": (Reply(body=RULES.encode() + b"#" * (2 * CAP)), 403),
    "rules-after-the-cap": (Reply(body=b"#\n" * CAP + RULES.encode()), 200),
    "bomb": (
        Reply(
            body=gzip.compress(RULES.encode() + b"#" * 20_000_000),
            headers=(("Content-Encoding", "gzip"),),
        ),
        403,
    ),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", FINE)
def test_readable_responses_are_used(hurried, sites, scheme, name):
    robots, status = FINE[name]
    site = sites.start(scheme, robots)
    assert get(hurried, site, "/private/x").status == status
    assert get(hurried, site, "/open").status == 200
    assert len(site.origin.robots_fetches) == 1
    record = record_of(hurried, site)
    assert record["via"] == "mitmproxy"
    assert record["tls_verified"] is (True if scheme == "https" else None)


def test_the_request_for_robots_txt(integration, site):
    """The operator's User-Agent, no credentials, no cookies, nothing of the page's request."""
    private = "Cookie: a=b\r\nAuthorization: Basic eDp5\r\nUser-Agent: other/1.0\r\nReferer: http://x.test/\r\n"
    assert get(integration, site, "/open", fields=private).status == 200
    (fetch,) = site.origin.robots_fetches
    assert fetch.headers == {
        "host": site.authority,
        "accept": "text/plain, */*;q=0.5",
        "accept-encoding": "identity",
        "user-agent": "mybot (robots_guard)",
    }


def test_no_client_chooses_the_user_agent_of_the_fetch(integration, sites):
    """A client's name could fetch other rules, which would then apply to every client."""
    site = sites.start(
        robots=lambda request: Reply(body=RULES if "mybot" in request.headers["user-agent"] else "")
    )
    assert (
        plain(integration, site.url + "/open", fields="User-Agent: welcome/1.0\r\n").status == 200
    )
    assert plain(integration, site.url + "/private/x", fields="User-Agent: mybot\r\n").status == 403
    assert site.origin.targets == ["/open"]


def test_the_user_agent_of_the_fetch_can_be_set(start, http_site):
    with start("proxy", user_agent="mybot/2.0 (+https://mybot.test/)") as integration:
        assert plain(integration, http_site.url + "/open").status == 200
    assert (
        http_site.origin.robots_fetches[0].headers["user-agent"]
        == "mybot/2.0 (+https://mybot.test/)"
    )


def test_redirects_are_followed_across_origins(integration, sites):
    there = sites.start("https", RULES)
    site = sites.start(
        "http", Reply(status=301, headers=(("Location", f"{there.url}/robots.txt"),))
    )
    assert get(integration, site, "/private/x").status == 403
    assert (len(site.origin.robots_fetches), len(there.origin.robots_fetches)) == (1, 1)


def test_a_robots_txt_is_fetched_once_for_many_requests(integration, sites):
    site = sites.start(robots=Reply(body=RULES, delay=0.3))
    answers = []
    askers = [
        threading.Thread(target=lambda: answers.append(get(integration, site, "/open").status))
        for _ in range(12)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert answers == [200] * 12
    assert len(site.origin.robots_fetches) == 1


def test_a_script_changes_nothing_but_who_asks(start, sites, tmp_path):
    """A coding or a range that a script asks for would make the answer unreadable."""
    site = sites.start()
    script = tmp_path / "fields.py"
    script.write_text(
        "def request(flow):\n"
        "    flow.request.headers['accept-encoding'] = 'br'\n"
        "    flow.request.headers['accept-language'] = 'ja'\n"
        "    flow.request.headers['range'] = 'bytes=0-9'\n"
    )
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(script)) as integration:
        assert plain(integration, site.url + "/open").status == 200
    (fetch,) = site.origin.robots_fetches
    assert set(fetch.headers) == {
        "accept",
        "accept-encoding",
        "accept-language",
        "host",
        "user-agent",
    }
    assert fetch.headers["accept-encoding"] == "identity"
