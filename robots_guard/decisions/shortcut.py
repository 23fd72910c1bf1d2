"""Shortcuts: the results of earlier checks, for later questions of one agent about one origin.

Most questions are about an origin whose policy is fresh. Their results then depend on nothing but
the rule that decides. A shortcut keeps the result of a check for each rule.
"""

from __future__ import annotations

import re

import msgspec

from robots_guard.decisions.check import Decided, Judging
from robots_guard.decisions.freshness import CLOCK_SKEW, lifetime
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Question, Terms, needs_no_policy
from robots_guard.protocol.directives import Pace
from robots_guard.protocol.ruleset import Ruleset, Ruling

#: Matches most targets that are well-formed and not /robots.txt, and no others. `needs_no_policy`
#: decides about the rest.
_is_ordinary = re.compile(r"/(?!robots\.txt\Z)[!-\[\]-~]{0,8191}").fullmatch
#: Results that a shortcut keeps: few crawlers meet more than so many rules of one site.
MOST_RESULTS = 32


class Shortcut(msgspec.Struct, frozen=True):
    """The results for one origin and one agent, by deciding rule.

    Invariant: `decide` returns what a check would return at that moment, or None. `shortcut_of`
    makes a shortcut only for a policy and terms whose results depend neither on the time nor, apart
    from its target, on the question. What may change is checked for each question:

    - The caller checks that the policy is still the one in memory (the same object): it may have
      been replaced or evicted.
    - The caller checks for pauses: the origin may have asked for one.
    - `decide` checks that the terms are the same object: the overrides file may have been reread,
      or an override may have expired.
    - `decide` checks the time as `Policy.freshness` does: the policy may no longer be fresh, or the
      clock may have been set back.

    Nothing else changes, so a result stays valid, also in a forked child.
    """

    policy: Policy
    terms: Terms
    rules: Ruleset | None
    fetched_at: float
    lifetime: float
    #: By the id of the ruling. The entry holds the ruling, so that no other can get the same id.
    results: dict[int, tuple[Ruling | None, Decided]] = {}

    def decide(self, question: Question, terms: Terms, now: float) -> Decided | None:
        """Return the result for a question of the agent about the origin, under the terms in force;
        None if the question must be checked."""
        is_fresh = -CLOCK_SKEW <= now - self.fetched_at < self.lifetime
        if not is_fresh or terms is not self.terms:
            return None
        if _is_ordinary(question.target) is None and needs_no_policy(question, terms) is not None:
            return None
        ruling = None
        if self.rules is not None:
            scheme, host, port = question.origin
            ruling = self.rules.judge(question.target, host, port, scheme)
        known = self.results.get(id(ruling))
        if known is None:
            judging = Judging(question, terms, self.policy, self.policy.document)
            known = ruling, judging.decide(self.rules, now)
            if len(self.results) >= MOST_RESULTS:
                self.results.clear()
            self.results[id(ruling)] = known
        return known[1]

    @property
    def size(self) -> int:
        """The approximate memory use in bytes of the policy and the rules."""
        return self.policy.size + (self.rules.size if self.rules is not None else 0)


def shortcut_of(judging: Judging, rules: Ruleset | None) -> Shortcut | None:
    """Return the shortcut for later questions like the one that is being judged; None if their
    results may depend on more than the rule that decides."""
    policy, terms = judging.policy, judging.terms
    if policy.trouble is not None or policy.document is None or policy.is_pinned:
        return None
    reads_statements = terms.purposes and terms.reads_signals
    if reads_statements or terms.action != "judge" or terms.on_disallowed == "defer":
        return None
    if rules is not None and _varies(rules.pace):
        return None
    seconds = lifetime(policy.document.stated_lifetime, terms.dialect)
    return Shortcut(policy, terms, rules, policy.document.fetched_at, seconds)


def _varies(pace: Pace | None) -> bool:
    """Whether what a site requires depends on the time of day."""
    if pace is None:
        return False
    return bool(pace.visits) or any(delay.window is not None for delay in pace.delays)
