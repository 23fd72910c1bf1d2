"""What a download handler writes for a request: the target, and the fields that frame its body.

No library sends every URL exactly as it is spelt. Rules apply to the target that the origin
receives, so that target is judged, too. For each of Scrapy's handlers it is computed from the source
that the handler uses, by the library that it uses. Any other handler is assumed to write URLs as
Twisted does, and to read them where Scrapy's handler for HTTP/2 does.

A handler writes the length of the body by itself (RFC 9112 section 6). Scrapy also sends a
Content-Length or Transfer-Encoding that a spider has set, and a server that trusts those fields
finds a second request in the body. So does a server that does not read the body of a GET, if the
connection is reused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import ParseResult, urldefrag, urlparse

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.utils.httpobj import urlparse_cached

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.wire import TOKEN
from robots_guard.origin import Origin, split_cached, wire_text

if TYPE_CHECKING:
    from scrapy import Request

#: Returns the target that a handler writes for a URL, given also the target as the URL spells it.
TargetWriter = Callable[[str, str], str]
#: A URL whose target urllib and Twisted keep: it has no parameters, no empty query, and no blank.
_PLAIN = re.compile(
    r'https?://[!-"$-.0->@-~]+(?!//)/[!-"$-:<->@-~]*(?:\?[!-"$-~]+)?(?:#[!-~]*)?'
).fullmatch
_BLANK = re.compile(r"[\x00-\x20\x7f]")


def parsed_url(request: Request) -> ParseResult | None:
    """The URL as Scrapy has cached it (`urlparse_cached`), which stays when the request's own URL is
    changed in place; None if it cannot be parsed."""
    try:
        return urlparse_cached(request)
    except ValueError:
        return None


def written_target(request: Request, handler: Any) -> str:
    """The target that a handler writes for a request.

    Raises NotGoverned, also if there is no handler; and MalformedURL if the handler writes no clear
    target or method, or a target for another origin than that of the request's URL.
    """
    kind: Any = type(handler)
    spelling = _spelling_of(kind)
    own = _split(request.url)
    if handler is None:
        raise NotGoverned("no download handler takes the request, and Scrapy refuses it")
    url, read = request.url, own
    parsed = parsed_url(request) if spelling.reads_parsed_url else None
    if parsed is not None:
        url = parsed.geturl()
        if url != request.url:
            read = _split(url)
    if own is None and read is None:
        raise NotGoverned(f"{request.url[:80]!r} is not http or https")
    if own is None or read is None or own[0] != read[0]:
        raise MalformedURL("changed in place to another site, while its handler uses the first one")
    if request.method == "CONNECT" or not TOKEN.fullmatch(request.method):
        raise MalformedURL("its method is not a token, or is CONNECT, which has no target")
    if parsed is not None and request.method == "OPTIONS" and not parsed.path:
        raise MalformedURL('its handler would write "*", which is not a page')
    if read is own and not spelling.changes_plain and _PLAIN(url):
        return own[1]
    try:
        written = spelling.write(url, read[1])
    except ValueError as error:
        raise MalformedURL(f"no target for its handler: {error}") from None
    for target in (own[1], written):
        # Twisted and aiohttp write these as they are, and servers read them in different ways.
        if not target.startswith("/") or _BLANK.search(target):
            raise MalformedURL("its handler would write a target that two servers read differently")
    return written


def _split(url: str) -> tuple[Origin, str] | None:
    try:
        return split_cached(url)
    except NotGoverned:
        return None


class _Spelling(NamedTuple):
    """How a handler writes URLs.

    `reads_parsed_url`: it may write `parsed_url`.
    """

    write: TargetWriter
    reads_parsed_url: bool
    changes_plain: bool  # it may change the target of a URL that matches _PLAIN


def writer_of(handler: Any) -> TargetWriter:
    """The function for a handler."""
    kind: Any = type(handler)
    return _spelling_of(kind).write


@cache
def _spelling_of(handler: type) -> _Spelling:
    """The spelling of the Scrapy handler that this is or derives from; Twisted's for any other."""
    modules = (kind.__module__ for kind in handler.__mro__)
    write = next((_WRITERS[module] for module in modules if module in _WRITERS), _twisted_target)
    return _Spelling(
        write,
        reads_parsed_url=handler.__module__ not in _READ_OWN_URL,
        changes_plain=write in (_aiohttp_target, _httpx_target),
    )


def _twisted_target(url: str, target: str) -> str:
    """The target by Twisted, which parses and reassembles URLs.

    Empty parameters and queries, blanks at the end, and (on some Pythons) two leading slashes do
    not survive that.
    """
    if _PLAIN(url):
        return target
    from twisted.web.client import URI

    parsed: Any = URI  # untyped
    written = parsed.fromBytes(urldefrag(url)[0].encode("utf-8", "surrogateescape"))
    return str(written.originForm, "latin-1")


def _http2_target(url: str, _target: str) -> str:
    """The target by Scrapy's handler for HTTP/2, which omits parameters and empty queries."""
    parsed = urlparse(url)
    query = f"?{parsed.query}" if parsed.query else ""
    return wire_text(f"{parsed.path}{query}") or "/"


def _aiohttp_target(url: str, target: str) -> str:
    """The target by yarl, which decodes escapes that it considers needless, such as "%2C", and
    removes dot segments.

    A `verbatim_url` is judged in this spelling, too, because not all versions of the handler
    support it.
    """
    from yarl import URL  # installed with aiohttp

    try:
        return URL(url).raw_path_qs
    except ValueError:
        return target  # the handler fails likewise


def _httpx_target(url: str, target: str) -> str:
    """The target by httpx, which removes dot segments and escapes more than Scrapy does."""
    library = sys.modules[_HTTPX].httpx  # the one that the handler has imported: there are two
    try:
        raw_path: bytes = library.URL(url).raw_path
    except library.InvalidURL:
        return target  # the handler fails likewise
    return raw_path.decode("latin-1")


_HTTP11, _HTTP2, _AIOHTTP, _HTTPX = (
    f"scrapy.core.downloader.handlers.{name}" for name in ("http11", "http2", "_aiohttp", "_httpx")
)
_WRITERS: dict[str, TargetWriter] = {
    _HTTP11: _twisted_target,
    _HTTP2: _http2_target,
    _AIOHTTP: _aiohttp_target,
    _HTTPX: _httpx_target,
}
_READ_OWN_URL = (_HTTP11, _AIOHTTP, _HTTPX)
_FRAMING = (b"content-length", b"transfer-encoding")
#: Modules of Scrapy's handlers for other HTTP libraries.
LIBRARY_HANDLERS = (_AIOHTTP, _HTTPX)


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
