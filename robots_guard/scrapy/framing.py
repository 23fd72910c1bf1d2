"""Framing: the fields that tell a server where the body of a request ends (RFC 9112 section 6).

A download handler writes the length of the body by itself. Scrapy passes on what a spider has put into Content-Length
or Transfer-Encoding beside it, and a server that goes by these finds another request in the body. So does a server
that does not read the body of a GET, if the connection is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

if TYPE_CHECKING:
    from scrapy import Request

_FRAMING = (b"content-length", b"transfer-encoding")
OF_OTHER_LIBRARIES = tuple(f"scrapy.core.downloader.handlers._{name}" for name in ("aiohttp", "httpx"))


def frame(request: Request, handler: Any) -> None:
    """Leave the framing of a request to its download handler, and have its connection closed behind a body.

    Servers behind CGI or WSGI take Content_Length for Content-Length, so those spellings go, too. `handler` is the
    one that sends the request, None if that is not known.
    """
    for name in [name for name in request.headers if name.lower().replace(b"_", b"-") in _FRAMING]:
        del request.headers[name]
    if request.body and _speaks_http1(handler):
        request.headers[b"Connection"] = b"close"


def _speaks_http1(handler: Any) -> bool:
    """Whether it is certainly HTTP/1 that the handler speaks; in HTTP/2, Connection is an error (RFC 9113 section
    8.2.2), and the end of a body cannot be mistaken."""
    if isinstance(handler, HTTP11DownloadHandler):
        return True
    return type(handler).__module__ in OF_OTHER_LIBRARIES and not getattr(handler, "_enable_h2", False)
