"""Plain HTTP through Envoy: verdicts, what reaches the site, and what the audit log says of it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from integrations.envoy.conftest import RULES
from integrations.mitmproxy.process import proxy
from integrations.mitmproxy.wire import closed, connected, exchange, plain, read_answer

from robots_guard.testing import Reply

BODY = b"upload" * 100_000


@pytest.fixture(scope="module")
def site(net):
    def redirect(request) -> Reply:
        return Reply(status=302, headers=(("Location", "/private/x"),))

    return net.origin(RULES, {"/moved": redirect})


@pytest.fixture(autouse=True)
def unvisited(request):
    """Forget what a site has received before the test."""
    if "site" in request.fixturenames:
        request.getfixturevalue("site").received.clear()


def raw(integration, head: str):
    """The answer to a request that is written out."""
    with connected(integration) as connection:
        return exchange(connection, head.encode("latin-1"))


def test_a_permitted_request_reaches_the_site_unchanged(integration, site):
    target = "/a%2Fb/../c//d;e?x=%41&y=[z]|'\"<>^`{}"
    fields = "User-Agent: curl/8\r\nX-Own: 1\r\nAuthorization: Basic eDp5\r\n"

    answer = plain(integration, site.url + target, fields=fields)

    assert answer.status == 200
    (received,) = [each for each in site.received if each.target != "/robots.txt"]
    assert received.target == target
    assert received.headers == {
        "host": f"{site.address}:{site.port}",
        "user-agent": "curl/8",
        "x-own": "1",
        "authorization": "Basic eDp5",
    }


def test_a_refusal_is_that_of_the_proxy(integration, site, tmp_path):
    url = site.url + "/private/x"

    answer = plain(integration, url)
    with proxy(tmp_path) as other:
        expected = plain(other, url)

    assert site.pages_matching("/private/") == []
    assert (answer.status, answer.guard.partition(" id=")[0]) == (
        expected.status,
        expected.guard.partition(" id=")[0],
    )
    own = {"date", "content-length", "server", "connection", "robots-guard"}
    assert {k: v for k, v in answer.headers.items() if k not in own} == {
        k: v for k, v in expected.headers.items() if k not in own
    }
    problem, known = json.loads(answer.body), json.loads(expected.body)
    for each in ("id", "command", "fetched_at"):
        del problem[each], known[each]
    assert problem == known


def test_a_client_that_prefers_html_gets_a_page(integration, site):
    answer = plain(integration, site.url + "/private/x", fields="Accept: text/html\r\n")

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert b"<!doctype html>" in answer.body.lower()


def test_the_refusal_of_head_has_no_body(integration, site):
    url = site.url + "/private/x"
    head = f"HEAD {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(integration) as connection:
        connection.sendall(head.encode())
        answer = closed(connection)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.endswith(b"\r\n\r\n")


def test_head_of_a_permitted_page(integration, site):
    assert plain(integration, site.url + "/page", method="HEAD").status == 200
    assert [each.method for each in site.received if each.target == "/page"] == ["HEAD"]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upload_arrives_whole(integration, site, framing):
    fields, body = f"Content-Length: {len(BODY)}\r\n", BODY
    if framing == "chunked":
        fields = "Transfer-Encoding: chunked\r\n"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

    answer = plain(integration, site.url + "/up", method="POST", fields=fields, body=body)

    assert answer.status == 200
    assert [each.body for each in site.received if each.target == "/up"] == [BODY]


def test_the_body_of_a_refused_upload_stays_here(integration, site):
    fields = f"Content-Length: {len(BODY)}\r\n"

    answer = plain(integration, site.url + "/private/", method="POST", fields=fields, body=BODY)

    assert answer.status == 403
    assert site.targets == []


def test_each_request_on_a_connection_is_judged(integration, site):
    with connected(integration) as connection:
        for target, status in (("/1", 200), ("/private/2", 403), ("/3", 200)):
            head = f"GET {site.url}{target} HTTP/1.1\r\nHost: x\r\n\r\n"
            assert exchange(connection, head.encode()).status == status

    assert site.targets == ["/1", "/3"]


def test_pipelined_requests_are_judged_one_by_one(integration, site):
    targets = ("/1", "/private/2", "/3")
    heads = "".join(f"GET {site.url}{each} HTTP/1.1\r\nHost: x\r\n\r\n" for each in targets)
    with connected(integration) as connection:
        connection.sendall(heads.encode())
        statuses = [read_answer(connection).status for _ in targets]

    assert statuses == [200, 403, 200]
    assert site.targets == ["/1", "/3"]


def test_a_redirect_is_the_clients_to_follow(integration, site):
    assert plain(integration, site.url + "/moved").status == 302
    assert site.targets == ["/moved"]


@pytest.mark.parametrize("status", [503, 500])
def test_an_unreachable_robots_txt_defers(integration, net, status):
    site = net.origin(status)

    answer = plain(integration, site.url + "/a")

    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.guard.startswith("defer; reason=unreachable")
    assert json.loads(answer.body)["reason"] == "unreachable"
    assert site.targets == []


def test_a_long_delay_defers(integration, net):
    site = net.origin("User-agent: *\nCrawl-delay: 30\n")

    answers = [plain(integration, site.url + "/a"), plain(integration, site.url + "/b")]

    assert [answer.status for answer in answers] == [200, 429]
    assert 25 < int(answers[1].headers["retry-after"]) <= 30
    assert site.targets == ["/a"]


@pytest.mark.parametrize(
    ("request_line", "fields", "reason"),
    [
        pytest.param("GET /a", "Host: {0}\r\nHost: b.example\r\n", "malformed", id="two-hosts"),
        pytest.param("GET /a", "Host: u@{0}\r\n", "malformed", id="a-user"),
        pytest.param("GET https://{0}/a", "Host: {0}\r\n", "", id="https-in-the-clear"),
        pytest.param("GET /a\\b", "Host: {0}\r\n", "malformed", id="a-backslash"),
        pytest.param("GET http://{0}/a#b", "Host: {0}\r\n", "", id="a-fragment"),
        pytest.param("GET http://{0}?a", "Host: {0}\r\n", "", id="no-path"),
        pytest.param("OPTIONS *", "Host: {0}\r\n", "", id="the-whole-server"),
        pytest.param("GET /a", "Host:\r\n", "", id="an-empty-host"),
        pytest.param("GET ftp://{0}/a", "Host: {0}\r\n", "", id="ftp"),
        pytest.param("CONNECT {0}", "Host: {0}\r\n", "", id="connect"),
        pytest.param(
            "GET /a",
            "Host: {0}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
            "",
            id="websocket",
        ),
        pytest.param(
            "POST /a",
            "Host: {0}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "",
            id="two-framings",
        ),
    ],
)
def test_an_ambiguous_request_is_refused(integration, site, request_line, fields, reason):
    authority = f"{site.address}:{site.port}"
    head = f"{request_line} HTTP/1.1\r\n{fields}\r\n".format(authority)

    answer = raw(integration, head)

    assert answer.status >= 400
    assert reason in answer.guard
    assert site.targets == []


def test_host_follows_the_target(integration, site):
    head = f"GET {site.url}/a HTTP/1.1\r\nHost: b.example\r\n\r\n"

    assert raw(integration, head).status == 200
    assert [each.headers["host"] for each in site.received if each.target == "/a"] == [
        f"{site.address}:{site.port}"
    ]


@pytest.mark.parametrize("line", ["GET /a", "GET http://{0}/a"])
def test_http_1_0(integration, site, line):
    authority = f"{site.address}:{site.port}"
    head = f"{line} HTTP/1.0\r\nHost: {authority}\r\n\r\n".format(authority)

    assert raw(integration, head).status == 200
    assert site.targets == ["/a"]


def test_a_client_cannot_speak_for_envoy(integration, site, net):
    """Fields that Envoy reads of trusted clients, and those by which it speaks with the service."""
    failing = net.origin(RULES, {"/once": Reply(status=503)})
    fields = (
        "X-Envoy-Retry-On: 5xx\r\nX-Envoy-Max-Retries: 3\r\nX-Envoy-Original-Path: /a\r\n"
        "X-Forwarded-Proto: https\r\nX-Envoy-Upstream-Rq-Timeout-Ms: 1\r\n"
        f"Robots-Guard-Address: {site.address}:{site.port}\r\nRobots-Guard-Client: 9.9.9.9\r\n"
        "Robots-Guard-Scheme: https\r\nX-Forwarded-For: 9.9.9.9\r\n"
        "X-Envoy-Original-Dst-Host: 127.0.0.1:1\r\nProxy-Authorization: Basic eDp5\r\n"
    )

    answer = plain(integration, failing.url + "/once", fields=fields)

    assert answer.status == 503
    assert failing.targets == ["/once"]
    assert site.targets == []
    (received,) = [each for each in failing.received if each.target == "/once"]
    assert not {"proxy-authorization", "x-envoy-retry-on"} & set(received.headers)
    (record,) = [each for each in integration.records() if each["url"] == failing.url + "/once"]
    assert record["client"] == "127.0.0.1"


def test_a_field_of_the_guard_in_a_response_is_not_the_sites(integration, net):
    spoken = (("Robots-Guard-Signals", "x"), ("Robots-Guard-Status", "200"))
    site = net.origin(RULES, {"/a": Reply(headers=spoken)})

    assert "robots-guard-signals" not in plain(integration, site.url + "/a").headers


def test_the_record_is_that_of_the_proxy(integration, net, tmp_path):
    site = net.origin(RULES)
    urls = [site.url + target for target in ("/a", "/private/x", "/robots.txt", "/a\\b")]
    fields = "User-Agent: some/1\r\n"
    with proxy(tmp_path, audit="all") as other:
        for each in (integration, other):
            for url in urls:
                plain(each, url, fields=fields)
        expected = [_comparable(each) for each in other.records()]

    found = [_comparable(each) for each in integration.records() if each["url"] in urls]
    assert found == expected


def _comparable(record):
    """What must not differ between two integrations."""
    own = {"id", "at", "mono", "component", "writer", "seq", "fetched_at", "via"}
    own |= {"age", "elapsed_us"}
    return {name: value for name, value in record.items() if name not in own}


def test_many_clients_at_once(integration, net):
    sites = [net.origin(RULES) for _ in range(4)]
    urls = [
        f"{site.url}/{'private/' if number % 3 == 0 else ''}{number}"
        for number in range(60)
        for site in sites
    ]
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda url: plain(integration, url).status, urls))

    assert statuses == [403 if "private" in url else 200 for url in urls]
    assert sum(len(site.targets) for site in sites) == statuses.count(200)
    assert [len(site.robots_fetches) for site in sites] == [1] * 4
