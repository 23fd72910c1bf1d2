"""Scrapy's own priority queue, with buckets that can be closed.

Scrapy's engine supports a scheduler that has pending requests but returns none. So the requests in
closed buckets count as pending, the spider stays open, JOBDIR preserves them, and the format on
disk is DownloaderAwarePriorityQueue's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface

from robots_guard.scrapy.deferral.gate import OriginGate

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class _Buckets(DownloaderInterface):
    """The downloader as the queue sees it: with open buckets only."""

    def __init__(self, crawler: Crawler, gate: OriginGate) -> None:
        super().__init__(crawler)
        self._gate = gate

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        slots = self.downloader.slots
        active = {key: len(slot.active) for key, slot in slots.items() if slot.active}
        buckets = self._gate.open_buckets(possible_slots)
        # In a job that began without the guard, a bucket has the name of its slot.
        return [(active.get(bucket.rpartition(" ")[0] or bucket, 0), bucket) for bucket in buckets]

    def get_slot_key(self, request: Request) -> str:
        return self._gate.bucket(request)


class GuardPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, with buckets that can be closed.

    A job that began with DownloaderAwarePriorityQueue can be resumed with this one, and vice versa.
    """

    def __init__(self, crawler: Crawler, *args: Any, **kwargs: Any) -> None:
        super().__init__(crawler, *args, **kwargs)
        self._gate = OriginGate.of(crawler)
        if hasattr(self, "_downloader_interface"):
            self._downloader_interface = _Buckets(crawler, self._gate)
            self._gate.attached = True

    def pop(self) -> Request | None:
        """The next request of an open bucket."""
        while (request := super().pop()) is not None:
            if self._gate.admit(request):
                return request
            # Its bucket is from a job that began without the guard: it belongs to another, which is
            # closed.
            self.push(request)
        return None
