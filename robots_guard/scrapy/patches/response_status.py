"""`_ScrapyAgent._cb_bodyready` handles the head of a response in Scrapy's HTTP/1.1 handler.

It sends `headers_received`, which has the header fields of the response, but not its status. A
download can be stopped rightly only if the status is known: what a 404 or a redirect states is not
about the content that was requested. So `_cb_bodyready` also notes the status of each response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.core.downloader.handlers import http11

from robots_guard.gateway.patch import Patch, install_patches, method

if TYPE_CHECKING:
    from scrapy import Request

_heads: list[tuple[Request, int]] = []  # those being handled: receivers are called meanwhile


def note_statuses() -> None:
    """Note the status of each response, in all crawls of the process, from now on."""
    install_patches(PATCHES)


def status_of(request: Request) -> int | None:
    """The status of the response to a request, for a receiver of `headers_received`; None if its
    download handler is not Scrapy's for HTTP/1.1."""
    return next((status for handled, status in _heads if handled is request), None)


def _handle_head(self: Any, txresponse: Any, request: Request, *, plain: Any) -> Any:
    _heads.append((request, txresponse.code))
    try:
        return plain(self, txresponse, request)
    finally:
        _heads.pop()


_AGENT = "_ScrapyAgent" if hasattr(http11, "_ScrapyAgent") else "ScrapyAgent"

PATCHES = (
    Patch(
        owner=getattr(http11, _AGENT),
        methods=(
            method(
                "_cb_bodyready", "4e88308f9843", "089432b19463", "3b4c90f33215", new=_handle_head
            ),
        ),
        versions="Scrapy 2.14.2 to 2.19.0",
        reason="What a response states depends on its status, which `headers_received` does not have.",
        report="""\
The status of a response for receivers of `headers_received`.

`headers_received` is sent with the header fields of a response and the length of its body, but
without its status. A receiver that raises StopDownload cannot tell a page from a redirect, an error
or a 304, whose bodies a spider or the HTTP cache may need.

To see it: connect a receiver to `headers_received`, and let a server answer 404.

A further argument `status` would do; receivers that do not take it are not affected.
""",
    ),
)
