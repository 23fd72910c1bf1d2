"""The response gate: it judges the URLs of a response that were not judged before the request was
sent.

Invariant: a response is handed on only if each URL that it is known to come from has a PASS.
`reached_urls` finds these URLs. The request for a page that is refused here has reached the site
already; its record says so (`escaped`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from robots_guard.decisions.verdict import Action, Decision
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.guard.guard import Guard
from robots_guard.ports import Fetcher
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.errors import RobotsDeferred, RobotsDisallowed
from robots_guard.scrapy.questions import Questions
from robots_guard.scrapy.reached_urls import Judged, is_from_cache, is_refused_by_proxy

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class ResponseGate:
    """Judges the URLs that the responses of one crawl come from.

    `report` logs and counts a refusal.
    """

    def __init__(
        self,
        *,
        guard: Guard,
        questions: Questions,
        fetcher_for: Callable[[Request], Fetcher],
        gate: OriginGate,
        pacing: Pacing,
        report: Callable[[Decision], None],
    ) -> None:
        self._guard = guard
        self._questions = questions
        self._fetcher_for = fetcher_for
        self._gate = gate
        self._pacing = pacing
        self._report = report
        self._judged = Judged()

    @property
    def keeps_any(self) -> bool:
        """Whether something of an earlier download is kept."""
        return self._judged.keeps_any

    def begin(self, request: Request) -> None:
        """Record that the request was judged and is about to be sent."""
        self._judged.begin(request)

    async def admit(self, request: Request, response: Response, judged: str | None) -> None:
        """Judge the URLs of the response that have not been judged yet.

        `judged` is the URL that was judged before the request was sent; None if the request was not
        judged. Raises RobotsDisallowed or RobotsDeferred.
        """
        refusals = []
        for url in self._judged.missing(request, response, judged):
            decision = await self._decide(request, url, sent=_has_reached_site(response, url))
            if decision is not None and decision.verdict.action is not Action.PASS:
                self._report(decision)
                refusals.append(decision)
                continue
            self._judged.note_passed(request, url)
            if decision is not None and decision.question.sent:
                self._pacing.count_visit(decision)
        for decision in refusals:
            if decision.verdict.action is Action.DROP:
                raise RobotsDisallowed(decision)
        if refusals:
            raise RobotsDeferred(refusals[0])

    async def _decide(self, request: Request, url: str, *, sent: bool) -> Decision | None:
        """The decision on a URL; None if no robots.txt governs it."""
        try:
            question = self._questions.reached_question(url, request, sent=sent)
        except NotGoverned:
            return None
        except MalformedURL as error:
            return self._guard.decide(*self._questions.malformed(request, url, error, sent=sent))
        exempt = self._questions.exemption(request, url)
        if exempt is not None:
            return self._guard.decide(question, exempt)
        fetcher = self._fetcher_for(request)
        decision = self._guard.peek(question, fetcher)
        if decision is not None:
            return decision
        # The download is over, but the fetch of robots.txt may hang.
        with self._gate.outside_concurrency_limit(request):
            return await self._guard.check(question, fetcher)


def _has_reached_site(response: Response, url: str) -> bool:
    """Whether the request for a URL has reached its site.

    Redirecting URLs have; the response itself may come from the cache, or be a refusal by the
    proxy.
    """
    if is_from_cache(response):
        return False
    return url != response.url or not is_refused_by_proxy(response)
