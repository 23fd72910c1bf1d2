"""Pacing: the delays of sites and the operator hold on the wire, for every client and kind of connection.

Delays are measured at the origin. A delay of a request after its turn was taken, also on a busy machine,
is compensated by counting the turn from the response; so a gap may be too long, but never too short.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

import pytest
from integrations.mitmproxy.conftest import KINDS, get
from integrations.mitmproxy.h2_site import h2_site
from integrations.mitmproxy.origin import Site, Tap
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.wire import (
    H2Client,
    connected,
    exchange,
    plain,
    read_answer,
    request_fields,
    tunnel,
)
from support.programs import program
from support.waiting import eventually

from robots_guard.testing import Reply

pytestmark = pytest.mark.timing

DELAY = 0.3
TOLERANCE = 0.01
PACED = f"User-agent: *\nCrawl-delay: {DELAY}\nDisallow: /private/\n"
LONG = "User-agent: *\nCrawl-delay: 30\nDisallow: /private/\n"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture(scope="module")
def integrations(start):
    """Proxies that hold a request for as long as these tests' sites ask."""
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(start(kind, hold_max="3", audit="all")) for kind in KINDS}


def pages(site: Site):
    return [request for request in site.origin.received if request.target != "/robots.txt"]


def gaps(site: Site) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(pages(site))]


def decided(integration, url: str) -> None:
    """Wait until a request is permitted; it may then be waiting for its turn."""
    eventually(lambda: any(each["url"] == url for each in integration.records()))


def later(work, *arguments, **options) -> Future:
    """A client of its own."""
    answer: Future = Future()
    threading.Thread(
        target=lambda: answer.set_result(work(*arguments, **options)), daemon=True
    ).start()
    return answer


# -- the delay is kept ----------------------------------------------------------------------------------------


def one_by_one(integration, site):
    return [get(integration, site, f"/{number}").status for number in range(3)]


def at_once(integration, site):
    """One of them asks for a WebSocket."""
    with ThreadPoolExecutor(4) as clients:
        fields = ["", UPGRADE, "", ""]
        answers = [
            clients.submit(get, integration, site, f"/{number}", fields=each)
            for number, each in enumerate(fields)
        ]
        return [answer.result().status for answer in answers]


def on_one_connection(integration, site):
    absolute = site.url if site.scheme == "http" else ""
    request = f"GET {absolute}/x HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
    with (
        connected(integration)
        if site.scheme == "http"
        else tunnel(integration, site.authority) as connection
    ):
        return [exchange(connection, request).status for _ in range(3)]


def by_methods(integration, site):
    post = {"method": "POST", "fields": "Content-Length: 0\r\n"}
    return [get(integration, site, "/x", **more).status for more in ({"method": "HEAD"}, post, {})]


@pytest.mark.parametrize("ask", [one_by_one, at_once, on_one_connection, by_methods])
def test_a_crawl_delay_is_kept(integration, sites, request, ask):
    """http through one proxy, https through the other, and both ways of either over both."""
    scheme = "https" if (integration.kind == "proxy") == (ask in (at_once, by_methods)) else "http"
    site = sites.start(scheme, PACED)

    assert set(ask(integration, site)) == {200}
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)
    assert len(site.origin.robots_fetches) == 1


def streams(integration, url: str, form: str, *options: str) -> list[str]:
    """What curl prints on each of four requests that it sends together on one HTTP/2 connection."""
    outputs = [part for number in range(4) for part in ("-o", "/dev/null", f"{url}/{number}")]
    trust = ["-x", integration.url, "--cacert", integration.ca]
    command = [
        program("curl"),
        "-s",
        "-Z",
        "--http2",
        *trust,
        "-w",
        f"{form}\n",
        *options,
        *outputs,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines()


def test_streams_of_one_connection_wait(integration, sites):
    site = sites.start("https", PACED)

    assert streams(integration, site.url, "%{http_version} %{http_code}") == ["2 200"] * 4
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)


def test_connecting_does_not_shorten_the_delay(integration, sites):
    """The first connection is slow and the second quick, and the first answer comes when both are long gone."""
    site = sites.start("https", PACED, {"/slow": Reply(delay=1.0)})
    assert get(integration, site, "/known").status == 200
    site.tap.pauses.append(0.2)

    before = site.tap.accepts  # it waits before it connects
    answers = [later(get, integration, site, "/slow")]
    eventually(lambda: site.tap.accepts > before)
    answers.append(later(get, integration, site, "/quick"))

    assert [answer.result(60).status for answer in answers] == [200, 200]
    assert site.origin.targets == ["/known", "/slow", "/quick"]
    assert min(gaps(site)) > DELAY - 0.1


def test_a_slow_connection_does_not_shorten_the_delay(integration, sites):
    """Connecting takes longer than a turn stays valid: the turn is moved before the request is sent."""
    site = sites.start("https", "User-agent: *\nCrawl-delay: 1.5\n", {"/slow": Reply(delay=1.0)})
    assert get(integration, site, "/known").status == 200
    site.tap.pauses.append(0.9)

    before = site.tap.accepts
    answers = [later(get, integration, site, "/slow")]
    eventually(lambda: site.tap.accepts > before)
    answers.append(later(get, integration, site, "/quick"))

    assert [answer.result(60).status for answer in answers] == [200, 200]
    assert site.origin.targets == ["/known", "/slow", "/quick"]
    assert min(gaps(site)) > 1.5 - 0.1


def test_a_site_without_a_delay_is_not_delayed(integration, http_site):
    for number in range(5):
        assert plain(integration, f"{http_site.url}/{number}").status == 200

    assert min(gaps(http_site)) < DELAY


def test_another_site_is_not_delayed(integration, sites):
    slow, quick = sites.start("http", "User-agent: *\nCrawl-delay: 1\n"), sites.start("http")
    assert get(integration, slow, "/1").status == 200
    waiting = later(get, integration, slow, "/2")

    assert get(integration, quick, "/1").status == 200
    assert not waiting.done()
    assert waiting.result(60).status == 200


def test_requests_are_sent_in_order_of_arrival(integration, sites):
    site = sites.start("http", PACED)
    assert get(integration, site, "/first").status == 200
    clients = []
    for number in range(4):
        clients.append(later(get, integration, site, f"/{number}"))
        decided(integration, f"{site.url}/{number}")

    assert [client.result(60).status for client in clients] == [200] * 4
    assert site.origin.targets == ["/first", *(f"/{number}" for number in range(4))]


# -- long waits are refused at once ---------------------------------------------------------------------------


def test_a_long_wait_is_a_429(integration, site, sites):
    site = sites.start(site.scheme, LONG)
    assert get(integration, site, "/1").status == 200
    started = time.time()

    answer = get(integration, site, "/2")

    assert answer.status == 429
    assert answer.guard.startswith("defer; reason=crawl-delay; until=")
    assert 'rule="Crawl-delay: 30"; line=2; id=' in answer.guard
    assert 29 <= int(answer.headers["retry-after"]) <= 30
    until = int(answer.guard.partition("until=")[2].partition(";")[0])
    assert started + 29 <= until <= time.time() + 31
    problem = json.loads(answer.body)
    assert (problem["status"], problem["reason"], problem["delay"]) == (429, "crawl-delay", 30)
    assert datetime.fromisoformat(problem["until"]).timestamp() == until
    assert "a delay between two requests. Try again in" in problem["detail"]
    # The proxy's own 429 is not the site's, and causes no pause.
    assert "reason=crawl-delay" in get(integration, site, "/3").guard
    assert site.origin.targets == ["/1"]
    assert get(integration, site, "/private/x").status == 403
    assert get(integration, site, "/robots.txt").status == 429


def test_a_browser_gets_a_page(integration, sites):
    site = sites.start("http", LONG)
    get(integration, site, "/1")
    answer = get(integration, site, "/2", fields="Accept: text/html\r\n")
    assert (answer.status, "Not now" in answer.body.decode()) == (429, True)
    assert b"Again in" in answer.body


def test_a_closed_site_is_a_503(integration, sites):
    opens = time.gmtime(time.time() + 6 * 3600)
    site = sites.start(
        "http", f"User-agent: *\nVisit-time: {opens.tm_hour:02}00-{opens.tm_hour:02}30\n"
    )

    answer = get(integration, site, "/1")

    assert (answer.status, answer.headers["proxy-status"].split("; ")[1]) == (
        503,
        "error=destination_unavailable",
    )
    assert answer.guard.startswith("defer; reason=visit-time; until=")
    assert 4 * 3600 < int(answer.headers["retry-after"]) <= 6 * 3600
    assert site.origin.targets == []


def test_an_unreachable_site_says_until_when(integration, sites):
    answer = get(integration, sites.start("http", 503), "/1")
    assert answer.status == 503
    assert answer.guard.startswith("defer; reason=unreachable; until=")


def test_the_audit_log_links_deferred_requests(integration, sites):
    site = sites.start("http", LONG)
    answers = [get(integration, site, target) for target in ("/1", "/2", "/3", "/2", "/2")]
    assert [answer.status for answer in answers] == [200, 429, 429, 429, 429]

    records = [
        each
        for each in integration.records()
        if each["origin"] == site.url and each["action"] == "defer"
    ]

    first = records[0]["id"]
    assert [(each["url"].rpartition("/")[2], each["defers"]) for each in records] == [
        ("2", None), ("3", None), ("2", first), ("2", first),
    ]  # fmt: skip
    assert {(each["delay_source"], each["delay"], each["line"]) for each in records} == {
        ("crawl-delay", 30.0, 2)
    }
    assert get(integration, site, "/2", method="HEAD").status == 429
    assert integration.records()[-1]["defers"] is None


# -- clients that leave ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_client_that_leaves_gives_up_its_place(integration, sites, scheme):
    """Otherwise the next request would be sent a delay later."""
    site = sites.start(scheme, "User-agent: *\nCrawl-delay: 0.6\n")
    assert get(integration, site, "/first").status == 200
    leaver = connected(integration) if scheme == "http" else tunnel(integration, site.authority)
    with leaver as connection:
        absolute = site.url if scheme == "http" else ""
        connection.sendall(
            f"GET {absolute}/leaves HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        decided(integration, f"{site.url}/leaves")
        stays = later(get, integration, site, "/stays")
        decided(integration, f"{site.url}/stays")

    assert stays.result(60).status == 200
    assert site.origin.targets == ["/first", "/stays"]
    assert 0.59 <= gaps(site)[0] < 1.1
    assert get(integration, site, "/last").status == 200
    assert site.origin.targets == ["/first", "/stays", "/last"]


def test_a_stream_that_is_reset_gives_up_its_place(integration, sites):
    """Its connection stays open: a client cancels one request of many, or has waited long enough."""
    site = sites.start("https", "User-agent: *\nCrawl-delay: 1.5\n")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        client = H2Client(connection)
        assert client.exchange(request_fields(site.authority, "/first")).status == 200
        for number in range(8):
            stream = client.begin(request_fields(site.authority, f"/leaves/{number}"))
            decided(integration, f"{site.url}/leaves/{number}")
            client.reset(stream)

        assert client.exchange(request_fields(site.authority, "/stays")).status == 200
    assert site.origin.targets == ["/first", "/stays"]
    assert 1.49 <= gaps(site)[0] < 2.9


def test_the_only_waiting_client_leaves(integration, sites):
    site = sites.start("http", "User-agent: *\nCrawl-delay: 2\n")
    assert get(integration, site, "/first").status == 200
    with connected(integration) as connection:
        connection.sendall(
            f"GET {site.url}/leaves HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        decided(integration, f"{site.url}/leaves")
    time.sleep(2.0)  # its turn has expired unused

    began = time.monotonic()
    assert get(integration, site, "/last").status == 200
    assert time.monotonic() - began < 1.7
    assert site.origin.targets == ["/first", "/last"]


# -- what the origin itself asks for --------------------------------------------------------------------------

BUSY = Reply(status=429, headers=(("Retry-After", "40"),))


def test_retry_after_pauses_an_origin(integration, sites):
    """Also one that asks for no delay."""
    site = sites.start("http", pages={"/busy": BUSY})
    assert get(integration, site, "/1").status == 200
    assert get(integration, site, "/busy").status == 429

    answer = get(integration, site, "/2")

    assert answer.status == 429
    assert answer.guard.startswith("defer; reason=retry-after; until=")
    assert 39 <= int(answer.headers["retry-after"]) <= 40
    assert site.origin.targets == ["/1", "/busy"]


def test_a_request_waits_for_a_short_pause(integration, sites):
    site = sites.start("http", pages={"/busy": Reply(status=503, headers=(("Retry-After", "1"),))})
    assert get(integration, site, "/busy").status == 503

    assert get(integration, site, "/2").status == 200
    assert gaps(site)[0] >= 0.99


def test_settings(start, sites):
    """A proxy with other settings: the origin's Retry-After is ignored, rules may change."""
    settings = {
        "respect_retry_after": "false",
        "hold_max": "0.5",
        "on_disallowed": "defer",
        "max_defer": "1",
    }
    with start(KINDS[0], audit="all", min_delay="0.05", **settings) as integration:
        busy = sites.start("http", pages={"/busy": BUSY})
        assert [get(integration, busy, target).status for target in ("/busy", "/2", "/3")] == [
            429,
            200,
            200,
        ]
        assert min(gaps(busy)) >= 0.05 * (1 - TOLERANCE)

        site = sites.start("http", "User-agent: *\nCrawl-delay: 1\nDisallow: /private/\n")
        assert [get(integration, site, target).status for target in ("/1", "/2")] == [200, 429]

        answers = [get(integration, site, "/private/x"), get(integration, site, "/private/x")]
        assert [answer.status for answer in answers] == [503, 503]
        assert [answer.guard[:24] for answer in answers] == ["defer; reason=disallowed"] * 2
        assert [answer.headers["retry-after"] for answer in answers] == ["1", "1"]
        time.sleep(1.0)  # as Retry-After says
        assert [get(integration, site, "/private/x").status for _ in range(2)] == [403, 403]
        records = [each for each in integration.records() if each["url"] == f"{site.url}/private/x"]
        assert [each["action"] for each in records] == ["defer", "defer", "drop", "drop"]
        assert {each["defers"] for each in records[1:]} == {records[0]["id"]}
        assert site.origin.targets == ["/1"]


def test_retry_after_also_pauses_an_upload(integration, sites):
    """It was permitted before the site asked for a pause, and is sent when its body has been read."""
    site = sites.start("http", pages={"/busy": BUSY})
    assert get(integration, site, "/1").status == 200
    with connected(integration) as client:
        head = (
            f"POST {site.url}/up HTTP/1.1\r\nHost: {site.authority}\r\nContent-Length: 10\r\n\r\n"
        )
        client.sendall(head.encode())
        decided(integration, f"{site.url}/up")
        assert get(integration, site, "/busy").status == 429

        answer = exchange(client, b"0123456789")

    assert answer.guard.startswith("defer; reason=retry-after; until=")
    assert site.origin.targets == ["/1", "/busy"]


def test_report_only_delays_no_request(start, sites):
    with start("mitmdump", report_only="true") as integration:
        site = sites.start("http", LONG)
        assert [get(integration, site, target).status for target in ("/1", "/2")] == [200, 200]
        assert max(gaps(site)) < 2
        last = integration.records()[-1]
        assert (last["action"], last["reason"], last["would"]) == ("pass", "crawl-delay", "defer")


# -- what happens meanwhile -----------------------------------------------------------------------------------

MEDDLES = """
import asyncio
tasks = set()
async def rewrite(flow):
    await asyncio.sleep(0.1)
    flow.request.path = "/private/x"
def requestheaders(flow):
    flow.request.stream = flow.request.path.startswith("/stream")
async def request(flow):
    if flow.request.path == "/meanwhile":
        tasks.add(asyncio.ensure_future(rewrite(flow)))
    if flow.request.path == "/stream?after":
        flow.request.path = "/private/x"
    if flow.request.path == "/now":
        flow.request.path, flow.request.stream = "/private/x", True
"""


@pytest.fixture(scope="module")
def meddled(start, tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "meddles.py"
    path.write_text(MEDDLES)
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(path)) as integration:
        yield integration


def test_a_request_changed_while_it_waits_is_judged_again(meddled, sites):
    site = sites.start("http", PACED)
    assert get(meddled, site, "/1").status == 200

    assert get(meddled, site, "/meanwhile").status == 403
    assert [get(meddled, site, target).status for target in ("/now", "/stream?after")] == [403, 403]
    assert get(meddled, site, "/2").status == 200
    assert site.origin.targets == ["/1", "/2"]


def test_a_streamed_upload_waits_before_it_is_sent(meddled, sites):
    site = sites.start("http", PACED)
    assert get(meddled, site, "/1").status == 200
    head = (
        f"POST {site.url}/stream HTTP/1.1\r\nHost: {site.authority}\r\nContent-Length: 10\r\n\r\n"
    )

    with connected(meddled) as connection:
        connection.sendall(head.encode() + b"01234")
        time.sleep(0.1)
        connection.sendall(b"56789")
        assert read_answer(connection).status == 200

    assert pages(site)[-1].body == b"0123456789"
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)


# -- turns that are lost while a connection is made -------------------------------------------------------


class Refused(NamedTuple):
    """A response of the proxy, as curl prints it."""

    url: str
    status: str
    retry_after: str
    content_type: str
    guard: str


def check_deferrals(integration, url: str, answers: list[Refused]) -> None:
    """Each 429 is the deferral that is in the audit log, which has no other refusal for this site."""
    recorded = {
        each["id"]: each["url"]
        for each in integration.records()
        if each["url"].startswith(url) and each["action"] != "pass"
    }
    for answer in answers:
        assert answer.guard.startswith("defer; reason=")
        assert 1 <= int(answer.retry_after) <= 6
        assert recorded.pop(answer.guard.rpartition("id=")[2].strip('"')) == answer.url
    assert not recorded


def answers_to_streams(integration, url: str, *options: str) -> tuple[list[Refused], int]:
    """The refusals among the answers to four streams of one connection, and how many others there are."""
    fields = ["%{url}", "%{http_code}", "%header{retry-after}", "%{content_type}"]
    form = "\\t".join([*fields, "%header{robots-guard}", "%{http_version}"])
    lines = [line.split("\t") for line in streams(integration, url, form, *options)]
    assert [version for *_, version in lines] == ["2"] * 4
    answers = [Refused(*fields) for *fields, _ in lines]
    refused = [answer for answer in answers if answer.status == "429"]
    return refused, [answer.status for answer in answers].count("200")


@pytest.mark.parametrize("accept", ["application/problem+json", "text/html"])
def test_a_stream_whose_turn_is_lost_while_connecting_gets_a_429(integration, sites, accept):
    site = sites.start("https", "User-agent: *\nCrawl-delay: 1\n")
    site.tap.pauses += [0.0, 2.5]  # robots.txt, and the first page: turns are taken meanwhile

    refused, others = answers_to_streams(integration, site.url, "-H", f"Accept: {accept}")

    assert refused
    assert len(refused) + others == 4
    assert {answer.content_type.partition(";")[0] for answer in refused} == {accept}
    check_deferrals(integration, site.url, refused)
    assert min(gaps(site), default=1.0) >= 1 * (1 - TOLERANCE)


def test_the_same_on_a_connection_to_an_http2_site(start, authority, tmp_path):
    with (
        h2_site(tmp_path, authority, "127.3.251.7") as site,
        start("proxy", min_delay="1", audit="all") as integration,
    ):
        host, _, port = site.authority.partition(":")
        tap = Tap(host, int(port))
        tap.pauses += [0.0, 2.5]
        refused, others = answers_to_streams(integration, f"https://{host}:{tap.port}")
        tap.close()

        assert refused
        assert len(refused) + others == 4
        assert tap.accepts == 2
        check_deferrals(integration, f"https://{host}:{tap.port}", refused)


STREAMS = """
def requestheaders(flow):
    flow.request.stream = "stream" in flow.request.path
"""


@pytest.mark.parametrize(
    ("method", "target"), [("GET", "/x"), ("HEAD", "/x"), ("POST", "/x"), ("POST", "/stream")]
)
def test_a_lost_turn_that_cannot_be_replaced_is_a_429(impatient, sites, method, target):
    """Another client takes the next turn while the connection is made."""
    site = sites.start("https", "User-agent: *\nCrawl-delay: 2\n")
    site.tap.pauses += [0.0, 2.6]
    body = "body" if method == "POST" else ""
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: {site.authority}\r\nContent-Length: {len(body)}\r\n"
    )

    with tunnel(impatient, site.authority) as connection:
        connection.sendall(f"{head}\r\n{body}".encode())
        eventually(lambda: site.tap.accepts == 2)
        eventually(lambda: get(impatient, site, "/quick").status == 200)
        answer = read_answer(connection, body=method != "HEAD")

    assert answer.status == 429
    assert bool(answer.body) is (method != "HEAD")
    assert answer.guard.startswith("defer; reason=crawl-delay; until=")
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    records = impatient.records()
    (record,) = (each for each in records if answer.guard.endswith(f'id="{each["id"]}"'))
    assert (record["action"], record["method"]) == ("defer", method)
    assert "not-judged" not in {each["reason"] for each in records}
    # The proxy's own 429 is not the site's, and causes no pause.
    assert "reason=crawl-delay" in get(impatient, site, "/again").guard
    assert site.origin.targets == ["/quick"]


@pytest.fixture(scope="module")
def impatient(start, tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "streams.py"
    path.write_text(STREAMS)
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(path), hold_max="0.3") as integration:
        yield integration
