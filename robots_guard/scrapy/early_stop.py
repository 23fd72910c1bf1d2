"""Downloads that are stopped when their header fields have arrived, because these refuse the
response.

No byte of the body is needed then. `ResponseSignals.admit` refuses the response, as it does when
the download was not stopped: if the download handler does not send `headers_received`, or its
status is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import StopDownload

from robots_guard.scrapy.patches.response_status import note_statuses, status_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http.headers import Headers

MayStop = Callable[["Request", "Headers", int], bool]


def stop_early(crawler: Crawler, may_stop: MayStop) -> None:
    """Stop each download of a crawl whose header fields and status satisfy `may_stop`."""

    def on_headers_received(headers: Headers, body_length: int | None, request: Request) -> None:
        status = status_of(request)
        if body_length == 0 or status is None:
            return
        if may_stop(request, headers, status):
            raise StopDownload(fail=False)

    note_statuses()
    crawler.signals.connect(on_headers_received, signals.headers_received, weak=False)
