"""Held pages: responses that clients get only after the beginning of their page has been judged.

The enforcer enters a page in `HELD_PAGES` when the head of its response arrives, and `HttpStream`
takes it from there (`patches/http_stream_responses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mitmproxy import http

from robots_guard.gateway.page_window import PageWindow

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
