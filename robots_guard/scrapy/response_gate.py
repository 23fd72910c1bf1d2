"""The response gate: a page that was not judged before its request left is judged before its response is handed on.

Invariant: a response is handed on only if each URL that it is known to come from has a PASS. `reached` finds these
URLs. The request for a page that is refused here has reached the site already; its record says so (`escaped`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from robots_guard.core.verdict import Action, Decision
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.guard import Guard
from robots_guard.ports import Fetcher
from robots_guard.scrapy.deferral.gate import Gate
from robots_guard.scrapy.deferral.pacing import Pacing
from robots_guard.scrapy.errors import RobotsDeferred, RobotsDisallowed
from robots_guard.scrapy.questions import Questions
from robots_guard.scrapy.reached import Judged, is_from_cache, is_refused_by_proxy

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class ResponseGate:
    """Judges the URLs that the responses of one crawl come from. `note` logs and counts a refusal."""

    def __init__(
        self,
        *,
        guard: Guard,
        questions: Questions,
        fetcher_for: Callable[[Request], Fetcher],
        gate: Gate,
        pacing: Pacing,
        note: Callable[[Decision], None],
    ) -> None:
        self._guard = guard
        self._questions = questions
        self._fetcher_for = fetcher_for
        self._gate = gate
        self._pacing = pacing
        self._note = note
        self._judged = Judged()

    def begin(self, request: Request) -> None:
        """The request was judged, and is about to be sent."""
        self._judged.begin(request)

    async def admit(self, request: Request, response: Response, judged: str | None) -> None:
        """Judge the URLs that the response comes from and that were not judged yet. `judged` is the one that was judged
        before the request left; None if the request was not judged. Raises RobotsDisallowed or RobotsDeferred."""
        refusals = []
        for url in self._judged.missing(request, response, judged):
            decision = await self._decide(request, url, sent=_has_reached_site(response, url))
            if decision is not None and decision.verdict.action is not Action.PASS:
                self._note(decision)
                refusals.append(decision)
                continue
            self._judged.note_passed(request, url)
            if decision is not None and decision.question.sent:
                self._pacing.count(decision)
        for decision in refusals:
            if decision.verdict.action is Action.DROP:
                raise RobotsDisallowed(decision)
        if refusals:
            raise RobotsDeferred(refusals[0])

    async def _decide(self, request: Request, url: str, *, sent: bool) -> Decision | None:
        """The decision on a URL; None for what no robots.txt governs."""
        try:
            question = self._questions.question_of(url, request, sent=sent)
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
        with self._gate.standing_aside(request):  # its download is over, and the robots.txt may hang
            return await self._guard.check(question, fetcher)


def _has_reached_site(response: Response, url: str) -> bool:
    """Whether the request for a URL has reached its site. Those that led to the response have; the response itself may
    come from the cache, or be a refusal of the proxy."""
    if is_from_cache(response):
        return False
    return url != response.url or not is_refused_by_proxy(response)
