"""Bypasses: components of a project that make requests which Scrapy does not see, with a remedy for
each.

A download handler counts as Scrapy's own if all its code between a request and its response is
Scrapy's. Any other handler may follow redirects or load further resources; the behaviour of
well-known ones is listed here. A middleware can be recognised only by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from robots_guard.audit.record import shown_url
from robots_guard.text import page_url

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_SCRAPY_HANDLERS = "scrapy.core.downloader.handlers."
_LIFECYCLE_METHODS = frozenset(("from_crawler", "close"))  # like `__init__`, no part of a download
_GUIDE = f"see {page_url('scrapy.md#browsers')}"

_BROWSER = "drives a browser, which follows redirects and loads scripts, images and data by itself"
_SERVICE = (
    "hands requests to a service that follows redirects and loads further resources by itself"
)
_UNKNOWN = "is not Scrapy's own, and may follow redirects or load further resources by itself"
_USE_PROXY = f"Send its traffic through `robots-guard proxy`: {_GUIDE}"
_NO_REMEDY = "Only the URL of its response is judged; what else it loads is not judged"

#: Behaviour and remedy, by the package of a handler or a middleware.
_KNOWN = {
    "scrapy_camoufox": (_BROWSER, _USE_PROXY),
    "scrapy_playwright": (_BROWSER, _USE_PROXY),
    "scrapy_pyppeteer": (_BROWSER, _USE_PROXY),
    "scrapy_selenium": (_BROWSER, _USE_PROXY),
    "scrapypuppeteer": (_SERVICE, _USE_PROXY),
    "scrapy_splash": (_SERVICE, _USE_PROXY),
    "scrapy_zyte_api": (_SERVICE, _NO_REMEDY),
}
_FOLLOWS_NOTHING = frozenset(("scrapy_impersonate",))


class Bypass(NamedTuple):
    """A component that makes its own requests.

    `proxy` is the one that it uses, if the settings name one.
    """

    name: str
    behaviour: str
    remedy: str
    proxy: str

    @property
    def sentence(self) -> str:
        """The text of the warning: what robots_guard cannot judge, and the remedy."""
        if self.proxy:
            return (
                f"{self.name} {self.behaviour}: its proxy, {self.proxy}, judges those requests if it is"
                " `robots-guard proxy`"
            )
        return (
            f"robots_guard judges each request to {self.name} and its response;"
            f" but it {self.behaviour}. {self.remedy}"
        )


def find_bypasses(settings: BaseSettings) -> Iterator[Bypass]:
    """Find the components of a project that make requests which Scrapy does not see, each once."""
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    found: dict[Any, None] = {}
    for scheme in ("http", "https"):
        handler = _load(handlers.get(scheme))
        if handler is not None and _may_follow(handler):
            found[handler] = None
    for component, priority in settings.getdict("DOWNLOADER_MIDDLEWARES").items():
        middleware = _load(component) if priority is not None else None
        if _package(middleware) in _KNOWN:
            found[middleware] = None
    unknown = _UNKNOWN, f"If it does: {_USE_PROXY[0].lower()}{_USE_PROXY[1:]}"
    for component in found:
        behaviour, remedy = _KNOWN.get(_package(component), unknown)
        yield Bypass(
            global_object_name(component), behaviour, remedy, _proxy_of(component, settings)
        )


def _load(component: Any) -> Any:
    """The class that a setting names; None if it cannot be loaded, which Scrapy reports when it
    needs it."""
    if component is None:
        return None
    try:
        return load_object(component)
    except Exception:  # noqa: BLE001  a project's module may raise any error
        return None


def _package(component: Any) -> str:
    return str(getattr(component, "__module__", "")).partition(".")[0]


def _may_follow(handler: Any) -> bool:
    if _package(handler) in _FOLLOWS_NOTHING:
        return False
    bases = getattr(handler, "__mro__", None)
    if bases is None:  # a factory function
        return True
    from_scrapy = [base for base in bases if base.__module__.startswith(_SCRAPY_HANDLERS)]
    if not from_scrapy:
        return True
    own = bases[: bases.index(from_scrapy[0])]
    return any(_overrides_download(base, from_scrapy[0]) for base in own)


def _overrides_download(kind: type, scrapy_handler: type) -> bool:
    """Whether a class overrides a method of Scrapy's handler that takes part in a download."""
    methods = (
        name
        for name, value in vars(kind).items()
        if callable(value) or isinstance(value, classmethod)
    )
    return any(
        hasattr(scrapy_handler, name)
        for name in methods
        if not name.startswith("__") and name not in _LIFECYCLE_METHODS
    )


def _proxy_of(component: Any, settings: BaseSettings) -> str:
    """The proxy that scrapy-playwright starts its browser with; "" for a browser that was started
    elsewhere."""
    if _package(component) != "scrapy_playwright":
        return ""
    if settings.get("PLAYWRIGHT_CDP_URL") or settings.get("PLAYWRIGHT_CONNECT_URL"):
        return ""
    proxy = settings.getdict("PLAYWRIGHT_LAUNCH_OPTIONS").get("proxy") or {}
    if isinstance(proxy, dict):
        return shown_url(str(proxy.get("server") or ""))
    return ""
