"""Responses to a spider's own requests for a robots.txt, made from the policy that the guard has.

A SitemapSpider requests `/robots.txt`, and so does the guard. The origin receives only the guard's
request. Invariant: the spider gets the response that its own request would have got. So a copy is
not shared if the request differs from the guard's, or if the file did not come from exactly that
URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.responsetypes import responsetypes

from robots_guard.decisions.access import Access
from robots_guard.decisions.policy import Document, Policy
from robots_guard.origin import ROBOTS_TXT
from robots_guard.protocol.dialect import Dialect
from robots_guard.scrapy.fetch.fetcher import ON_ROUTE
from robots_guard.scrapy.pages import FROM_CACHE

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

#: A flag of these responses, in addition to that of Scrapy's HTTP cache, which does not store them.
SHARED = "robots_guard"
#: Meta keys that change what the request would get. `dont_cache` asks for a request to the site.
_OWN_WAY = ON_ROUTE | {"dont_cache", "http_user", "http_pass"}
_GOVERNED = ("http://", "https://")
_HARMLESS = frozenset((b"Referer",))  # of the header fields; Scrapy sets it


def can_share(request: Request) -> bool:
    """Whether a request could be answered with the guard's copy: a plain GET for a robots.txt."""
    if not request.url.endswith(ROBOTS_TXT) or not request.url.startswith(_GOVERNED):
        return False
    if request.method != "GET":
        return False
    if request.body or request.cookies or not _OWN_WAY.isdisjoint(request.meta):
        return False
    return _HARMLESS.issuperset(request.headers)


def response_from(
    request: Request, policy: Policy, dialect: Dialect, now: float
) -> Response | None:
    """The response to a request for the robots.txt of a policy; None if the request has to be made.

    That is so while there is trouble, and if the site has redirected, sent more than the guard
    keeps, or forbidden the file: with the crawl's credentials it might be open.
    """
    document = policy.document
    if document is None or policy.trouble is not None or document.truncated:
        return None
    if document.redirects or document.url != policy.origin.robots_url:
        return None
    access, _ = policy.access(now, dialect)
    if access not in (Access.RULES, Access.UNRESTRICTED):
        return None
    headers: Any = _headers(document)
    kind = responsetypes.from_args(headers=headers, url=request.url, body=document.body)
    return kind(
        request.url,
        status=document.status,
        headers=headers,
        body=document.body,
        flags=[FROM_CACHE, SHARED],
        request=request,
    )


def _headers(document: Document) -> dict[bytes, bytes]:
    """The header fields that a policy keeps of a response."""
    fields = {
        b"Content-Type": document.content_type,
        b"ETag": document.etag,
        b"Last-Modified": document.last_modified,
    }
    return {name: value.encode("latin-1", "replace") for name, value in fields.items() if value}
