"""Reached URLs: those that a download has requested beside the one that was judged.

A download handler may follow redirects on its own, a browser does, and so may a middleware that makes requests of its
own. The URLs show in two places: as the URL of the response, and in a `redirect_urls` that the component puts into the
request's meta, as Scrapy's RedirectMiddleware does. A URL in neither place is not seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy.utils.httpobj import urlparse_cached

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

HISTORY = "redirect_urls"
_REFUSAL = re.compile(rb'<meta name="robots-guard" content="(drop|defer);')
_HEAD = 4096  # bytes at the start of a document in which _REFUSAL must occur
SERVED_BY_HTTP = ("s3",)  # schemes that Scrapy's own handlers serve by https, and name that URL in the answer


class Judged:
    """The URLs of each download of a crawl that were judged: before the request left, and after its response.

    A `redirect_urls` that the request already has when it leaves belongs to earlier requests. Only what a component
    adds to it, or replaces it with, belongs to this download.
    """

    def __init__(self) -> None:
        self._earlier: WeakKeyDictionary[Request, tuple[Any, int]] = WeakKeyDictionary()
        self._passed: WeakKeyDictionary[Request, set[str]] = WeakKeyDictionary()

    def begin(self, request: Request) -> None:
        """Start a download: the request was judged, and leaves. A project may send the same object more than once."""
        self._passed.pop(request, None)
        self._earlier.pop(request, None)
        history = request.meta.get(HISTORY)
        if history is not None:
            self._earlier[request] = (history, len(history) if isinstance(history, list) else 0)

    def note_passed(self, request: Request, url: str) -> None:
        """Note that a URL which the download has reached was judged and let pass."""
        self._passed.setdefault(request, set()).add(url)

    def missing(self, request: Request, response: Response, judged: str | None) -> list[str]:
        """The URLs that were reached but not judged, in the order in which they were reached. `judged` is the URL that
        was judged before the request left; None if the request was not judged at all."""
        if urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return []
        passed = self._passed.get(request, set())
        reached = dict.fromkeys((*self._history(request), response.url))
        return [url for url in reached if url not in passed and (judged is None or not are_same(url, judged))]

    def _history(self, request: Request) -> list[str]:
        """The URLs that this download has added to `redirect_urls`."""
        history = request.meta.get(HISTORY)
        earlier, length = self._earlier.get(request, (None, 0))
        if not isinstance(history, list | tuple):
            return []
        return [url for url in history[length if history is earlier else 0 :] if isinstance(url, str)]


def is_from_cache(response: Response) -> bool:
    """Whether the response comes from Scrapy's HTTP cache, so that nothing has reached the site."""
    return "cached" in response.flags


def is_refused_by_proxy(response: Response) -> bool:
    """Whether the response is a refusal of `robots-guard proxy`, which has let nothing through to the site.

    If a page's script has navigated there, the response has the refusal's document but the header fields of the page
    before. A site that imitates the document only hides that the request has reached it: its page is judged all the
    same.
    """
    field = response.headers.get("Robots-Guard") or b""
    return field.startswith((b"drop", b"defer")) or _REFUSAL.search(response.body, 0, _HEAD) is not None


def are_same(one: str, other: str) -> bool:
    """Whether two URLs differ in nothing that a verdict rests on."""
    if one == other:
        return True
    try:
        return split_url(one) == split_url(other)
    except (NotGoverned, MalformedURL):
        return False
