"""Refusals, as a spider's errback sees them, and the one way a crawl that cannot be guarded ends.

A crawl never runs unguarded. Scrapy reads an exception in a component in four ways (a Deferred nobody looks
at, a task nobody awaits, a disabled component, a stopped process), and one of them is a crawl without us; so
`abort` leaves Scrapy nothing to read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import NoReturn

from scrapy.exceptions import IgnoreRequest

from robots_guard.audit.record import redacted, shown_url
from robots_guard.core.verdict import Decision, Exemption
from robots_guard.errors import SettingsError
from robots_guard.plain import printable


class _Refused(IgnoreRequest):
    def __init__(self, decision: Decision) -> None:
        super().__init__(sentence(decision))
        self.decision = decision


class RobotsDisallowed(_Refused):
    """The request may not be made. `decision` is the whole decision: verdict, reason, rule and its line."""


class RobotsDeferred(_Refused):
    """The request may not be made now, and could not be put back: its caller must ask again by itself.

    `decision.verdict.until` says when, in seconds since 1970. Only downloads past the scheduler
    (`engine.download_async`, media pipelines) get this, and schedulers that nobody has wrapped.
    """


class NotYet(_Refused):
    """On the wire, it was not the request's turn. No component of a project's sees it: our last middleware, which is
    asked first, puts the request off."""


def sentence(decision: Decision) -> str:
    """What was decided and why, for people: no secret of a URL, and no character that could steer a terminal."""
    question, verdict = decision.question, decision.verdict
    text = f"{verdict.action} ({verdict.reason}): {question.method} {shown_url(f'{question.origin}{question.target}')}"
    if verdict.rule is not None:
        rule = verdict.rule
        text += f": {rule.text!r}, line {rule.line} of {question.origin}/robots.txt, group {rule.group!r}"
    elif verdict.detail:
        text += f": {printable(redacted(verdict.detail))}"
    if decision.override is not None:
        text += f": {printable(_told(decision.override))}"
    if decision.has_escaped:
        text += ": it had reached the site"
        text += f", led there by {shown_url(question.led_by)}" if question.led_by else ""
    if verdict.until is not None:
        text += f"; again in {max(0.0, verdict.until - decision.at):.0f} s"
    return f"{text} [agent {question.agent}]"


def _told(override: Exemption) -> str:
    return f"override {override.id} of {override.owner} ({override.reason})"


def abort(error: SettingsError) -> NoReturn:
    """End the process with one sentence on stderr and exit status 1, whichever way the crawl was started."""
    message = f"robots_guard: {error}"
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _abort_outside_asyncio(message)
    loop.call_soon(sys.exit, message)  # SystemExit leaves the loop; in the crawl's own task it would be logged too
    raise asyncio.CancelledError(message)


def _abort_outside_asyncio(message: str) -> NoReturn:
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is not None and getattr(reactor, "running", False):
        raise SettingsError(message)  # somebody holds the Deferred of CrawlerRunner.crawl()
    # CrawlerProcess.crawl() before start(): all exceptions end in a Deferred, and start() then returns as if all
    # were well. Nothing of the crawl has begun, so nothing is lost.
    print(message, file=sys.stderr)  # noqa: T201  the last words of the process
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
