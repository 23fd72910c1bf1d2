"""Framing: the header fields that tell a server where the body of a request ends (RFC 9112 section
6).

A download handler writes the length of the body by itself. Scrapy also sends a Content-Length or
Transfer-Encoding that a spider has set, and a server that trusts those fields finds a second
request in the body. So does a server that does not read the body of a GET, if the connection is
reused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

from robots_guard.gateway.wire import TOKEN

if TYPE_CHECKING:
    from scrapy import Request

_FRAMING = (b"content-length", b"transfer-encoding")
#: Modules of Scrapy's handlers for other HTTP libraries.
LIBRARY_HANDLERS = tuple(
    f"scrapy.core.downloader.handlers._{name}" for name in ("aiohttp", "httpx")
)


def frame(request: Request, handler: Any) -> None:
    """Remove framing fields, which the download handler writes, and have the connection closed
    after a body.

    Servers behind CGI or WSGI read Content_Length as Content-Length, so those spellings are
    removed, too; and so are fields whose names are no tokens, because some handlers write a
    "Transfer-Encoding " or "Host " that lenient servers read as a field without the blank.
    `handler` is the one that sends the request, None if it is unknown.
    """
    unclear = [name for name in request.headers if _is_unclear(name)]
    for name in unclear:
        del request.headers[name]
    if request.body and _speaks_http1(handler):
        request.headers[b"Connection"] = b"close"


@lru_cache(maxsize=1024)  # requests have the same few names
def _is_unclear(name: bytes) -> bool:
    is_framing = name.lower().replace(b"_", b"-") in _FRAMING
    return is_framing or not TOKEN.fullmatch(name.decode("latin-1"))


def _speaks_http1(handler: Any) -> bool:
    """Whether the handler certainly speaks HTTP/1.

    In HTTP/2, Connection is an error (RFC 9113 section 8.2.2), and the end of a body is
    unambiguous.
    """
    if isinstance(handler, HTTP11DownloadHandler):
        return True
    return type(handler).__module__ in LIBRARY_HANDLERS and not getattr(
        handler, "_enable_h2", False
    )
