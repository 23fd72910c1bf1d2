"""Ordinary requests are judged on a shorter path, with the same result."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integrations.scrapy.crawl import crawl
from scrapy import Request
from scrapy.settings import Settings

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.scrapy.fetch.fetcher import DOWNLOAD, Route, ScrapyFetcher
from robots_guard.scrapy.guarded_request import DEFERRAL, RETURNED, is_returned
from robots_guard.scrapy.questions import BYPASS, Questions
from robots_guard.scrapy.robots_responses import can_share
from robots_guard.testing import Reply

URLS = (
    "http://a.test/page",
    "https://a.test:8443/private/x?q=1#part",
    "http://user:secret@a.test/",
    "http://a.test/robots.txt",
    "http://a.test/robots.txt?x",
    "http://a.test//robots.txt",
    "http://%61.test/",
    "s3://bucket/key",
    "data:,text",
    "about:blank",
)
FIELDS = {
    "Host": ("a.test", "b.test"),
    "host": ("a.test",),
    "User-Agent": ("Mozilla/5.0",),
    "Referer": ("http://a.test/",),
    "Proxy-Authorization": ("Basic eA==",),
    "Content-Length": ("5",),
}
META = {
    "depth": (0, 1),
    BYPASS: (True, False),
    DOWNLOAD: (True,),
    RETURNED: (True, False),
    DEFERRAL: (["1-1", 1.0],),
    "proxy": ("http://proxy.test:3128",),
    "_auth_proxy": ("http://proxy.test:3128",),
    "bindaddress": (("127.0.0.2", 0),),
    "download_slot": ("slow",),
    "redirect_urls": (["http://a.test/old"], ["http://b.test/old"]),
}


def some_of(values):
    """A dictionary with some of the keys, each with one of its values."""
    entries = {name: st.sampled_from(chosen) for name, chosen in values.items()}
    return st.fixed_dictionaries({}, optional=entries)


requests = st.builds(
    Request,
    st.sampled_from(URLS),
    method=st.sampled_from(("GET", "HEAD", "POST")),
    headers=some_of(FIELDS),
    meta=some_of(META),
)


@pytest.fixture(scope="module", params=[False, True], ids=["exempting", "not exempting"])
def questions(request):
    return Questions(crawler(), "mybot", denies_bypass=request.param)


def crawler():
    return SimpleNamespace(settings=Settings({"USER_AGENT": "spider"}), spider=None)


@given(request=requests)
def test_the_shorter_path_asks_the_same_question(questions, request):
    question = questions.plain_question(request)

    if question is not None:
        assert question == questions.question(request)
        assert questions.verdict_without_rules(request, question) is None


@given(request=requests)
def test_the_shorter_path_leaves_nothing_out(questions, request):
    fetcher = ScrapyFetcher(crawler(), SimpleNamespace(), tls_verified=True)

    if questions.plain_question(request) is not None:
        assert not is_returned(request)
        assert not fetcher.owns(request)
        assert not can_share(request)
        assert not questions.is_exempt(request)
        assert Route.of(request) == Route()


@pytest.mark.parametrize("url", URLS[-4:])
def test_a_url_without_an_origin_takes_the_longer_path(questions, url):
    request = Request(url)

    assert questions.plain_question(request) is None
    with pytest.raises((MalformedURL, NotGoverned)):
        questions.question(request)


def test_a_request_of_a_usual_spider_takes_the_shorter_path(questions):
    request = Request(URLS[0], headers={"Referer": "http://a.test/"}, meta={"depth": 2})

    assert questions.plain_question(request) == questions.question(request)


# -- requests that pass in one step ----------------------------------------------------------------


def test_a_request_that_passes_in_one_step_has_the_same_outcome(net):
    site = net.origin(answer)
    paced = net.origin("User-agent: *\nCrawl-delay: 0.2\n")

    short = crawl_all(site, paced, "CountsShortPasses")
    in_steps = crawl_all(site, paced, "PassesInSteps")

    assert short.stats["calls/passed_at_once"] >= 4
    assert in_steps.stats["calls/passed_at_once"] == 0
    assert outcomes(short) == outcomes(in_steps)


def answer(request) -> Reply:
    if request.target == "/robots.txt":
        return Reply(body="User-agent: *\nDisallow: /private/\n")
    if request.target.startswith("/moved"):
        to = request.target.replace("/moved/", "/")
        return Reply(status=302, headers=(("Location", to),))
    return Reply(body="a page")


def crawl_all(site, paced, component: str):
    """Crawl pages of every kind, those of the paced site last."""
    pages = [f"{site.url}/{number}" for number in range(5)]
    others = [
        f"{site.url}/private/1",
        f"{site.url}/moved/6",
        f"{site.url}/moved/private/2",
        {"url": f"{site.url}/7", "headers": {"Host": "other.test"}},
        {"url": f"{site.url}/8", "headers": {"User-Agent": "another"}},
        {"url": f"{site.url}/private/3", "meta": {BYPASS: True}},
        {"url": f"{site.url}/9", "inline": True},
    ]
    slow = [{"url": f"{paced.url}/{number}", "meta": {"depth": 1}} for number in range(3)]
    settings = {
        "EXTENSIONS": {f"integrations.scrapy.components.{component}": 0},
        "ROBOTS_GUARD_AUDIT": "all",
        "CONCURRENT_REQUESTS": 1,
    }
    return crawl([*pages, *others, *slow, *pages], settings, see_through=True)


def outcomes(done):
    """The results, records and counts that do not depend on time."""
    kept = "url", "action", "reason", "method", "status", "line", "detail", "relaxed"
    records = [{name: record.get(name) for name in kept} for record in done.records]
    counts = {name: count for name, count in done.stats.items() if name.startswith("robots_guard/")}
    statuses = {
        key: (result["action"], result.get("status")) for key, result in done.results.items()
    }
    return sorted(records, key=str), counts, statuses
