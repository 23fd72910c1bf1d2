"""Reached URLs: the URLs that a download has requested besides the judged one.

A download handler may follow redirects by itself, as a browser does; so may a middleware that makes
its own requests. Such URLs appear in two places: as the URL of the response, and in the
`redirect_urls` that the component adds to the request's meta, as Scrapy's RedirectMiddleware does.
A URL in neither place cannot be detected.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy.utils.httpobj import urlparse_cached

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_cached

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

#: The flag of a response that no request to its site was needed for.
FROM_CACHE = "cached"
HISTORY = "redirect_urls"
_REFUSAL = re.compile(rb'<meta name="robots-guard" content="(drop|defer);')
_HEAD = 4096  # bytes at the start of a document in which _REFUSAL must occur
#: Schemes that Scrapy's own handlers serve over https, with the https URL in the response.
SERVED_BY_HTTP = ("s3",)


class Judged:
    """The judged URLs of each download of a crawl: before the request was sent, and after its
    response.

    A `redirect_urls` that is in the request when it is sent belongs to earlier requests. Only
    entries that a component adds, or a list that replaces it, belong to this download.
    """

    def __init__(self) -> None:
        self._earlier: WeakKeyDictionary[Request, tuple[Any, int]] = WeakKeyDictionary()
        self._passed: WeakKeyDictionary[Request, set[str]] = WeakKeyDictionary()

    @property
    def keeps_any(self) -> bool:
        """Whether anything is kept of a request."""
        return bool(self._earlier or self._passed)

    def begin(self, request: Request) -> None:
        """Start a download: the request was judged and is sent.

        A project may send the same object repeatedly.
        """
        for kept in (self._passed, self._earlier):
            if kept:
                kept.pop(request, None)
        history = request.meta.get(HISTORY)
        if isinstance(history, list | tuple):
            self._earlier[request] = (history, len(history))

    def note_passed(self, request: Request, url: str) -> None:
        """Record that a URL which the download has reached was judged and passed."""
        self._passed.setdefault(request, set()).add(url)

    def missing(self, request: Request, response: Response, judged: str | None) -> list[str]:
        """The URLs that were reached but not judged, in the order of the visits.

        `judged` is the URL that was judged before the request was sent; None if the request was not
        judged at all.
        """
        if urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return []
        passed = self._passed.get(request, set())
        reached = dict.fromkeys((*self._history(request), response.url))
        return [
            url
            for url in reached
            if url not in passed and (judged is None or not are_same(url, judged))
        ]

    def _history(self, request: Request) -> list[str]:
        """The URLs that this download has added to `redirect_urls`."""
        history = request.meta.get(HISTORY)
        earlier, length = self._earlier.get(request, (None, 0))
        if not isinstance(history, list | tuple):
            return []
        start = length if history is earlier else 0
        return [url for url in history[start:] if isinstance(url, str)]


def is_from_cache(response: Response) -> bool:
    """Whether the response comes from Scrapy's HTTP cache, so that no request has reached the
    site."""
    return FROM_CACHE in response.flags


def is_refused_by_proxy(response: Response) -> bool:
    """Whether the response is a refusal by `robots-guard proxy`, so that no request has reached the
    site.

    If a page's script has navigated to the URL, the response has the refusal's document but the
    header fields of the previous page. A site that imitates the document only hides that the
    request has reached it: its page is judged all the same.
    """
    field = response.headers.get("Robots-Guard") or b""
    return (
        field.startswith((b"drop", b"defer"))
        or _REFUSAL.search(response.body, 0, _HEAD) is not None
    )


def are_same(one: str, other: str) -> bool:
    """Whether two URLs have the same origin and target, on which verdicts depend."""
    if one == other:
        return True
    try:
        return split_cached(one) == split_cached(other)
    except (NotGoverned, MalformedURL):
        return False
