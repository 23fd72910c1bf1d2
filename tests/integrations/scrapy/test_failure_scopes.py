"""A failure to fetch robots.txt is charged to the one who caused it: the site, a route, or the crawl."""

from __future__ import annotations

import random
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from integrations.scrapy.crawl import crawl
from support.stores import free_port

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
HERE = "integrations.scrapy.test_failure_scopes"


class RandomProxy:
    """Picks a proxy for each request, as tutorials do."""

    def __init__(self, proxies: list[str]) -> None:
        self._proxies = proxies
        self._random = random.Random(1)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getlist("PROXIES"))

    def process_request(self, request):
        request.meta["proxy"] = self._random.choice(self._proxies)


class Forwards(BaseHTTPRequestHandler):
    """A plain proxy, which closes each connection."""

    def do_GET(self):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.path) as answer:
            body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Rewrites:
    """Sends each request through a scraping API, by another URL."""

    def process_request(self, request):
        if "/v1?url=" not in request.url:
            return request.replace(url=f"http://127.0.0.1:9/v1?url={request.url}")
        return None


class SetsFields:
    """Sets fields on every request, as the middlewares of a project do."""

    def process_request(self, request):
        request.headers["Accept-Encoding"] = "br"
        request.headers["If-None-Match"] = '"1"'
        request.headers["X-Requested-With"] = "XMLHttpRequest"


def raising(error):
    class Raises:
        def process_response(self, request, response):
            if request.url.endswith("/robots.txt"):
                raise error
            return response

    return Raises


RaisesValueError = raising(ValueError("a mistake"))


@pytest.fixture
def dead():
    """The URL of a proxy that does not run."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def proxy():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forwards)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def recorded(done, url):
    """Action and reason of the last record on a URL."""
    record = done.record(url)
    return record["action"], record["reason"]


def shared(tmp_path):
    return {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path}/policies.sqlite"}


def test_a_dead_proxy_is_no_failure_of_the_site(net, tmp_path, dead):
    """Such a failure does not make other crawls on the store wait: it is not the site's."""
    site = net.origin(RULES)
    page = f"{site.url}/a"

    first = crawl([{"url": page, "meta": {"proxy": dead}}], shared(tmp_path))
    second = crawl([page], shared(tmp_path))

    assert recorded(first, page) == ("defer", "route-failed")
    assert first.record(page)["detail"].endswith(f"(through {dead.removeprefix('http://')})")
    assert first.stats["robots_guard/fetch/route_failure"] == 1
    assert first.stats["robots_guard/defer/route-failed"] >= 1
    assert f"robots.txt could not be fetched through {dead.removeprefix('http://')}" in first.log
    assert second.verdict(page)[0] == "pass"


def test_a_route_that_fails_holds_up_no_other(net, dead):
    site = net.origin(RULES)
    by_proxy = {"url": f"{site.url}/a", "meta": {"proxy": dead}, "key": "by proxy"}
    directly = {"url": f"{site.url}/b", "meta": {"download_slot": "another"}, "priority": -1}

    done = crawl([by_proxy, directly])

    assert done[directly["url"]]["status"] == 200
    # Permitted, and as ever: Scrapy's own exception, or that of Twisted in Scrapy 2.14.
    assert done["by proxy"]["error"].endswith("ConnectionRefusedError")
    assert site.targets == ["/b"]


@pytest.mark.parametrize("place", [50, 740], ids=["before-the-guard", "behind-the-guard"])
def test_random_proxies_of_which_most_are_dead(net, proxy, place):
    sites = [net.origin(RULES) for _ in range(4)]
    pages = [f"{site.url}/a" for site in sites]
    dead_ones = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]

    done = crawl(
        pages + [f"{site.url}/private/x" for site in sites],
        {
            "DOWNLOADER_MIDDLEWARES": {f"{HERE}.RandomProxy": place},
            "PROXIES": [proxy, *dead_ones],
            "RETRY_ENABLED": True,
            "RETRY_TIMES": 40,
        },
        retry_min=1,
        see_through=True,
    )

    assert {done.verdict(page)[0] for page in pages} == {"pass"}
    assert [site.targets for site in sites] == [["/a"]] * len(sites)


@pytest.mark.parametrize("place", [50, 740], ids=["before-the-guard", "behind-the-guard"])
def test_a_dead_proxy_of_every_request_is_left_alone_for_longer_and_longer(net, dead, place):
    """Its back-off begins with a second, wherever the proxy is chosen, and no decision is made
    more often than a fetch."""
    site = net.origin(RULES)
    settings = {"DOWNLOADER_MIDDLEWARES": {f"{HERE}.RandomProxy": place}, "PROXIES": [dead]}

    done = crawl([f"{site.url}/a"], settings, retry_min=1, see_through=True, stop_after=8)

    assert 2 <= done.stats["robots_guard/fetch/route_failure"] <= 4
    assert done.stats["robots_guard/defer/route-failed"] <= 5


@pytest.mark.parametrize("handler", [None, "HttpxDownloadHandler"])
def test_the_fetch_asks_only_for_what_it_can_read(net, handler):
    site = net.origin(RULES)
    settings = {
        "DEFAULT_REQUEST_HEADERS": {
            "Accept": "text/html",
            "Accept-Encoding": "gzip, br",
            "Accept-Language": "ja",
            "Expect": "100-continue",
            "From": "crawler@example.test",
            "If-Modified-Since": "Fri, 01 Jan 2027 00:00:00 GMT",
            "Range": "bytes=0-9",
            "TE": "trailers",
        },
        "DOWNLOADER_MIDDLEWARES": {f"{HERE}.SetsFields": 950},
    }
    if handler is not None:
        path = f"scrapy.core.downloader.handlers._httpx.{handler}"
        pytest.importorskip("scrapy.core.downloader.handlers._httpx")
        settings["DOWNLOAD_HANDLERS"] = {"http": path}

    done = crawl([f"{site.url}/a"], settings)

    (fetch,) = site.robots_fetches
    assert set(fetch.headers) - {"connection"} == {
        "accept",
        "accept-encoding",
        "accept-language",
        "from",
        "host",
        "user-agent",
    }
    assert fetch.headers["accept-encoding"] in ("gzip, deflate", "identity")
    assert (fetch.headers["accept-language"], fetch.headers["from"]) == (
        "ja",
        "crawler@example.test",
    )
    assert done[f"{site.url}/a"]["status"] == 200
    assert "if-none-match" in site.received[-1].headers, "a page has them all"


@pytest.mark.parametrize("component", ["Rewrites", "RaisesValueError"])
def test_a_component_of_the_crawl_that_fails_the_fetch_is_no_failure_of_the_site(
    net, tmp_path, component
):
    site = net.origin(RULES)
    page = f"{site.url}/a"
    components = {"DOWNLOADER_MIDDLEWARES": {f"{HERE}.{component}": 725}}

    first = crawl([page], {**shared(tmp_path), **components})
    second = crawl([page], shared(tmp_path))

    assert recorded(first, page) == ("defer", "fetcher-failed")
    assert first.stats["robots_guard/fetch/fetcher_failure"] == 1
    assert second.verdict(page)[0] == "pass"
    if component == "Rewrites":
        assert 'set ROBOTS_GUARD_FETCH = "direct"' in first.log
        assert site.targets == ["/a"], "the second crawl's"


def test_a_proxy_that_does_not_reach_the_site_is_no_failure_of_the_site(net, tmp_path):
    """It answers for the site, with 502, 503 or 504."""
    site, proxy = net.origin(RULES), net.origin(502)
    proxy.pages[f"{site.url}/robots.txt"] = Reply(status=502)
    page = f"{site.url}/a"

    first = crawl([{"url": page, "meta": {"proxy": proxy.url}}], shared(tmp_path))
    second = crawl([page], shared(tmp_path))

    assert recorded(first, page) == ("defer", "route-failed")
    assert second.verdict(page)[0] == "pass"


def test_a_site_that_answers_badly_is_left_alone_by_all(net, tmp_path):
    site = net.origin(503)
    page = f"{site.url}/a"

    first = crawl([page], shared(tmp_path))
    second = crawl([page], shared(tmp_path))

    assert recorded(first, page) == recorded(second, page) == ("defer", "unreachable")
    assert len(site.robots_fetches) == 1
