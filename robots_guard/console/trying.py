"""Try a URL: the verdict by what is held now.

The law of this file: nothing is fetched, recorded or taken a turn for. What a door would fetch first is said.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from robots_guard.console.listing import Listing, listing
from robots_guard.console.origins import Held, held
from robots_guard.console.sources import Sources
from robots_guard.core import check
from robots_guard.core.access import Access
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Action, Question, Reason, Terms, Verdict, needs_no_policy
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.rep.dialect import DIALECTS, dialect
from robots_guard.rep.ruleset import Rule, Ruleset, compile_rules


class Other(NamedTuple):
    """What another dialect says."""

    dialect: str
    verdict: Verdict
    differs: bool


class Tried(NamedTuple):
    """The answer. `verdict` is None where nothing is held to judge by; `held` where the URL has no origin."""

    url: str
    agent: str
    verdict: Verdict | None
    held: Held | None = None
    listing: Listing | None = None
    matches: list[Rule] = []  # noqa: RUF012  a NamedTuple's default, never changed
    others: list[Other] = []  # noqa: RUF012  the same


def tried(sources: Sources, url: str, agent: str, dialect_name: str) -> Tried:
    """The answer for a URL. Raises SettingsError for a dialect that does not exist."""
    try:
        origin, target = split_url(url)
    except NotGoverned as error:
        return Tried(url, agent, Verdict(action=Action.PASS, reason=Reason.NOT_GOVERNED, detail=str(error)))
    except MalformedURL as error:
        return Tried(url, agent, Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=str(error)))
    (it,) = held(sources, origin)
    if dialect_name:
        it = it._replace(terms=msgspec.structs.replace(it.terms, dialect=dialect(dialect_name)))
    question = Question(origin=origin, target=target, agent=agent)
    verdict = _verdict(question, it.policy, it.terms, it.now)
    if verdict is None or it.policy is None:
        return Tried(url, agent, verdict, it)
    rules = _rules(it.policy, question, it.terms, it.now)
    return Tried(
        url=url,
        agent=agent,
        verdict=verdict,
        held=it,
        listing=listing(it.rules.body, verdict.rule.line if verdict.rule else None) if it.rules else None,
        matches=rules.matches(target) if rules else [],
        others=_others(question, it.policy, it, verdict),
    )


def _others(question: Question, policy: Policy, it: Held, verdict: Verdict) -> list[Other]:
    found = []
    for name, other in DIALECTS.items():
        if name != it.terms.dialect.name:
            said = _verdict(question, policy, msgspec.structs.replace(it.terms, dialect=other), it.now)
            assert said is not None
            found.append(Other(name, said, said.action is not verdict.action))
    return found


def _verdict(question: Question, policy: Policy | None, terms: Terms, now: float) -> Verdict | None:
    """By the policy held, whatever its age; None where one is needed and there is none."""
    if policy is None:
        return needs_no_policy(question, terms)
    return check.by_policy(question, terms, policy, lambda document: _compiled(document, question, terms), now)


def _rules(policy: Policy, question: Question, terms: Terms, now: float) -> Ruleset | None:
    access, document = policy.access(now, terms.dialect)
    if access is not Access.RULES or document is None:
        return None
    return _compiled(document, question, terms)


def _compiled(document: Document, question: Question, terms: Terms) -> Ruleset:
    return compile_rules(document.body, terms.dialect, question.agent, terms.matching.name)
