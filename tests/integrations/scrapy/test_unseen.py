"""Components that make requests which Scrapy does not see are named at the start, with a
remedy."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from integrations.scrapy.crawl import crawl
from integrations.scrapy.test_response_gate import by
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.settings import Settings

from robots_guard.scrapy.bypasses import find_bypasses


class Prepared(HTTP11DownloadHandler):
    """A subclass of Scrapy's handler that changes no method of a download."""

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


def handler_factory(crawler):
    return Own(crawler)


def bypass_names(**settings):
    return [bypass.name.rpartition(".")[2] for bypass in find_bypasses(Settings(settings))]


def bypasses_with(handler, **settings):
    return bypass_names(DOWNLOAD_HANDLERS={"http": handler, "https": handler}, **settings)


def fake_class(package, name, monkeypatch):
    """The path of a new class in a fake package."""
    module = ModuleType(package)
    monkeypatch.setitem(sys.modules, package, module)
    setattr(module, name, type(name, (Own,), {"__module__": package}))
    return f"{package}.{name}"


@pytest.mark.parametrize(
    ("handler", "is_named"), [(Prepared, False), (Wrapped, True), (Own, True), (Replaced, True)]
)
def test_a_handler_is_named_if_its_download_is_not_scrapys(handler, is_named):
    assert bypasses_with(handler) == [handler.__name__] * is_named


def test_a_handler_factory_is_named():
    assert bypasses_with(handler_factory) == ["handler_factory"]


@pytest.mark.parametrize(
    "path",
    [
        "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler",
        "scrapy.core.downloader.handlers.http2.H2DownloadHandler",
        "no.such.Handler",
        None,
    ],
)
def test_scrapys_own_handlers_are_not_named(path):
    assert bypasses_with(path) == []
    assert bypass_names() == []


def test_a_handler_known_to_follow_nothing_is_not_named(monkeypatch):
    assert (
        bypasses_with(fake_class("scrapy_impersonate", "ImpersonateDownloadHandler", monkeypatch))
        == []
    )


@pytest.mark.parametrize(
    ("package", "text"),
    [
        ("scrapy_playwright", "drives a browser, which follows redirects and loads scripts"),
        ("scrapy_zyte_api", "is not judged"),
    ],
)
def test_known_handlers_are_described(package, text, monkeypatch):
    (found,) = find_bypasses(
        Settings({"DOWNLOAD_HANDLERS": {"https": fake_class(package, "Handler", monkeypatch)}})
    )

    assert text in found.sentence
    assert not found.proxy


def test_known_middlewares_are_named_unless_they_are_off(monkeypatch):
    middleware = fake_class("scrapy_selenium", "SeleniumMiddleware", monkeypatch)

    assert bypass_names(DOWNLOADER_MIDDLEWARES={middleware: 800}) == ["SeleniumMiddleware"]
    assert bypass_names(DOWNLOADER_MIDDLEWARES={middleware: None}) == []


@pytest.mark.parametrize(
    ("settings", "proxy"),
    [
        (
            {"PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "http://me:secret@p.test:8080"}}},
            "http://p.test:8080",
        ),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "p.test:8080"}}}, "p.test:8080"),
        ({"PLAYWRIGHT_LAUNCH_OPTIONS": {"headless": True}}, ""),
        (
            {
                "PLAYWRIGHT_LAUNCH_OPTIONS": {"proxy": {"server": "http://p.test"}},
                "PLAYWRIGHT_CDP_URL": "ws://x",
            },
            "",
        ),
    ],
)
def test_a_browsers_proxy_is_named(settings, proxy, monkeypatch):
    handler = fake_class("scrapy_playwright", "Handler", monkeypatch)

    (found,) = find_bypasses(Settings({"DOWNLOAD_HANDLERS": {"https": handler}, **settings}))

    assert found.proxy == proxy
    assert "secret" not in found.sentence


def test_a_crawl_warns_once_at_its_start(net):
    site = net.origin()

    done = crawl([f"{site.url}/a", f"{site.url}/b"], by("FollowingHandler"))

    warnings = [line for line in done.log.splitlines() if "WARNING: robots_guard judges" in line]
    assert len(warnings) == 1
    assert "each request to integrations.scrapy.components.FollowingHandler" in warnings[0]
    assert "`robots-guard proxy`" in warnings[0]
    assert "WARNING: robots_guard" not in crawl([f"{site.url}/c"]).log
