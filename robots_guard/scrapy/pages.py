"""Responses as the guard's readers take them: header fields as text, pages decoded, and where they
come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Verdict
from robots_guard.guard.fetch.content_coding import Undecodable, decoder
from robots_guard.protocol.html.page import Page, read_page
from robots_guard.protocol.signals.headers import FIELDS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.http.headers import Headers

Fields = list[tuple[str, str]]

PAGE_CAP = 16 * 1024 * 1024  # bytes of a page that are read; the rest makes it incomplete
_PARTIAL = 206
#: The flag of a response that no request to its site was needed for.
FROM_CACHE = "cached"
_REFUSAL = re.compile(rb'<meta name="robots-guard" content="(drop|defer);')
_HEAD = 4096  # bytes at the start of a document in which _REFUSAL must occur
_CUT = frozenset(("download_stopped", "dataloss", "partial"))  # Scrapy's flags
#: The names of fields with signals, as Scrapy spells names.
_NAMES = frozenset(name.title().encode() for name in FIELDS)


class PageLinks(NamedTuple):
    """What applies to the links and items that a spider takes from a response.

    `page` is None if it is not a page of HTML, and `verdict` if its site states nothing.
    """

    url: str
    page: Page | None
    verdict: Verdict | None


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


def has_signals(headers: Headers) -> bool:
    """Whether a field of a response can state something."""
    return not _NAMES.isdisjoint(headers)


def validated_fields(request: Request, response: Response) -> Fields:
    """The fields of a 304 that can state something, and the type of the stored response.

    A 304 changes what a site states, but not the type of the stored body (RFC 9111 section 3.2).
    """
    stored = request.meta.get("cached_response")  # of HttpCacheMiddleware
    types = stored.headers.getlist("Content-Type") if stored is not None else []
    stated = [field for field in fields_of(response.headers) if field[0].lower() in FIELDS]
    return [*stated, *(("Content-Type", value.decode("latin-1")) for value in types)]


def fields_of(headers: Headers) -> Fields:
    """The header fields as text, with field lines of one name kept apart."""
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name in headers
        for value in headers.getlist(name)
    ]


def head_of(request: Request, response: Response, validated: Fields) -> ResponseHead:
    """The head of a response. `validated` has the fields of a 304, by which a stored response is
    updated (RFC 9111 section 3.2); Scrapy does that itself since 2.19 only."""
    updated = {name for name, _ in validated}
    stored = (field for field in fields_of(response.headers) if field[0] not in updated)
    return ResponseHead(
        status=response.status, headers=[*stored, *validated], method=request.method
    )


def page_of(response: Response, content_type: str) -> Page:
    """The page of a response, incomplete if a part of it is missing or cannot be decoded. What
    could be decoded is read all the same, as Scrapy hands it to a spider."""
    is_whole = response.status != _PARTIAL and _CUT.isdisjoint(response.flags)
    try:
        body, is_decoded = _decoded(response.body, _codings(response))
    except Undecodable:
        return Page(is_incomplete=True)
    return read_page(body, content_type, response.url, is_whole=is_whole and is_decoded)


def is_encoded(response: Response) -> bool:
    """Whether the body of a response has a content coding."""
    return bool(_codings(response))


def _codings(response: Response) -> str:
    return b", ".join(response.headers.getlist("Content-Encoding")).decode("latin-1")


def _decoded(body: bytes, codings: str) -> tuple[bytes, bool]:
    """What can be decoded of a body, and whether that is all. Raises Undecodable if the codings are
    not supported."""
    if not codings and len(body) <= PAGE_CAP:
        return body, True
    unpacker = decoder(codings, PAGE_CAP)
    try:
        unpacker.feed(body)
        unpacker.end()
    except Undecodable:
        return bytes(unpacker.body), False
    return bytes(unpacker.body), not unpacker.truncated
