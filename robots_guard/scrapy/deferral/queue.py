"""Scrapy's own priority queue, with buckets that can be shut.

Scrapy's engine allows for a scheduler that has pending requests but returns none. So pending requests are
counted, the spider stays open, JOBDIR keeps them, and the format on disk is that of DownloaderAwarePriorityQueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface

from robots_guard.scrapy.deferral.gate import Gate

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class _Buckets(DownloaderInterface):
    """What the queue sees of the downloader: open buckets only."""

    def __init__(self, crawler: Crawler, gate: Gate) -> None:
        super().__init__(crawler)
        self._gate = gate

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        busy = {slot: len(use.active) for slot, use in self.downloader.slots.items() if use.active}
        buckets = self._gate.open_of(possible_slots)
        # Of a job begun without us, a bucket bears the name of its slot.
        return [(busy.get(bucket.rpartition(" ")[0] or bucket, 0), bucket) for bucket in buckets]

    def get_slot_key(self, request: Request) -> str:
        return self._gate.bucket(request)


class GuardPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, with buckets that can be shut.

    A job begun with DownloaderAwarePriorityQueue can be resumed with this one, and vice versa.
    """

    def __init__(self, crawler: Crawler, *args: Any, **kwargs: Any) -> None:
        super().__init__(crawler, *args, **kwargs)
        self._gate = Gate.of(crawler)
        if hasattr(self, "_downloader_interface"):
            self._downloader_interface = _Buckets(crawler, self._gate)
            self._gate.attached = True

    def pop(self) -> Request | None:
        """The next request of an open bucket."""
        while (request := super().pop()) is not None:
            if self._gate.admits(request):
                return request
            self.push(request)  # from a bucket of a job begun without us: into its own, which is shut
        return None
