"""The beginning of a page, decoded while it arrives.

Invariant: at most `limit` bytes are decoded and kept, whatever their Content-Encoding.
"""

from __future__ import annotations

from robots_guard.fetch.content_coding import Plain, Undecodable, decoder

SCAN_LIMIT = 65_536  # bytes: the head of nearly every page is shorter


class PageWindow:
    """The first `limit` bytes of a page.

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
