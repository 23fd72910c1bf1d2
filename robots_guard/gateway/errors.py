"""Refusals as exceptions, for the code that makes a request.

    RobotsGuardError
      x RequestRefused         the guard refused a request or its response
          x RequestDisallowed  the request may not be made
          x RequestDeferred    the request may not be made yet
          x ResponseRefused    the response may not be used

An integration whose framework has error classes of its own derives from both.
"""

from __future__ import annotations

from typing import Any

from robots_guard.audit.log_line import log_line_of
from robots_guard.core.verdict import Action, Decision
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
    """The request may not be made yet, and would have to wait for longer than `hold_max`."""

    @property
    def retry_after(self) -> float:
        """The seconds after the decision at which the request may be tried again."""
        until = self.decision.verdict.until
        if until is None:
            return RETRY_AFTER
        return max(0.0, until - self.decision.at)


class ResponseRefused(RequestRefused):
    """The response may not be used: its site denies a declared purpose in its header fields."""


def refusal_of(decision: Decision) -> RequestRefused:
    """Return the exception for a decision that is no PASS."""
    if decision.response is not None:
        return ResponseRefused(decision)
    if decision.verdict.action is Action.DEFER:
        return RequestDeferred(decision)
    return RequestDisallowed(decision)
