"""Shortcuts: ready results for the questions of one agent to one origin.

Most questions are asked of an origin whose policy is fresh, and their results depend on nothing but
the deciding rule. A shortcut keeps the result for each rule, as a check found it.
"""

from __future__ import annotations

import re

import msgspec

from robots_guard.core.check import Decided, Judging
from robots_guard.core.freshness import CLOCK_SKEW, lifetime
from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Question, Terms, needs_no_policy
from robots_guard.rep.pace import Pace
from robots_guard.rep.ruleset import Ruleset, Ruling

#: Whether a target is certainly well-formed and not /robots.txt. True of most.
_is_ordinary = re.compile(r"/(?!robots\.txt\Z)[!-\[\]-~]{0,8191}").fullmatch
#: Results that a shortcut keeps; few crawlers meet as many rules of one site.
MOST_RESULTS = 32


class Shortcut(msgspec.Struct, frozen=True):
    """The results for one origin and one agent, by deciding rule.

    Invariant: `decide` returns what a check would return at that moment, or None. The policy and
    the terms of a shortcut are such that no result depends on the time or on more of the question
    than its target (`shortcut_of`). What may change is compared at each question:

    - the policy in memory, by identity, by the caller: it may have been replaced or evicted
    - pauses, by the caller: the origin may have asked for one
    - the terms, by identity: the overrides file may have been reread, or an override have expired
    - the time, by the comparison of `freshness`: the policy may have ceased to be fresh, or the
      clock have been set back

    The rest never changes, and a result stays right, also in a forked child.
    """

    policy: Policy
    terms: Terms
    rules: Ruleset | None
    fetched_at: float
    lifetime: float
    #: By the id of the ruling, which must exist as long as the entry.
    results: dict[int, tuple[Ruling | None, Decided]] = {}

    def decide(self, question: Question, terms: Terms, now: float) -> Decided | None:
        """Return the result for a question of the agent to the origin, under the terms in force;
        None if it must be checked."""
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
            known = ruling, judging.next(self.rules, now)
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
    if policy.trouble is not None or policy.document is None:
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
