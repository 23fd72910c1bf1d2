"""Held pages: responses that clients get only after the beginning of their page has been judged.

The enforcer enters a page in `HELD_PAGES` when the head of its response arrives, and `HttpStream`
takes it from there (`patches/http_stream_responses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mitmproxy import http

from robots_guard.fetch.content_coding import Plain, Undecodable, decoder

SCAN_LIMIT = 65_536  # bytes: the head of nearly every page is shorter


class PageWindow:
    """The first `limit` bytes of a page, decoded while it arrives.

    Invariant: no more is decoded and kept, whatever its Content-Encoding.
    `is_full`: nothing more of the page will be read. `is_whole`: all of it has been read. A page
    that cannot be decoded is read as far as possible.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        self.is_full = False
        self.is_whole = False
        self._content: Plain
        try:
            self._content = decoder(content_encoding, limit)
        except Undecodable:
            self._content = Plain(0)
            self.is_full = True

    @property
    def body(self) -> bytes:
        """What has been read."""
        return bytes(self._content.body)

    @property
    def size(self) -> int:
        """The number of bytes that have been read."""
        return len(self._content.body)

    def feed(self, data: bytes) -> None:
        """Read the next piece of the page."""
        if self.is_full:
            return
        try:
            self._content.feed(data)
        except Undecodable:
            self.is_full = True
        self.is_full = self.is_full or self._content.truncated

    def end(self) -> None:
        """Note that the page has ended."""
        if self.is_full:
            return
        try:
            self._content.end()
        except Undecodable:
            return
        self.is_whole = True


Stream = Callable[[bytes], Iterable[bytes] | bytes] | bool


@dataclass(slots=True)
class HeldPage:
    """A page that is held until `judge` has returned its refusal, or None if it passes.

    `stream` is how it is passed on: mitmproxy's `Message.stream`, as other addons have set it.
    `began` is in seconds of the monotonic clock.
    """

    window: PageWindow
    judge: Callable[[], http.Response | None]
    stream: Stream
    began: float
    body: bytearray = field(default_factory=bytearray)  # as it arrived; pieces may be tiny

    def feed(self, data: bytes) -> int:
        """Keep the next piece. Returns by how many bytes this holds more."""
        before = self.window.size
        self.body += data
        self.window.feed(data)
        return len(data) + self.window.size - before


def memory_key(flow_id: str) -> str:
    """The key in the body memory of the held page of a flow."""
    return f"{flow_id} page"


#: By the id of the flow, from the hook `responseheaders` until mitmproxy continues.
HELD_PAGES: dict[str, HeldPage] = {}
