"""Links of a page: their addresses as absolute URLs, and what `rel` says about following them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, urljoin

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url

LINKS = 50_000  # of one page; those with rel=nofollow are kept first
CHARACTERS = 16_000_000  # of all absolute URLs of one page
ADDRESS = 8_000  # characters of one address

_KEYWORDS = re.compile(r"[\s,]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LINE_ENDS = re.compile(r"[\t\n\r]")
_AROUND = "".join(map(chr, range(0x21)))
_CLEAN = re.compile(r"[A-Za-z0-9!#$%&'()*+,/:;=?@\[\]~._-]*+")
_SAFE = "!#$%&'()*+,/:;=?@[]~"


def has_keyword(rel: str, keyword: str) -> bool:
    """Whether `rel` has a keyword. Keywords are separated by blanks (HTML) or commas (Google)."""
    return keyword in rel.lower() and keyword in _KEYWORDS.split(rel.lower())


def absolute_url(url: str) -> str | None:
    """Return an absolute http(s) URL in the form in which URLs are compared: without a fragment,
    with its host and dot segments in their normal form.

    Returns None for any other text.
    """
    if len(url) > ADDRESS:
        return None
    try:
        origin, target = split_url(url)
    except (MalformedURL, NotGoverned):
        return None
    return f"{origin}{_normal_target(target)}"


def _normal_target(target: str) -> str:
    if "/." in target:
        target = _without_dots(target)
    if _CLEAN.fullmatch(target):
        return target
    return quote(target.encode("latin-1", "replace"), _SAFE)


def _without_dots(target: str) -> str:
    """Remove dot segments (RFC 3986 section 5.2.4)."""
    path, mark, query = target.partition("?")
    found: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del found[-1:]
        elif segment != ".":
            found.append(segment)
    if segments[-1] in (".", ".."):
        found.append("")
    return "/" + "/".join(found) + mark + query


@lru_cache(maxsize=256)
def base_url(url: str, base: str | None) -> str:
    """Return the URL that a page's relative addresses refer to. `base` is the href of its BASE."""
    if base is None:
        return url
    return resolved(url, base) or url


def resolved(base: str, address: str) -> str | None:
    """Return an address of a page as an absolute URL, or None if that is not http or https."""
    text = address.strip(_AROUND)
    if text.startswith("/") and not text.startswith("//") and _CLEAN.fullmatch(text):
        root = _root(base)
        return root and f"{root}{_normal_target(text.partition('#')[0])}"
    text = _LINE_ENDS.sub("", text)
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in ("http", "https"):
        return None
    # A browser reads a backslash as a slash, except in the query.
    if "\\" in text:
        path, mark, query = text.partition("?")
        text = path.replace("\\", "/") + mark + query
    try:
        return absolute_url(urljoin(base, text) if text else base)
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _root(url: str) -> str | None:
    """Return the origin of a URL as text."""
    try:
        return str(split_url(url)[0])
    except (MalformedURL, NotGoverned):
        return None


def link_permissions(base: str, links: Iterable[tuple[str, str]]) -> dict[str, bool]:
    """Return the addresses of links, each with whether it may be followed.

    `links` are pairs of href and rel. An address that is linked both with and without rel=nofollow
    may be followed.
    """
    written: dict[str, bool] = {}
    for href, rel in links:
        written[href] = written.get(href, False) or not has_keyword(rel, "nofollow")
    found: dict[str, bool] = {}
    length = 0
    for href, may_follow in sorted(written.items(), key=_may_follow):
        url = resolved(base, href)
        if url is None:
            continue
        if url in found:
            found[url] = found[url] or may_follow
        elif len(found) < LINKS and length + len(url) <= CHARACTERS:
            length += len(url)
            found[url] = may_follow
    return found


def _may_follow(link: tuple[str, bool]) -> bool:
    return link[1]
