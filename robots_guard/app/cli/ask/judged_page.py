"""A page judged by all that its site states, and what each integration does with it."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import (
    Phase,
    PhaseVerdict,
    ResponseHead,
    StatementsByPhase,
    judge_phases,
)
from robots_guard.decisions.verdict import Terms, Verdict
from robots_guard.protocol.html.page import Page, read_page
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Statement

_NOT_MODIFIED = 304


class GivenPage(NamedTuple):
    """A resource as it was given: its URL, what its policy states of it, its response."""

    url: str
    stated: tuple[Statement, ...]
    head: ResponseHead
    body: bytes | None  # None: the page was not given


class JudgedPage(NamedTuple):
    """A judged page. `links` are absolute URLs, each with whether it may be followed.

    `result` is that of Scrapy, which can use a page for its links only, and `in_proxy` that of the
    proxy, which cannot.
    """

    result: PhaseVerdict
    in_proxy: PhaseVerdict
    links: dict[str, bool]
    status: int

    @property
    def is_stated(self) -> bool:
        """Whether the site states anything that is to be recorded."""
        return bool(self.result.uses.evidence) or not all(self.links.values())

    @property
    def action(self) -> dict[str, str | None]:
        """What each integration does, and the phase in which something refuses.

        `pass`: nothing is stated. `annotate`: it is recorded, and the response passes. `stop`:
        Scrapy ends the download at the header fields (a 304 has nothing to download). `drop`: the
        request is not made, or its response not handed on.
        """
        phase = self.in_proxy.phase
        if phase is not None and self.in_proxy.verdict.reason is Reason.PAYMENT_REQUIRED:
            # The proxy's client answers a demand for payment.
            return {"scrapy": "drop", "proxy": "pass", "phase": phase.value}
        return {
            "scrapy": self._in_scrapy(),
            "proxy": self._passing() if phase is None else "drop",
            "phase": None if phase is None else phase.value,
        }

    def _in_scrapy(self) -> str:
        if self.result.phase is None:
            return self._passing()
        if self.result.phase is Phase.HEADERS and self.status != _NOT_MODIFIED:
            return "stop"
        return "drop"

    def _passing(self) -> str:
        return "annotate" if self.is_stated else "pass"


def judge_page(
    given: GivenPage, request: Verdict, agent: str, terms: Terms, now: float
) -> JudgedPage:
    """Judge a page for a crawler. `request` is the verdict on the request for it, and `now` is in
    seconds since 1970."""
    page = Page()
    if given.body is not None:
        page = read_page(given.body, given.head.content_type, given.url)
    head = given.head
    stated = StatementsByPhase(
        policy=given.stated,
        headers=header_statements(head.headers, head.status, given.url),
        page=page.statements,
    )
    result, in_proxy = (
        judge_phases(
            request,
            stated,
            head,
            agent,
            terms,
            now,
            is_incomplete=page.is_incomplete,
            can_use_links_only=can_use_links_only,
        )
        for can_use_links_only in (True, False)
    )
    links = {url: may and result.uses.may_follow for url, may in page.links.items()}
    return JudgedPage(result, in_proxy, links, head.status)
