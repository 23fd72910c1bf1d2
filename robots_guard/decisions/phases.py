"""Phases: before the request, at the header fields, and with the page.

A statement can be enforced as soon as it is known. So the first phase whose statements refuse is
the one in which an integration acts: it makes no request, stops at the header fields, or does not
hand on the page.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from robots_guard.decisions.response import ResponseHead, judge_response, needs_page
from robots_guard.decisions.uses import Uses, read_uses
from robots_guard.decisions.verdict import Action, Terms, Verdict, judge_before_request
from robots_guard.protocol.signals.statement import Statement

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
