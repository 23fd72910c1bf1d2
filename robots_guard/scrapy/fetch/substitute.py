"""The substitute: a client that fetches robots.txt instead of a download handler whose connections
are hidden.

Scrapy's handlers for httpx and aiohttp return what their library has read. Such a library skips
bytes after the end of a response and accepts the end of a TLS connection without `close_notify`,
and the response shows neither. But the route of such a handler is known: the request's proxy, and a
local address to connect from. So a client that checks its connections can take the same route. The
route of a handler that is not Scrapy's is unknown.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy.utils.python import global_object_name

from robots_guard.decisions.access import Get
from robots_guard.guard.fetch.destinations import Destinations
from robots_guard.guard.fetch.http import HttpFetcher
from robots_guard.scrapy.written import LIBRARY_HANDLERS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings

# written by the fetcher itself
_CLIENT_FIELDS = frozenset((b"Host", b"Proxy-Authorization", b"Connection"))


def is_opaque(handler: Any) -> bool:
    """Whether the handler is one of Scrapy's for other HTTP libraries."""
    return type(handler).__module__ in LIBRARY_HANDLERS


def substitute_for(handler: Any, request: Request, tls: ssl.SSLContext) -> HttpFetcher | None:
    """A fetcher on the route that the request takes with such a handler; None if that route cannot
    be taken."""
    if request.meta.get("bindaddress") or getattr(handler, "_bind_address", None):
        return None
    proxy = ""
    if request.meta.get("proxy"):
        proxy = handler._extract_proxy_url_with_creds(request)  # noqa: SLF001  (Scrapy has no public name for it)
        if not proxy.startswith("http://"):
            return None
    return HttpFetcher("", tls=tls, destinations=Destinations(trusts_caller=True), proxy=proxy)


def with_fields(get: Get, request: Request) -> Get:
    """The same GET with the header fields of the request, which the project's middlewares may have
    changed."""
    fields = [
        (name.decode("latin-1"), b", ".join(values).decode("utf-8", "replace"))
        for name, values in request.headers.items()
        if values and name not in _CLIENT_FIELDS
    ]
    return msgspec.structs.replace(get, headers=tuple(fields))


def explain_hidden_end(handler: Any) -> str:
    """The reason why a handler's response is not trusted, and the remedy."""
    return (
        f"{global_object_name(type(handler))} does not show where its response ends, so it may be incomplete: set"
        ' ROBOTS_GUARD_FETCH = "direct", or use HTTP11DownloadHandler'
    )


def tls_of(settings: BaseSettings, *, verifies: bool) -> ssl.SSLContext:
    """The TLS context of such handlers in a crawl with these settings: versions, ciphers,
    certificates.

    It is a separate context, because the libraries change theirs. `verifies`: whether the crawl
    verifies certificates.
    """
    context = _tls_of_scrapy(settings)
    if verifies:
        context.verify_mode = ssl.CERT_REQUIRED
        context.check_hostname = True
        context.load_default_certs()
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _tls_of_scrapy(settings: BaseSettings) -> ssl.SSLContext:
    try:
        from scrapy.utils.ssl import _make_ssl_context
    except ImportError:  # Scrapy 2.15, whose handlers have no such settings
        return ssl.create_default_context()
    return _make_ssl_context(settings)
