"""Standing in: a robots.txt is fetched directly in the place of a download handler that does not show its connections.

Scrapy's handlers for httpx and aiohttp hand over what their library has read. Such a library skips bytes behind the
end of an answer and takes an end of TLS without `close_notify` for a clean one, and nothing of that can be seen in the
response. Their routes are known, however: the request's proxy, and an address to connect from. So the fetch can go the
same way by a client that is watched. Of a handler that is not Scrapy's, the route is not known.
"""

from __future__ import annotations

import functools
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy.utils.python import global_object_name

from robots_guard.core.access import Get
from robots_guard.fetch.destinations import Destinations
from robots_guard.fetch.http import HttpFetcher
from robots_guard.scrapy.framing import OF_OTHER_LIBRARIES

if TYPE_CHECKING:
    from scrapy import Request

_OF_THE_CLIENT = frozenset((b"Host", b"Proxy-Authorization", b"Connection"))  # written by the fetcher itself


def is_opaque(handler: Any) -> bool:
    """Whether it is one of Scrapy's handlers for other libraries."""
    return type(handler).__module__ in OF_OTHER_LIBRARIES


def stand_in(handler: Any, request: Request, *, verifies: bool) -> HttpFetcher | None:
    """A fetcher on the route that the request takes with such a handler; None if there is none. `verifies` says
    whether the crawl verifies certificates."""
    if request.meta.get("bindaddress") or getattr(handler, "_bind_address", None):
        return None
    proxy = ""
    if request.meta.get("proxy"):
        proxy = handler._extract_proxy_url_with_creds(request)  # noqa: SLF001  (Scrapy has no public name for it)
        if not proxy.startswith("http://"):
            return None
    return HttpFetcher("", tls=_tls(verifies=verifies), destinations=Destinations(trusts_asked=True), proxy=proxy)


def with_fields(get: Get, request: Request) -> Get:
    """The same GET with the fields of the request, as the project's middlewares have left them."""
    fields = [
        (name.decode("latin-1"), b", ".join(values).decode("utf-8", "replace"))
        for name, values in request.headers.items()
        if values and name not in _OF_THE_CLIENT
    ]
    return msgspec.structs.replace(get, headers=tuple(fields))


def unseen_end(handler: Any) -> str:
    """Why an answer that came by a handler is not relied on, and the remedy."""
    return (
        f"{global_object_name(type(handler))} does not show where its answer ends, so it may be a part of the file: set"
        ' ROBOTS_GUARD_FETCH = "direct", or use HTTP11DownloadHandler'
    )


@functools.cache
def _tls(*, verifies: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
