"""Try a URL: the verdict under the policy that is stored now.

Invariant: nothing is fetched or recorded, and no turn is taken. If an integration would first have to fetch the
robots.txt, the page says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from robots_guard.console.listing import Listing, listing
from robots_guard.console.pages.origins import StoredPolicy, look_up
from robots_guard.console.sources import Sources
from robots_guard.core import check
from robots_guard.core.access import Access
from robots_guard.core.policy import Document, Policy
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Question, Terms, Verdict, needs_no_policy
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.rep.dialect import DIALECTS, dialect
from robots_guard.rep.ruleset import Rule, Ruleset, compile_rules


class OtherVerdict(NamedTuple):
    """The verdict of another dialect."""

    dialect: str
    verdict: Verdict
    differs: bool


class TryResult(NamedTuple):
    """The verdict on a URL. `verdict` is None if no policy is stored; `stored` is None if the URL has no origin."""

    url: str
    agent: str
    verdict: Verdict | None
    stored: StoredPolicy | None = None
    listing: Listing | None = None
    matches: list[Rule] = []  # noqa: RUF012  a NamedTuple's default, never modified
    others: list[OtherVerdict] = []  # noqa: RUF012  the same


def try_url(sources: Sources, url: str, agent: str, dialect_name: str) -> TryResult:
    """Judge a URL. Raises SettingsError for an unknown dialect."""
    try:
        origin, target = split_url(url)
    except NotGoverned as error:
        return TryResult(url, agent, Verdict(action=Action.PASS, reason=Reason.NOT_GOVERNED, detail=str(error)))
    except MalformedURL as error:
        return TryResult(url, agent, Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=str(error)))
    (it,) = look_up(sources, origin)
    if dialect_name:
        it = it._replace(terms=msgspec.structs.replace(it.terms, dialect=dialect(dialect_name)))
    question = Question(origin=origin, target=target, agent=agent)
    verdict = _verdict(question, it.policy, it.terms, it.now)
    if verdict is None or it.policy is None:
        return TryResult(url, agent, verdict, it)
    rules = _applicable_rules(it.policy, question, it.terms, it.now)
    return TryResult(
        url=url,
        agent=agent,
        verdict=verdict,
        stored=it,
        listing=listing(it.rules.body, verdict.rule.line if verdict.rule else None) if it.rules else None,
        matches=rules.matches(target) if rules else [],
        others=_other_verdicts(question, it.policy, it, verdict),
    )


def _other_verdicts(question: Question, policy: Policy, it: StoredPolicy, verdict: Verdict) -> list[OtherVerdict]:
    found = []
    for name, other in DIALECTS.items():
        if name != it.terms.dialect.name:
            other_verdict = _verdict(question, policy, msgspec.structs.replace(it.terms, dialect=other), it.now)
            assert other_verdict is not None
            found.append(OtherVerdict(name, other_verdict, other_verdict.action is not verdict.action))
    return found


def _verdict(question: Question, policy: Policy | None, terms: Terms, now: float) -> Verdict | None:
    """Return the verdict under a policy regardless of its age; None if a policy is needed and there is none."""
    if policy is None:
        return needs_no_policy(question, terms)
    return check.by_policy(question, terms, policy, lambda document: _compiled(document, question, terms), now)


def _applicable_rules(policy: Policy, question: Question, terms: Terms, now: float) -> Ruleset | None:
    access, document = policy.access(now, terms.dialect)
    if access is not Access.RULES or document is None:
        return None
    return _compiled(document, question, terms)


def _compiled(document: Document, question: Question, terms: Terms) -> Ruleset:
    return compile_rules(document.body, terms.dialect, question.agent, terms.matching.name)
