"""What a download has reached beside what was judged.

A download handler may follow redirects by itself, a browser does, and so may a middleware that makes requests of its
own. Where they have been, they tell in two ways: by the URL of the answer, and by a `redirect_urls` that they put into
the request's meta, as Scrapy's RedirectMiddleware does. What is in neither is not seen.
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
_HEAD = 4096  # octets of a document in which that must stand
SERVED_BY_HTTP = ("s3",)  # schemes that Scrapy's own handlers serve by https, and name that URL in the answer


class Judged:
    """What was judged of each download of a crawl: the request before it left, and what its answer comes from.

    A history that the request already has when it leaves is that of earlier requests, hop by hop. Only what a
    component adds to it, or puts in its place, is of this download.
    """

    def __init__(self) -> None:
        self._earlier: WeakKeyDictionary[Request, tuple[Any, int]] = WeakKeyDictionary()
        self._passed: WeakKeyDictionary[Request, set[str]] = WeakKeyDictionary()

    def begin(self, request: Request) -> None:
        """The request was judged as it stands, and leaves: perhaps for another time, if the project keeps it."""
        self._passed.pop(request, None)
        self._earlier.pop(request, None)
        history = request.meta.get(HISTORY)
        if history is not None:
            self._earlier[request] = (history, len(history) if isinstance(history, list) else 0)

    def note_passed(self, request: Request, url: str) -> None:
        """A URL that the download has reached was judged, and let pass."""
        self._passed.setdefault(request, set()).add(url)

    def missing(self, request: Request, response: Response, judged: str | None) -> list[str]:
        """The URLs that were reached and not judged, in the order in which they were. `judged` is the one that was,
        before the request left; None if the request was not judged at all."""
        if urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return []
        passed = self._passed.get(request, set())
        reached = dict.fromkeys((*self._history(request), response.url))
        return [url for url in reached if url not in passed and (judged is None or not are_same(url, judged))]

    def _history(self, request: Request) -> list[str]:
        """The URLs on the way, of this download."""
        history = request.meta.get(HISTORY)
        earlier, length = self._earlier.get(request, (None, 0))
        if not isinstance(history, list | tuple):
            return []
        return [url for url in history[length if history is earlier else 0 :] if isinstance(url, str)]


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


def are_same(one: str, other: str) -> bool:
    """Whether two URLs ask the same: they differ in nothing that a verdict rests on."""
    if one == other:
        return True
    try:
        return split_url(one) == split_url(other)
    except (NotGoverned, MalformedURL):
        return False
