"""Changes that other components make after the guard has judged: the judged request is sent, or
none."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from integrations.scrapy.crawl import MODES, crawl

from robots_guard.scrapy.deferral.gate import LOOK_UP_EVERY
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
CLOSED = "User-agent: *\nDisallow: /\n"
OPEN = "User-agent: *\nAllow: /\n"


def moved(location: str) -> Reply:
    return Reply(status=302, headers=(("Location", location),))


def two_sites(net, other: str, own: str = RULES):
    """A server that has another site under the name other.test."""

    def reply(request) -> Reply:
        return Reply(body=other if request.headers["host"] == "other.test" else own)

    return net.origin(reply)


def with_middleware(name: str, priority: int = 500) -> dict:
    return {"DOWNLOADER_MIDDLEWARES": {f"integrations.scrapy.components.{name}": priority}}


# -- the guard's own fetch -------------------------------------------------------------------------


@pytest.mark.parametrize("other", [OPEN, CLOSED])
def test_a_projects_host_field_does_not_select_another_sites_rules(net, tmp_path, other):
    """If they were stored for this origin, every later crawl would use them."""
    site = two_sites(net, other)
    store = {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path}/store"}

    done = crawl([f"{site.url}/open"], {"DEFAULT_REQUEST_HEADERS": {"Host": "other.test"}, **store})
    assert [request.headers["host"] for request in site.robots_fetches] == [
        f"{site.address}:{site.port}"
    ]

    done = crawl([f"{site.url}/open", f"{site.url}/private/x"], store)
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets[-1] == "/open"
    assert "/private/x" not in site.targets


def test_a_copy_of_the_guards_fetch_is_not_exempt(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], with_middleware("CopiesFetch", 50))

    assert site.targets == ["/open"]
    assert done.record(f"{site.url}/private/copied")["reason"] == "disallowed"


def test_proxy_credentials_are_sent_to_a_proxy_only(net):
    elsewhere = net.origin(OPEN)
    site = net.origin(moved(f"{elsewhere.url}/robots.txt"))
    page = {"url": f"{site.url}/x", "headers": {"Proxy-Authorization": "Basic c2VjcmV0"}}

    crawl(
        [page],
        {
            "DOWNLOADER_MIDDLEWARES": {
                "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": None
            }
        },
    )

    fetches = [*site.robots_fetches, *elsewhere.robots_fetches]
    assert len(fetches) == 2
    assert not any("proxy-authorization" in request.headers for request in fetches)


# -- exemptions ------------------------------------------------------------------------------------


def test_an_exemption_does_not_extend_to_another_origin(net):
    victim = net.origin(RULES)
    pages = {
        "/private/start": moved("/private/next"),
        "/private/next": moved(f"{victim.url}/private/x"),
    }
    site = net.origin(RULES, pages=pages)

    done = crawl([{"url": f"{site.url}/private/start", "meta": {"dont_obey_robotstxt": True}}])

    assert site.targets == ["/private/start", "/private/next"]
    assert victim.targets == []
    assert done.record(f"{victim.url}/private/x")["reason"] == "disallowed"


# -- the second gate -------------------------------------------------------------------------------


def test_a_host_field_added_by_a_later_middleware_is_refused(net):
    """Another site of that server would answer, whose rules have not been fetched."""
    site = two_sites(net, CLOSED)

    done = crawl([f"{site.url}/hosted", f"{site.url}/open"], with_middleware("SetsHost"))

    assert done.verdict(f"{site.url}/hosted") == ("drop", "ambiguous-authority")
    assert site.targets == ["/open"]


def test_a_host_field_in_default_request_headers_is_refused(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], {"DEFAULT_REQUEST_HEADERS": {"Host": "other.test"}})

    assert done.verdict(f"{site.url}/open") == ("drop", "ambiguous-authority")
    assert site.targets == []


@pytest.mark.parametrize("mode", MODES)
def test_a_url_changed_by_a_later_middleware_is_judged_again(net, mode):
    """On every reactor: the last middleware answers None or a coroutine."""
    site = net.origin(RULES)
    forbidden, inside = f"{site.url}/open?turn", f"{site.url}/open?inside"

    done = crawl(
        [forbidden, inside, {"url": forbidden, "key": "inline", "inline": True}],
        **MODES[mode]
        | {"settings": MODES[mode]["settings"] | with_middleware("ChangesUrl", 99_999)},
    )

    assert done.verdict(forbidden) == done.verdict("inline") == ("drop", "disallowed")
    assert site.targets == ["/open/inside"]
    assert done.record(f"{site.url}/private/turned")["line"] == 2


def test_media_requests_pass_the_second_gate(net, tmp_path):
    site = net.origin(RULES)
    changed, unchanged = f"{site.url}/open?turn", f"{site.url}/open/file"
    pipeline = {
        "ITEM_PIPELINES": {"integrations.scrapy.components.Downloads": 1},
        "FILES_STORE": str(tmp_path),
    }

    done = crawl(
        [f"{site.url}/page"],
        {**with_middleware("ChangesUrl"), **pipeline},
        files=[changed, unchanged],
    )

    assert sorted(site.targets) == ["/open/file", "/page"]
    assert done[changed]["action"] == "drop"
    assert done[unchanged]["action"] == "pass"


def test_an_unchanged_request_is_judged_once(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], {"ROBOTS_GUARD_AUDIT": "all"})

    assert [record["url"] for record in done.records] == [f"{site.url}/open"]
    assert done.stats["robots_guard/pass/allowed"] == 1


def test_a_url_is_split_once_and_freshness_determined_seldom(net):
    """Freshness is determined when the first request of an origin is judged, and once a second for
    all those that leave the queue."""
    site = net.origin(RULES)
    urls = [f"{site.url}/{number}" for number in range(60)]

    done = crawl(urls, {"EXTENSIONS": {"integrations.scrapy.components.CountsCalls": 0}})

    assert all(done[url]["status"] == 200 for url in urls)
    fetch = 3  # the fetch of robots.txt itself, and the first request after it
    look_ups = done.seconds / LOOK_UP_EVERY + 1
    assert len(urls) <= done.stats["calls/split_url"] <= len(urls) + fetch
    assert 1 <= done.stats["calls/freshness"] <= fetch + look_ups


def test_a_changed_fetch_of_the_guard_is_not_sent(net):
    site = two_sites(net, OPEN)

    done = crawl([f"{site.url}/private/x"], with_middleware("ChangesRobotsHost"), timeout=60)

    assert site.received == []
    assert done.verdict(f"{site.url}/private/x") == ("defer", "unreachable")
    assert "another component has changed the guard's fetch" in done.log


# -- the target on the wire ------------------------------------------------------------------------


def test_the_target_that_twisted_writes_is_judged(net):
    """If bytes are compared, `/private;` is not `/private`; but Twisted sends `/private` for it."""
    site = net.origin("User-agent: *\nDisallow: /private$\nDisallow: /query?\nDisallow: ////\n")
    refused = [f"{site.url}/private;", f"{site.url}/query;?q"]
    free = [f"{site.url}/other;", f"{site.url}/private;v=1", f"{site.url}/a;v=1;w/b;"]

    done = crawl([*refused, *free, f"{site.url}//deep/x"], {"ROBOTS_GUARD_MATCHING": "spec"})

    assert [done.verdict(url) for url in refused] == [("drop", "disallowed")] * 2
    assert [done[url]["action"] for url in free] == ["pass"] * 3
    assert not [t for t in site.targets if t == "/private" or t.startswith(("/query", "////"))]


@pytest.mark.parametrize("library", ["aiohttp", "httpx"])
@pytest.mark.parametrize("matching", ["spec", "standard"])
def test_the_target_that_another_library_writes_is_judged(net, library, matching):
    """aiohttp sends "/a,b" for "/a%2Cb", and both send "/private" for "/open/../private"."""
    module = f"scrapy.core.downloader.handlers._{library}"
    if not find_spec(module):
        pytest.skip("this Scrapy has no such handler")
    handler = f"{module}.{library.title()}DownloadHandler"
    forbidden = ("/a,b", "/c&d", "/e;f", "/g=h", "/private")
    site = net.origin("User-agent: *\n" + "".join(f"Disallow: {target}\n" for target in forbidden))
    targets = ("/a%2Cb", "/c%26d", "/e%3Bf", "/g%3Dh", "/open/../private", "/open%2Cx", "/open")

    done = crawl(
        [f"{site.url}{target}" for target in targets],
        {"DOWNLOAD_HANDLERS": {"http": handler}, "ROBOTS_GUARD_MATCHING": matching},
    )

    assert not [target for target in site.targets if target.startswith(forbidden)]
    assert done.verdict(f"{site.url}/open/../private") == ("drop", "disallowed")
    assert {done.verdict(f"{site.url}{target}")[0] for target in targets[-2:]} == {"pass"}
