"""Components that make requests which Scrapy does not see are named at the start, with the remedy."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hosts.scrapy.crawl import crawl
from hosts.scrapy.test_response_gate import by
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.settings import Settings

from robots_guard.scrapy.unseen import unseen


class Prepared(HTTP11DownloadHandler):
    """A handler of Scrapy's with other contexts: what it downloads, it downloads as Scrapy does."""

    def __init__(self, crawler):
        super().__init__(crawler)

    @property
    def contexts(self):
        return []

    def _helper(self):
        return None


class Wrapped(HTTP11DownloadHandler):
    async def download_request(self, request):
        return await super().download_request(request)


class Own(BaseDownloadHandler):
    async def download_request(self, request):
        raise NotImplementedError


class Replaced(Prepared):
    @staticmethod
    def download_request(request):
        raise NotImplementedError


def made(crawler):
    return Own(crawler)


def named(**settings):
    return [component.name.rpartition(".")[2] for component in unseen(Settings(settings))]


def handled(handler, **settings):
    return named(DOWNLOAD_HANDLERS={"http": handler, "https": handler}, **settings)


def known(package, name, monkeypatch):
    """A class of a package that need not be installed."""
    module = ModuleType(package)
    monkeypatch.setitem(sys.modules, package, module)
    setattr(module, name, type(name, (Own,), {"__module__": package}))
    return f"{package}.{name}"


@pytest.mark.parametrize(("handler", "is_named"), [(Prepared, False), (Wrapped, True), (Own, True), (Replaced, True)])
def test_a_handler_is_named_if_what_downloads_is_not_scrapys(handler, is_named):
    assert handled(handler) == [handler.__name__] * is_named


def test_so_is_a_function_that_makes_one():
    assert handled(made) == ["made"]


@pytest.mark.parametrize(
    "path",
    [
        "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler",
        "scrapy.core.downloader.handlers.http2.H2DownloadHandler",
        "no.such.Handler",
        None,
    ],
)
def test_scrapys_own_are_not(path):
    assert handled(path) == []
    assert named() == []


def test_what_is_known_to_follow_nothing_is_not_named(monkeypatch):
    assert handled(known("scrapy_impersonate", "ImpersonateDownloadHandler", monkeypatch)) == []


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("scrapy_playwright", "drives a browser, which follows redirects and loads scripts"),
        ("scrapy_zyte_api", "is not judged"),
    ],
)
def test_known_handlers_are_told_of_precisely(package, told, monkeypatch):
    (found,) = unseen(Settings({"DOWNLOAD_HANDLERS": {"https": known(package, "Handler", monkeypatch)}}))

    assert told in found.sentence
    assert not found.proxy


def test_so_are_known_middlewares_unless_they_are_off(monkeypatch):
    middleware = known("scrapy_selenium", "SeleniumMiddleware", monkeypatch)

    assert named(DOWNLOADER_MIDDLEWARES={middleware: 800}) == ["SeleniumMiddleware"]
    assert named(DOWNLOADER_MIDDLEWARES={middleware: None}) == []


@pytest.mark.parametrize(
    ("settings", "proxy"),
    [
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "http://me:secret@p.test:8080"}}}, "http://p.test:8080"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "p.test:8080"}}}, "p.test:8080"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"headless": True}}, ""),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "http://p.test"}}, "PLAYWRIGHT_CDP_URL": "ws://x"}, ""),
    ],
)
def test_where_the_browser_goes_by_a_proxy_that_is_said(settings, proxy, monkeypatch):
    handler = known("scrapy_playwright", "Handler", monkeypatch)

    (found,) = unseen(Settings({"DOWNLOAD_HANDLERS": {"https": handler}, **settings}))

    assert found.proxy == proxy
    assert "secret" not in found.sentence


def test_a_crawl_warns_once_at_its_start(net):
    site = net.origin()

    done = crawl([f"{site.url}/a", f"{site.url}/b"], by("FollowingHandler"))

    warnings = [line for line in done.log.splitlines() if "WARNING: robots_guard judges" in line]
    assert len(warnings) == 1
    assert "hosts.scrapy.components.FollowingHandler is asked for" in warnings[0]
    assert "`robots-guard proxy`" in warnings[0]
    assert "WARNING: robots_guard" not in crawl([f"{site.url}/c"]).log
