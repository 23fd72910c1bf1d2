"""Scrapy's own priority queue, with buckets that can be closed.

Scrapy's engine supports a scheduler that has pending requests but returns none. So the requests in
closed buckets count as pending, the spider stays open, JOBDIR preserves them, and the format on
disk is DownloaderAwarePriorityQueue's.

Scrapy's queue asks its downloader how many downloads each bucket's slot has, and chooses among the
answers. The guard answers with one bucket only, the open one that is next (`buckets`). The rest is
Scrapy's code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scrapy.pqueues import (
    DownloaderAwarePriorityQueue,
    DownloaderInterface,
    ScrapyPriorityQueue,
)

from robots_guard.scrapy.deferral.buckets import Buckets
from robots_guard.scrapy.deferral.gate import OriginGate

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class _NextBucket(DownloaderInterface):
    """The downloader as the queue sees it: with one bucket, the next."""

    def __init__(self, crawler: Crawler, gate: OriginGate, buckets: Buckets) -> None:
        super().__init__(crawler)
        self._gate = gate
        self._buckets = buckets
        self.chosen: str | None = None

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:  # noqa: ARG002  Scrapy's signature
        self.chosen = self._gate.next_bucket(self._buckets)
        if self.chosen is None:
            return []
        return [(0, self.chosen)]

    def get_slot_key(self, request: Request) -> str:
        return self._gate.bucket(request)


class GuardPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, with buckets that can be closed.

    A job that began with DownloaderAwarePriorityQueue can be resumed with this one, and vice versa.
    """

    def __init__(self, crawler: Crawler, *args: Any, **kwargs: Any) -> None:
        self._gate = OriginGate.of(crawler)
        self._buckets = self._gate.attach(lambda bucket: len(self.pqueues[bucket]))
        super().__init__(crawler, *args, **kwargs)
        self._next = _NextBucket(crawler, self._gate, self._buckets)
        self._downloader_interface = self._next

    def pqfactory(self, slot: str, startprios: Iterable[int] = ()) -> ScrapyPriorityQueue:
        """The queue of a new bucket."""
        queue = super().pqfactory(slot, startprios)
        self._buckets.add(slot)
        return queue

    def __len__(self) -> int:
        """The number of requests, or 0 if none of them may leave within `max_idle`.

        Scrapy waits for a scheduler that is not empty.
        """
        if self._gate.is_worth_waiting_for(self._buckets):
            return super().__len__()
        return 0

    def pop(self) -> Request | None:
        """The next request of an open bucket."""
        while (request := self._pop()) is not None:
            if self._gate.admit(request):
                return request
            # Its bucket is from a job that began without the guard: it belongs to another, which is
            # closed.
            self.push(request)
        return None

    def _pop(self) -> Request | None:
        request = super().pop()
        bucket = self._next.chosen
        if bucket is not None:
            self._buckets.mark_taken(bucket)
            if bucket not in self.pqueues:
                self._buckets.discard(bucket)
        return request
