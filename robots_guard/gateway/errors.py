"""Refusals as exceptions, for the code that makes a request, and decisions as lines of a log.

    RobotsGuardError
      x RequestRefused         the guard refused a request or its response
          x RequestDisallowed  the request may not be made
          x RequestDeferred    the request may not be made yet
          x ResponseRefused    the response may not be used

An integration whose framework has error classes of its own derives from both.

Invariant: the message of an exception, and a line about a decision in the log of an integration, is
one line of printable text without secrets, and of bounded length, whatever a client or a site has
sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from robots_guard.audit.privacy import DEFAULT, Privacy, cut
from robots_guard.decisions.reasons import meaning_of
from robots_guard.decisions.verdict import Action, Decision, Exemption, RuleRef
from robots_guard.errors import RobotsGuardError
from robots_guard.text import printable

LONGEST_RULE = 200  # characters of a line of a robots.txt
LONGEST_DETAIL = 300  # characters of a detail


def log_line_of(decision: Decision, privacy: Privacy = DEFAULT) -> str:
    """The decision and its reason in one line."""
    question, verdict = decision.question, decision.verdict
    url = privacy.url(f"{question.origin}{question.target}")
    head = f"{verdict.action} ({verdict.reason}): {printable(question.method)} {url}"
    parts = [f"{head}: {_ground(decision, privacy)}"]
    if verdict.would is not None:
        parts.append(f"it would be a {verdict.would}, but {verdict.relaxed} lets it pass")
    if decision.override is not None:
        parts.append(printable(_describe_override(decision.override)))
    if decision.has_escaped:
        parts.append(_describe_escape(decision, privacy))
    if verdict.until is not None:
        parts.append(f"retry in {max(0.0, verdict.until - decision.at):.0f} s")
    agent = cut(printable(question.agent), LONGEST_RULE)
    return f"{'; '.join(parts)} [agent {agent}, id {decision.id}]"


def _ground(decision: Decision, privacy: Privacy) -> str:
    """What decides: a purpose that is refused, a line of a robots.txt, or the reason in words."""
    verdict = decision.verdict
    detail = None
    if verdict.detail:
        detail = cut(printable(privacy.text(verdict.detail)), LONGEST_DETAIL)
    if verdict.uses is not None and detail and verdict.action is not Action.PASS:
        return detail  # it begins with the purpose, and names the line if there is one
    if verdict.rule is not None:
        is_pinned = decision.policy is not None and decision.policy.is_pinned
        return _describe_rule(verdict.rule, "the pinned" if is_pinned else "its")
    return detail or meaning_of(verdict.reason).sentence.rstrip(".")


def _describe_rule(rule: RuleRef, whose: str) -> str:
    text, group = cut(rule.text, LONGEST_RULE), cut(rule.group, LONGEST_RULE)
    return f"line {rule.line} of {whose} robots.txt says {text!r}, group {group!r}"


def _describe_override(override: Exemption) -> str:
    return f"override {override.id} of {override.owner} ({override.reason})"


def _describe_escape(decision: Decision, privacy: Privacy) -> str:
    text = "the request had already reached the site"
    if decision.question.led_by:
        text += f", by way of {privacy.url(decision.question.led_by)}"
    return text


RETRY_AFTER = 60.0  # seconds to wait if the decision names no time


class RequestRefused(RobotsGuardError):
    """The guard refused a request or its response. `decision` is the whole decision: verdict,
    reason, rule and its line."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(log_line_of(decision))
        self.decision = decision

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Pickle the error by its decision: worker processes hand errors to their parents."""
        return type(self), (self.decision,)


class RequestDisallowed(RequestRefused):
    """The request may not be made."""


class RequestDeferred(RequestRefused):
    """The request may not be made yet, and would have to wait longer than `hold_max`."""

    @property
    def retry_after(self) -> float:
        """The seconds after the decision at which the request may be tried again."""
        until = self.decision.verdict.until
        if until is None:
            return RETRY_AFTER
        return max(0.0, until - self.decision.at)


class ResponseRefused(RequestRefused):
    """The response may not be used: its header fields, or in Scrapy also its page, deny a declared
    purpose."""


class RefusalClasses(NamedTuple):
    """The exceptions of one library for refusals, each derived from the guard's own."""

    disallowed: type[RequestDisallowed] = RequestDisallowed
    deferred: type[RequestDeferred] = RequestDeferred
    response_refused: type[ResponseRefused] = ResponseRefused

    def exception_for(self, decision: Decision) -> RequestRefused:
        """Return the exception for a decision that is no PASS."""
        if decision.response is not None:
            return self.response_refused(decision)
        if decision.verdict.action is Action.DEFER:
            return self.deferred(decision)
        return self.disallowed(decision)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise each refusal in the block as one of these classes."""
        try:
            yield
        except RequestRefused as refusal:
            if isinstance(refusal, tuple(self)):
                raise
            raise self.exception_for(refusal.decision) from None


def refusal_of(decision: Decision) -> RequestRefused:
    """Return the guard's own exception for a decision that is no PASS."""
    return RefusalClasses().exception_for(decision)
