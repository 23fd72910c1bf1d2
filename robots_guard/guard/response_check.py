"""Checks of responses: the statements of a response are judged together with those of its origin's
policy.

A check never waits. Its policy is that of the decision on the request, or the one in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from robots_guard.decisions.check import applied_policy
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.response import ResponseHead, judge_response, reads_page
from robots_guard.decisions.verdict import (
    Decision,
    Question,
    ResponseRef,
    Terms,
    Verdict,
    policy_statements,
)
from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.options import GuardOptions
from robots_guard.guard.overrides import OverridesFile
from robots_guard.guard.recorder import INTERNAL_ERROR, Recorder, refuse_after_error
from robots_guard.guard.rules import RulesCache
from robots_guard.origin import ROBOTS_TXT
from robots_guard.ports import Clocks
from robots_guard.protocol.html.page import Page
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Statement


class ResponseCheck:
    """Judges the responses to the requests of one guard."""

    def __init__(
        self,
        options: GuardOptions,
        *,
        overrides: OverridesFile,
        cache: PolicyCache,
        rules: RulesCache,
        recorder: Recorder,
        clocks: Clocks,
    ) -> None:
        self._options = options
        self._overrides = overrides
        self._cache = cache
        self._rules = rules
        self._recorder = recorder
        self._clocks = clocks

    def needs_page(self, question: Question, head: ResponseHead) -> bool:
        """Whether the page of a response is read before the response is handed on."""
        return reads_page(head, self._overrides.terms(question.origin))

    def is_policy_silent(self, question: Question, policy: Policy | None) -> bool:
        """Whether the policy of a site certainly states nothing about a target: a fast check,
        because it nearly always does not."""
        try:
            terms = self._overrides.terms(question.origin)
            return not self._policy_statements(question, policy, terms)
        except Exception:  # noqa: BLE001  `judge` meets the error again and handles it
            return False

    def judge(
        self,
        question: Question,
        head: ResponseHead,
        page: Page | None = None,
        *,
        policy: Policy | None = None,
        is_final: bool = True,
        client_pays: bool = False,
        can_use_links_only: bool = False,
    ) -> Verdict | None:
        """Return the verdict on a response; None if nothing is stated, nothing refused, and all of
        the page was read.

        Nothing is recorded. `is_final` and `client_pays` are those of `judge_response`. If an
        internal error occurs, the response is refused if signals are enforced.
        """
        terms = self._overrides.terms(question.origin)
        if not terms.reads_signals or _is_robots_txt(question, terms):
            return None
        try:
            statements = self._statements(question, head, page, policy, terms)
            is_incomplete = page is not None and page.is_incomplete
            if not statements and not is_incomplete and not (is_final and _counts_silence(terms)):
                return None
            verdict = judge_response(
                statements,
                head,
                question.agent,
                terms,
                self._clocks.now(),
                is_final=is_final,
                is_incomplete=is_incomplete,
                client_pays=client_pays,
                can_use_links_only=can_use_links_only,
            )
        except Exception:  # noqa: BLE001  fail closed: an internal error must not open a page
            refuse_after_error()
            if not terms.enforces_signals:
                return None
            verdict = INTERNAL_ERROR
        if _says_nothing(verdict):
            return None
        return self._options.apply_report_only(verdict)

    def record(
        self, question: Question, head: ResponseHead, verdict: Verdict, request: str = ""
    ) -> Decision:
        """Record a verdict on a response, and return the decision that is to be enforced.

        `request` is the id of the decision on the request.
        """
        terms = self._overrides.terms(question.origin)
        response = ResponseRef(status=head.status, request=request)
        return self._recorder.issue_response(question, verdict, terms, response)

    def _statements(
        self,
        question: Question,
        head: ResponseHead,
        page: Page | None,
        policy: Policy | None,
        terms: Terms,
    ) -> Sequence[Statement]:
        url = f"{question.origin}{question.target}"
        stated = header_statements(head.headers, head.status, url)
        if page is not None:
            stated += page.statements
        return self._policy_statements(question, policy, terms) + stated

    def _policy_statements(
        self, question: Question, policy: Policy | None, terms: Terms
    ) -> tuple[Statement, ...]:
        """The statements of the policy. The request was already judged by them, so if the policy is
        no longer in memory, only evidence is missing."""
        if terms.action == "pass":
            return ()
        own = policy or self._cache.get_local(question.origin)
        policy = applied_policy(question.origin, own, terms)
        if policy is None:
            return ()
        document = policy.access(self._clocks.now(), terms.dialect)[1]
        rules = None
        if document is not None and document.body:
            rules = self._rules.get(document, question.agent, terms)
        return policy_statements(question.target, policy, rules)


def _says_nothing(verdict: Verdict) -> bool:
    uses = verdict.uses
    if uses is None or verdict.action != "pass":
        return False
    return not uses.evidence and not uses.is_incomplete


def _is_robots_txt(question: Question, terms: Terms) -> bool:
    """Whether the response is a robots.txt, which is read to obey it, and not used as content."""
    return question.target == ROBOTS_TXT and terms.dialect.exempts_robots_txt


def _counts_silence(terms: Terms) -> bool:
    return terms.on_unknown == "deny" and terms.enforces_signals
