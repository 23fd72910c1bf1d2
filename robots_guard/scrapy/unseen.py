"""Unseen requests: the components of a project that make requests which Scrapy does not see, and a remedy for each.

A download handler counts as Scrapy's own if all its code between a request and its response is Scrapy's. Any other may
follow redirects or load further resources; of the well-known ones it is known. A middleware can be recognised only by
its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from robots_guard.audit.record import shown_url

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_SCRAPYS = "scrapy.core.downloader.handlers."
_PREPARES = frozenset(("from_crawler", "close"))  # like `__init__`, no part of a download
_GUIDE = 'see "Browsers" in docs/scrapy.md'

_BROWSER = "drives a browser, which follows redirects and loads scripts, images and data by itself"
_SERVICE = "hands requests to a service that follows redirects and loads further resources by itself"
_PERHAPS = "is not Scrapy's own, and may follow redirects or load further resources by itself"
_BY_PROXY = f"Have it go by `robots-guard proxy`: {_GUIDE}"
_OUT_OF_REACH = "What it loads beside the URL it names in its answer is not judged"

#: By the package of a handler or a middleware: what it does, and what to do about it.
_KNOWN = {
    "scrapy_camoufox": (_BROWSER, _BY_PROXY),
    "scrapy_playwright": (_BROWSER, _BY_PROXY),
    "scrapy_pyppeteer": (_BROWSER, _BY_PROXY),
    "scrapy_selenium": (_BROWSER, _BY_PROXY),
    "scrapypuppeteer": (_SERVICE, _BY_PROXY),
    "scrapy_splash": (_SERVICE, _BY_PROXY),
    "scrapy_zyte_api": (_SERVICE, _OUT_OF_REACH),
}
_FOLLOWS_NOTHING = frozenset(("scrapy_impersonate",))


class Unseen(NamedTuple):
    """A component that makes requests of its own. `proxy` is the one that it uses, if the settings name one."""

    name: str
    does: str
    remedy: str
    proxy: str

    @property
    def sentence(self) -> str:
        """The text of the warning: what robots_guard does not see, and what to do."""
        if self.proxy:
            return (
                f"{self.name} {self.does}: that is judged by the proxy it goes by, {self.proxy}, if it is"
                " `robots-guard proxy`"
            )
        return (
            f"robots_guard judges what {self.name} is asked for and what it answers; but it {self.does}. {self.remedy}"
        )


def unseen(settings: BaseSettings) -> Iterator[Unseen]:
    """The components of a project that make requests which Scrapy does not see, each once."""
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    found: dict[Any, None] = {}
    for scheme in ("http", "https"):
        handler = _loaded(handlers.get(scheme))
        if handler is not None and _may_follow(handler):
            found[handler] = None
    for component, place in settings.getdict("DOWNLOADER_MIDDLEWARES").items():
        middleware = _loaded(component) if place is not None else None
        if _package(middleware) in _KNOWN:
            found[middleware] = None
    for component in found:
        does, remedy = _KNOWN.get(_package(component), (_PERHAPS, f"If it does: {_BY_PROXY[0].lower()}{_BY_PROXY[1:]}"))
        yield Unseen(global_object_name(component), does, remedy, _proxy_of(component, settings))


def _loaded(component: Any) -> Any:
    """The class that a setting names; None if it cannot be loaded, which Scrapy says when it needs it."""
    if component is None:
        return None
    try:
        return load_object(component)
    except Exception:  # noqa: BLE001  a module of the project may raise anything
        return None


def _package(component: Any) -> str:
    return str(getattr(component, "__module__", "")).partition(".")[0]


def _may_follow(handler: Any) -> bool:
    if _package(handler) in _FOLLOWS_NOTHING:
        return False
    kinds = getattr(handler, "__mro__", None)
    if kinds is None:  # a function that makes handlers
        return True
    scrapys = [kind for kind in kinds if kind.__module__.startswith(_SCRAPYS)]
    return not scrapys or any(_replaces(kind, scrapys[0]) for kind in kinds[: kinds.index(scrapys[0])])


def _replaces(kind: type, scrapys: type) -> bool:
    """Whether a class overrides a method of Scrapy's that takes part in a download."""
    own = (name for name, value in vars(kind).items() if callable(value) or isinstance(value, classmethod))
    return any(hasattr(scrapys, name) for name in own if not name.startswith("__") and name not in _PREPARES)


def _proxy_of(component: Any, settings: BaseSettings) -> str:
    """The proxy that scrapy-playwright starts its browser with; a browser that was started elsewhere has its own."""
    if _package(component) != "scrapy_playwright":
        return ""
    if settings.get("PLAYWRIGHT_CDP_URL") or settings.get("PLAYWRIGHT_CONNECT_URL"):
        return ""
    proxy = settings.getdict("PLAYWRIGHT_LAUNCH_OPTIONS").get("proxy") or {}
    return shown_url(str(proxy.get("server") or "")) if isinstance(proxy, dict) else ""
