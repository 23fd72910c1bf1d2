"""Bodies: what the proxy keeps of them, counted over all connections.

`body_size_limit` bounds one request, but a client may open any number of them. Each byte of a
request's body that mitmproxy keeps is counted in `MEMORY` from its arrival until its flow has
ended, its client has disconnected, or the byte was discarded. An upload that would exceed the limit
is refused (`patches/http_requests.py`), and its bytes are released.

Of responses, only held pages are kept and counted: clients get them only after their beginning has
been judged. `robots-guard proxy` forwards all others as they arrive. The enforcer enters a page in
`HELD_PAGES` when the head of its response arrives, and `HttpStream` takes it from there
(`patches/http_responses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mitmproxy import http

from robots_guard.guard.fetch.content_coding import Plain, Undecodable, decoder

SCAN_LIMIT = 65_536  # bytes: the head of nearly every page is shorter


class BodyMemory:
    """Counts bytes by client connection, and by flow or another key. Invariant: `used` never exceeds `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._counted: dict[str, dict[str, int]] = {}

    def take(self, client: str, key: str, size: int) -> bool:
        """Count `size` more bytes. Returns False, and counts nothing, if that would exceed the limit."""
        if self.used + size > self.limit:
            return False
        counts = self._counted.setdefault(client, {})
        counts[key] = counts.get(key, 0) + size
        self.used += size
        return True

    def used_by(self, client: str, key: str) -> int:
        """The number of bytes counted under a key."""
        return self._counted.get(client, {}).get(key, 0)

    def give_back(self, client: str, key: str, size: int) -> None:
        """Count `size` fewer bytes under a key, but never fewer than none."""
        counts = self._counted.get(client, {})
        freed = min(size, counts.get(key, 0))
        if freed:
            counts[key] -= freed
            self.used -= freed

    def release(self, client: str, key: str) -> None:
        """Drop all bytes counted under a key."""
        counts = self._counted.get(client)
        if counts is None:
            return
        self.used -= counts.pop(key, 0)
        if not counts:
            del self._counted[client]

    def forget(self, client: str) -> None:
        """Drop all bytes counted for a client connection."""
        self.used -= sum(self._counted.pop(client, {}).values())

    def __len__(self) -> int:
        """The number of client connections with counted bytes."""
        return len(self._counted)


#: The body memory of this process. The enforcer sets its limit.
MEMORY = BodyMemory(256 * 1024**2)


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
