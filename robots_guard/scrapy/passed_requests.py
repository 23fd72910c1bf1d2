"""Passed requests: the requests of a crawl that may be sent, each as it was judged.

What follows a decision reads one entry: the checks that the request has not changed, its turn, and
the judgement of its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import ParseResult
from weakref import WeakKeyDictionary

import msgspec

from robots_guard.decisions.verdict import Decision

if TYPE_CHECKING:
    from scrapy import Request

#: The parts of a request that its verdict depends on: method, URL, the URL as Scrapy has parsed it
#: (None if it cannot), and Host fields. A download handler reads one of the URLs.
Seal = tuple[str, str, ParseResult | None, Sequence[bytes]]


class PassedRequest(msgspec.Struct, frozen=True):
    """A request that may be sent. `decision` is None if no robots.txt governs it."""

    seal: Seal
    decision: Decision | None

    @property
    def url(self) -> str:
        """The URL that was judged."""
        return self.seal[1]


#: By request. An entry exists as long as its request.
PassedRequests = WeakKeyDictionary["Request", PassedRequest]
