"""Refusals as a spider's errback receives them, and `abort`, which ends a crawl that cannot be
guarded.

Invariant: no crawl runs unguarded. An exception in a component has one of four effects in Scrapy (a
Deferred without an errback, a task that is never awaited, a disabled component, a stopped process),
and one of them is a crawl without the guard. So `abort` ends the process instead of raising.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import NoReturn

from scrapy.exceptions import IgnoreRequest

from robots_guard.errors import SettingsError
from robots_guard.gateway.errors import (
    RequestDeferred,
    RequestDisallowed,
    RequestRefused,
    ResponseRefused,
)
from robots_guard.text import printable

log = logging.getLogger("robots_guard")


class RobotsRefused(RequestRefused, IgnoreRequest):
    """The guard refused a request or its response.

    An errback that treats all refusals alike checks for this class. `decision` is the whole
    decision.
    """


class RobotsDisallowed(RobotsRefused, RequestDisallowed):
    """The request may not be made.

    `decision` is the whole decision: verdict, reason, rule and its line.
    """


class RobotsDeferred(RobotsRefused, RequestDeferred):
    """The request may not be made yet and could not be rescheduled: its caller has to retry.

    `decision.verdict.until` is the time to retry at, in seconds since 1970. Raised only for
    downloads that bypass the scheduler (`engine.download_async`, media pipelines), under schedulers
    that GuardScheduler does not wrap, and for requests that would wait too long: those to a host
    whose name cannot be resolved or that refuses connections, and those of a command for one page.
    """


class RobotsSignalled(RobotsRefused, ResponseRefused):
    """The response may not be used, because its site does not permit that: a signal denies a
    declared purpose, or the site asks for payment.

    `decision` is the decision on the response; `decision.verdict.uses` has all that the site
    states, each with its evidence. The spider does not get the response.
    """


class NotYet(RobotsRefused):
    """The request reached its download handler before its turn.

    Components of a project never see this error: RobotsGuardSeal, the first to receive it, defers
    the request.
    """


def abort(error: SettingsError) -> NoReturn:
    """End the process with one sentence on stderr and exit status 1, however the crawl was
    started. The sentence also goes to LOG_FILE."""
    sentence = printable(str(error))
    message = f"robots_guard: {sentence}"
    _log_elsewhere(sentence)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _abort_outside_asyncio(message)
    # A callback, because SystemExit then leaves the loop; raised in the crawl's own task it would
    # be logged, too.
    loop.call_soon(sys.exit, message)
    raise asyncio.CancelledError(message)


def _log_elsewhere(message: str) -> None:
    """Log a sentence by the handlers that do not write to stderr or stdout, where it is shown
    anyway."""
    record = log.makeRecord(log.name, logging.CRITICAL, __file__, 0, message, (), None)
    for handler in (*log.handlers, *logging.root.handlers):
        is_console = getattr(handler, "stream", None) in (sys.stderr, sys.stdout)
        if not is_console and record.levelno >= handler.level:
            handler.handle(record)


def _abort_outside_asyncio(message: str) -> NoReturn:
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None and getattr(reactor, "running", False):
        raise SettingsError(message)  # the caller has the Deferred of CrawlerRunner.crawl()
    # CrawlerProcess.crawl() before start(): every exception ends in a Deferred, and start() then
    # returns as if nothing had failed. The crawl has not begun, so nothing is lost.
    print(message, file=sys.stderr)  # noqa: T201  the process ends here
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
