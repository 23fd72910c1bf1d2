"""Refusals as exceptions, for the code that makes a request.

    RobotsGuardError
      x RequestRefused         the guard refused a request or its response
          x RequestDisallowed  the request may not be made
          x RequestDeferred    the request may not be made yet
          x ResponseRefused    the response may not be used

An integration whose framework has error classes of its own derives from both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from robots_guard.audit.log_line import log_line_of
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.errors import RobotsGuardError

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
