"""What a download has reached beside what was judged.

A download handler may follow redirects by itself, a browser does, and so may a middleware that makes requests of its
own. Where they have been, they tell in two ways: by the URL of the answer, and by a `redirect_urls` that they put into
the request's meta, as Scrapy's RedirectMiddleware does. What is in neither is not seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy.utils.httpobj import urlparse_cached

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

HISTORY = "redirect_urls"
_REFUSAL = re.compile(rb'<meta name="robots-guard" content="(drop|defer);')
_HEAD = 4096  # octets of a document in which that must stand
SERVED_BY_HTTP = ("s3",)  # schemes that Scrapy's own handlers serve by https, and name that URL in the answer


class Judged:
    """The URLs that were judged for each request of a crawl, before it left or when its answer came."""

    def __init__(self) -> None:
        self._urls: WeakKeyDictionary[Request, set[str]] = WeakKeyDictionary()

    def begin(self, request: Request) -> None:
        """The request was judged as it stands. Its history was, hop by hop, when it was made."""
        if HISTORY in request.meta:
            self._urls[request] = {request.url, *_history(request)}

    def add(self, request: Request, url: str) -> None:
        """A URL was judged when the answer to the request came."""
        self._urls.setdefault(request, set()).add(url)

    def missing(self, request: Request, response: Response, judged: str | None) -> list[str]:
        """The URLs that were reached and not judged, in the order in which they were. `judged` is the one that was,
        before the request left; None if the request was not judged at all."""
        if urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return []
        known = self._urls.get(request, set())
        reached = dict.fromkeys((*_history(request), response.url))
        return [url for url in reached if url not in known and (judged is None or not are_same(url, judged))]


def is_from_cache(response: Response) -> bool:
    """Whether the answer comes from Scrapy's HTTP cache: nothing has reached the site."""
    return "cached" in response.flags


def is_refused_by_proxy(response: Response) -> bool:
    """Whether the answer is a refusal of `robots-guard proxy`: it has let nothing through to the site.

    A browser that a page's script has led there has the refusal's document, but the header fields of the page before.
    A site that writes the same hides that the request has reached it, and nothing else: its page is judged all the
    same.
    """
    told = response.headers.get("Robots-Guard") or b""
    return told.startswith((b"drop", b"defer")) or _REFUSAL.search(response.body, 0, _HEAD) is not None


def _history(request: Request) -> list[str]:
    history = request.meta.get(HISTORY) or ()
    return [url for url in history if isinstance(url, str)]


def are_same(one: str, other: str) -> bool:
    """Whether two URLs ask the same: they differ in nothing that a verdict rests on."""
    if one == other:
        return True
    try:
        return split_url(one) == split_url(other)
    except (NotGoverned, MalformedURL):
        return False
