"""`SignalManager.send_catch_log` sends the signals about each request and its response.

Extensions use them to count responses, close the spider and stop downloads. The guard's fetches are
no part of the crawl: a robots.txt that counts as a page ends a crawl of one page before the page,
and one that a receiver stops at its header fields is unreadable. So signals about a fetch are sent
to the guard's own receivers only. The method is replaced in the signal manager of one crawler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy.signalmanager import SignalManager

from robots_guard.gateway.patch import Patch, method

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

_SEND = "send_catch_log"


def divert(crawler: Crawler, sender: object, is_fetch: Callable[[Request], bool]) -> SignalManager:
    """Send the signals about fetches by a manager of this sender's own, which is returned."""
    signals: Any = crawler.signals
    send, own = getattr(signals, _SEND), SignalManager(sender)

    def send_or_divert(signal: Any, **arguments: Any) -> list[tuple[Any, Any]]:
        request = arguments.get("request")
        manager = own.send_catch_log if request is not None and is_fetch(request) else send
        return manager(signal, **arguments)

    setattr(signals, _SEND, send_or_divert)
    return own


PATCHES = (
    Patch(
        owner=SignalManager,
        methods=(method(_SEND, "81ac78d853fe"),),
        versions="Scrapy 2.14.0 to 2.19.0",
        reason="A fetch of robots.txt must not count as a page, nor be stopped as one.",
        report="""\
Requests of components, such as those for robots.txt, count as pages of the crawl.

`engine.download_async` sends `response_received` for each request that a component makes. So with
ROBOTSTXT_OBEY and CLOSESPIDER_PAGECOUNT = 1, the first robots.txt ends the crawl; the first page is
only crawled because it was already waiting in the downloader. A receiver of `headers_received` that
raises StopDownload stops robots.txt, too, and RobotsTxtMiddleware then takes the site to have no
rules.

To see it: connect a receiver that raises StopDownload(fail=False) to `headers_received`, and crawl
a page that a robots.txt disallows.

A meta key for requests whose signals are not sent, or an argument of `download_async`, would do.
""",
    ),
)
