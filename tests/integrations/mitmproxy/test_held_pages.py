"""What a held page costs in memory."""

from __future__ import annotations

import tracemalloc

from robots_guard.mitmproxy.bodies import HeldPage, PageWindow


def test_tiny_pieces_cost_about_what_is_counted():
    """A site may send its page in pieces of two bytes."""
    pieces = [b"%02d" % (number % 100) for number in range(30_000)]
    held = HeldPage(PageWindow("", 65536), lambda: None, stream=True, began=0.0)
    tracemalloc.start()
    counted = sum(held.feed(bytes([*piece])) for piece in pieces)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held.body == b"".join(pieces)
    assert counted == 120_000
    assert used < counted * 1.5
