"""`Downloader.fetch` is called for all requests; it spans the lifetime of one in the downloader.

That begins when the engine hands the request over, and ends with a response, a refusal, a
cancellation, or a middleware that replaces the request. Scrapy has no signal for the end:
`request_left_downloader` covers only requests that have reached their download slot, and a
middleware may end a request before the guard's middleware sees it. So `fetch` is replaced, in one
crawler's own downloader, when the spider opens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy.core.downloader import Downloader
from twisted.internet.defer import Deferred, maybeDeferred

from robots_guard.gateway.patch import Patch, method

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


def follow(
    crawler: Crawler,
    on_begin: Callable[[Request], None],
    on_end: Callable[[Request], None],
) -> None:
    """Call `on_begin` and `on_end` at the beginning and end of each request."""
    engine: Any = crawler.engine
    fetch = engine.downloader.fetch

    def fetch_and_report(request: Request, *args: Any) -> Deferred[Any]:
        def end(outcome: Any) -> Any:
            on_end(request)
            return outcome

        on_begin(request)
        return maybeDeferred(fetch, request, *args).addBoth(end)

    engine.downloader.fetch = fetch_and_report


PATCHES = (
    Patch(
        owner=Downloader,
        methods=(method("fetch", "227c79bdeff3", "302384ee47a9"),),
        versions="Scrapy 2.14.0 to 2.19.0",
        reason="No signal marks the end of a request that never reaches its download slot.",
        report="""\
A signal for the end of every request in the downloader.

`request_reached_downloader` and `request_left_downloader` are sent for requests that reach their
download slot. A request that a downloader middleware answers, drops or replaces leaves no trace,
so an extension that counts the requests in the downloader loses count.

To see it: let a middleware return a response from `process_request`, and connect both signals.

A pair of signals sent by `Downloader.fetch` around `middleware.download_async` would do.
""",
    ),
)
