"""Try a URL: the verdict under the policy that is stored now.

Invariant: nothing is fetched or recorded, and no turn is taken. If an integration would first have
to fetch the robots.txt, the page says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from robots_guard.app.console.listing import Listing, listing
from robots_guard.app.console.pages.origins import StoredPolicy, look_up
from robots_guard.app.console.sources import Sources
from robots_guard.audit.read.search import Search
from robots_guard.decisions import check
from robots_guard.decisions.component import Component
from robots_guard.decisions.explanation import Explanation, explain
from robots_guard.decisions.signal_settings import uses_in
from robots_guard.decisions.verdict import Question, Verdict, needs_no_policy
from robots_guard.protocol.dialect import dialect


class TryResult(NamedTuple):
    """The verdict on a URL. `verdict` is None if no policy is stored, and then there is no
    explanation; `stored` is None if the URL has no origin."""

    url: str
    agent: str
    verdict: Verdict | None
    stored: StoredPolicy | None = None
    why: Explanation | None = None
    listing: Listing | None = None


def recorded_purposes(search: Search) -> str:
    """Return the purposes that the crawler or proxy declared which started last; empty if it declared none."""
    found = search.rows(
        "SELECT settings->>'$.purposes' FROM records WHERE kind = 'start'"
        ' AND component NOT IN (?, ?) ORDER BY "at" DESC LIMIT 1',
        [Component.CLI.value, Component.CONSOLE.value],
    )
    return next((purposes for (purposes,) in found if purposes), "")


def try_url(
    sources: Sources, url: str, agent: str, dialect_name: str, purposes: str = ""
) -> TryResult:
    """Judge a URL for a crawler with these purposes, separated by commas. Raises SettingsError for an unknown dialect
    or purpose."""
    uses_in("purposes", purposes)
    read = check.read_url(url)
    if isinstance(read, Verdict):
        return TryResult(url, agent, read)
    origin, target = read
    (it,) = look_up(sources, origin)
    if dialect_name:
        it = it.in_dialect(dialect(dialect_name))
    it = it._replace(terms=msgspec.structs.replace(it.terms, purposes=purposes))
    question = Question(origin=origin, target=target, agent=agent)
    policy = check.applied_policy(origin, it.view.policy if it.view else None, it.terms)
    if policy is None:
        return TryResult(url, agent, needs_no_policy(question, it.terms), it)
    own = it.view.policy if it.view else policy
    verdict = check.judge_offline(question, it.terms, own, it.now)
    why = explain(question, verdict, policy, it.terms, it.now)
    line = verdict.rule.line if verdict.rule else None
    shown = listing(why.document.body, line) if why.document else None
    return TryResult(url, agent, verdict, it, why, shown)
