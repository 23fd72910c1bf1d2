"""Requests that outlast a stopped crawl because its scheduler does not take them back.

They lie in a queue of their own beside the scheduler's, in JOBDIR, in the form in which Scrapy writes requests there.
Without JOBDIR there is no such place.
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
    """The requests of one job that no scheduler has."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = Path(folder, FOLDER) if folder else None

    def take(self) -> list[Request]:
        """The requests that the job's last crawl has left, which are then left no more."""
        if self._path is None or not self._path.exists():
            return []
        queue = self._queue(self._path)
        try:
            return list(iter(queue.pop, None))
        finally:
            queue.close()

    def keep(self, requests: Iterable[Request]) -> int:
        """Write requests down for the job's next crawl. Returns how many could not be."""
        left = list(requests)
        if self._path is None or not left:
            return len(left)
        queue = self._queue(self._path)
        try:
            return sum(not _is_written(request, queue) for request in left)
        finally:
            queue.close()

    def _queue(self, path: Path) -> Any:
        made: Any = PickleFifoDiskQueue  # by a function, with methods that its type does not tell of
        return made.from_crawler(self._crawler, str(path))


def _is_written(request: Request, queue: Any) -> bool:
    """Write one request. One that cannot be written down does not take the others along."""
    try:
        queue.push(request)
    except (ValueError, OSError) as error:
        log.error("robots_guard: %s cannot be kept for the next crawl of the job: %s", shown_url(request.url), error)
        return False
    return True
