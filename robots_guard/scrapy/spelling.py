"""Spelling: the target that a download handler writes for a URL.

No library sends every URL exactly as it is spelt. Rules apply to the target that the origin
receives, so that target is judged, too. For each of Scrapy's handlers the library it uses computes
the target; any other handler is assumed to write URLs as Twisted does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urldefrag

#: Returns the target that a handler writes for a URL, given also the target as the URL spells it.
TargetWriter = Callable[[str, str], str]


def writer_of(handler: Any) -> TargetWriter:
    """The function for a handler."""
    kind: Any = type(handler)
    return _writer_of(kind)


@cache
def _writer_of(handler: type) -> TargetWriter:
    """The function for Scrapy's handler that this one is, or derives from; otherwise Twisted's."""
    modules = (kind.__module__ for kind in handler.__mro__)
    return next((_WRITERS[module] for module in modules if module in _WRITERS), _twisted_target)


def _twisted_target(url: str, target: str) -> str:
    """The target by Twisted, which parses and reassembles URLs.

    An empty parameter and (on some Pythons) two leading slashes do not survive that.
    """
    if ";" not in target and not target.startswith("//"):
        return target
    from twisted.web.client import URI

    parsed: Any = URI  # untyped
    return str(parsed.fromBytes(urldefrag(url)[0].encode()).originForm, "latin-1")


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


_AIOHTTP, _HTTPX = (f"scrapy.core.downloader.handlers._{name}" for name in ("aiohttp", "httpx"))
_WRITERS: dict[str, TargetWriter] = {_AIOHTTP: _aiohttp_target, _HTTPX: _httpx_target}
