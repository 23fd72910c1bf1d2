"""Leftovers: the requests of a stopped crawl that its scheduler does not take back.

They are stored for the job's next crawl in a separate disk queue in JOBDIR, in Scrapy's own format.
Without JOBDIR they are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.squeues import PickleFifoDiskQueue
from scrapy.utils.job import job_dir

from robots_guard.audit.record import shown_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

FOLDER = "robots_guard.requests"


class Leftovers:
    """The disk queue of one job for requests that its scheduler has refused."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = Path(folder, FOLDER) if folder else None

    def take(self) -> list[Request]:
        """Remove the requests of the job's last crawl from the queue, and return them."""
        if self._path is None or not self._path.exists():
            return []
        queue = self._queue(self._path)
        try:
            return list(iter(queue.pop, None))
        finally:
            queue.close()

    def keep(self, requests: Iterable[Request]) -> int:
        """Write requests for the job's next crawl. Returns how many could not be written."""
        remaining = list(requests)
        if self._path is None or not remaining:
            return len(remaining)
        queue = self._queue(self._path)
        try:
            return sum(not _write(request, queue) for request in remaining)
        finally:
            queue.close()

    def _queue(self, path: Path) -> Any:
        # a generated class, whose type does not declare its methods
        queue_class: Any = PickleFifoDiskQueue
        return queue_class.from_crawler(self._crawler, str(path))


def _write(request: Request, queue: Any) -> bool:
    """Write one request. Returns False if it cannot be written, so that the caller can go on."""
    try:
        queue.push(request)
    except (ValueError, OSError) as error:
        log.error(
            "robots_guard: %s cannot be stored for the job's next crawl: %s",
            shown_url(request.url),
            error,
        )
        return False
    return True
