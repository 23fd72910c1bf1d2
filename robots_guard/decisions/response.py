"""The verdict on a response: whether its statements permit the declared purposes.

The request has been permitted and made before. A refusal of the response means that its content is
not used: Scrapy does not hand it to the spider, and the proxy does not hand it to its client.

A statement can be enforced as soon as it is known: before the request, at the header fields, or
with the page. So the first phase whose statements refuse is the one in which an integration acts:
it makes no request, stops at the header fields, or does not hand on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.signal_settings import Use
from robots_guard.decisions.uses import Uses, UseState, read_uses, refusal_of, relaxation
from robots_guard.decisions.verdict import (
    Action,
    Terms,
    Verdict,
    judge_before_request,
    refused_by_signal,
)
from robots_guard.protocol.html.page import may_be_html
from robots_guard.protocol.signals.headers import LICENSE_STATUSES
from robots_guard.protocol.signals.statement import Statement

_NOT_MODIFIED = 304
_PAYMENT_REQUIRED = 402


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """The status and the header fields of a response.

    `headers` has a name and a value for each field line, in their order. `method` is that of the
    request.
    """

    status: int
    headers: Sequence[tuple[str, str]] = ()
    method: str = "GET"

    @property
    def has_content(self) -> bool:
        """Whether the response has content, or confirms stored content. The signals of other responses
        are recorded, but not enforced."""
        return 200 <= self.status < 300 or self.status == _NOT_MODIFIED

    @property
    def brings_content(self) -> bool:
        """Whether the response itself brings content, so that its silence about a purpose counts. A
        304 leaves what was stated before as it was (RFC 9111 section 4.3.4)."""
        return self.method != "HEAD" and self.status != _NOT_MODIFIED

    @property
    def content_type(self) -> str:
        """The values of all Content-Type lines: consumers disagree on which of several counts."""
        values = (value for name, value in self.headers if name.strip().lower() == "content-type")
        return ", ".join(values)

    @property
    def may_be_page(self) -> bool:
        """Whether the response may contain a page of HTML, as far as its fields say.

        Without a readable type, its content decides.
        """
        if self.method == "HEAD" or not 200 <= self.status < 300:
            return False
        return may_be_html(self.content_type)


def needs_page(head: ResponseHead, terms: Terms) -> bool:
    """Whether the page of a response must be read before it may be used.

    A page can deny every purpose, by META robots or by a reservation of text and data mining.
    """
    return terms.enforces_signals and head.may_be_page


def reads_page(head: ResponseHead, terms: Terms) -> bool:
    """Whether an integration reads the page of a response, to enforce or to record what it states.

    Reading costs more than all other judging, so that a page is not read only to be recorded,
    unless the operator has asked for that.
    """
    return (terms.enforces_signals or terms.signals == "record") and head.may_be_page


def judge_response(
    statements: Sequence[Statement],
    head: ResponseHead,
    agent: str,
    terms: Terms,
    now: float,
    *,
    is_final: bool = True,
    is_incomplete: bool = False,
    client_pays: bool = False,
    can_use_links_only: bool = False,
) -> Verdict:
    """Judge a response by everything that its site states about it.

    `is_final`: nothing more will be read, so a purpose that is unknown by now is decided by
    `on_unknown`. `is_incomplete`: part of the page could not be read. `client_pays`: the caller
    passes a demand for payment on to its client, which can answer it. `can_use_links_only`: the
    caller can use a page for its links and drop the rest.
    """
    uses = read_uses(statements, agent, terms, now, is_incomplete=is_incomplete)
    verdict = Verdict(action=Action.PASS, reason=Reason.ALLOWED, uses=uses)
    if terms.action == "pass":  # an exemption: recorded only
        return msgspec.structs.replace(verdict, reason=Reason.BYPASSED)
    if _asks_for_payment(head, uses):
        return _payment(verdict, terms, client_pays=client_pays)
    if not head.has_content:
        return verdict
    refusal = refusal_of(uses, terms, is_final=is_final and head.brings_content)
    if refusal is None:
        relaxed = relaxation(statements, agent, terms, now)
        return msgspec.structs.replace(verdict, relaxed=relaxed) if relaxed else verdict
    if not terms.enforces_signals:
        return msgspec.structs.replace(verdict, relaxed=f"signals={terms.signals}")
    if can_use_links_only and _is_for_links_only(uses, terms, is_final=is_final):
        return msgspec.structs.replace(
            verdict,
            is_follow_only=True,
            detail=refusal.detail,
            relaxed="noindex_action=follow-only",
        )
    return refused_by_signal(verdict, refusal, uses)


def _asks_for_payment(head: ResponseHead, uses: Uses) -> bool:
    if head.status == _PAYMENT_REQUIRED and uses.price is not None:
        return True
    needs_licence = any(each.statement.rule == "license-required" for each in uses.evidence)
    return needs_licence and head.status in LICENSE_STATUSES


def _payment(verdict: Verdict, terms: Terms, *, client_pays: bool) -> Verdict:
    price = verdict.uses.price if verdict.uses else None
    detail = f"price {price}" if price else "a licence is required"
    asked = msgspec.structs.replace(verdict, reason=Reason.PAYMENT_REQUIRED, detail=detail)
    if client_pays or terms.signals == "record":
        return asked
    return msgspec.structs.replace(asked, action=Action.DROP)


def _is_for_links_only(uses: Uses, terms: Terms, *, is_final: bool) -> bool:
    """Whether only `noindex` refuses the page, and its links may be followed and are wanted."""
    if terms.noindex_action != "follow-only" or uses.states[Use.FOLLOW] == "deny":
        return False
    denied = set(terms.declared) & set(uses.denied)
    rules = {each.statement.rule for each in uses.evidence if not denied.isdisjoint(each.denies)}
    return rules == {"noindex"} and not _is_refused_otherwise(uses, terms, is_final=is_final)


def _is_refused_otherwise(uses: Uses, terms: Terms, *, is_final: bool) -> bool:
    """Whether a page would be refused if the denied uses were permitted: by the level of use, or by
    silence about another purpose."""
    permitted = dict.fromkeys(uses.denied, UseState.ALLOW)
    evidence = tuple(msgspec.structs.replace(each, denies=()) for each in uses.evidence)
    others = msgspec.structs.replace(uses, states={**uses.states, **permitted}, evidence=evidence)
    return refusal_of(others, terms, is_final=is_final) is not None


Statements = tuple[Statement, ...]


class Phase(StrEnum):
    """When a refusal is first known."""

    REQUEST = "request"
    HEADERS = "headers"
    BODY = "body"


class StatementsByPhase(NamedTuple):
    """What a site states of a resource: in its policy (robots.txt and tdmrep.json), in the header
    fields of the response, and in the page."""

    policy: Statements = ()
    headers: Statements = ()
    page: Statements = ()


class PhaseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of the first phase that refuses, or of the last. `uses` has what all phases
    state, also those that an integration would not reach."""

    verdict: Verdict
    phase: Phase | None  # None if nothing refuses
    uses: Uses


def judge_phases(
    request: Verdict,
    stated: StatementsByPhase,
    head: ResponseHead,
    agent: str,
    terms: Terms,
    now: float,
    *,
    is_incomplete: bool = False,
    can_use_links_only: bool = False,
) -> PhaseVerdict:
    """Judge a resource in the order in which an integration learns of it.

    `request` is the verdict on the request, by the rules of robots.txt. `is_incomplete`: part of
    the page could not be read. `can_use_links_only` as in `judge_response`. `now` is in seconds
    since 1970.
    """
    known: Statements = sum(stated, ())
    uses = read_uses(known, agent, terms, now, is_incomplete=is_incomplete)
    if request.action is Action.PASS and not terms.reads_signals:
        return PhaseVerdict(verdict=request, phase=None, uses=uses)
    verdict = judge_before_request(request, stated.policy, agent, terms, now)
    if verdict.action is not Action.PASS:
        return PhaseVerdict(verdict=verdict, phase=Phase.REQUEST, uses=uses)
    has_page = needs_page(head, terms)
    at_headers = stated.policy + stated.headers
    verdict = judge_response(
        at_headers,
        head,
        agent,
        terms,
        now,
        is_final=not has_page,
        can_use_links_only=can_use_links_only,
    )
    if verdict.action is not Action.PASS:
        return PhaseVerdict(verdict=verdict, phase=Phase.HEADERS, uses=uses)
    verdict = judge_response(
        known,
        head,
        agent,
        terms,
        now,
        is_incomplete=is_incomplete,
        can_use_links_only=can_use_links_only,
    )
    phase = None if verdict.action is Action.PASS else Phase.BODY
    return PhaseVerdict(verdict=verdict, phase=phase, uses=uses)
