"""Permissions: the answers of `can_fetch`."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn

import msgspec

from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.decisions.verdict import Action, Decision, Verdict
from robots_guard.gateway.errors import log_line_of


class Permission(msgspec.Struct, frozen=True):
    """Whether a URL may be requested, and why.

    It is true only for a PASS. A deferral is false, as a drop is, because the request may not be
    made yet; `action` tells them apart. A PASS for a site that requires a delay between two requests
    is true, too: `delay` has the seconds, and `turn` of the guard waits for them.

    `decision` is the recorded decision; None for a URL that robots.txt does not govern.
    """

    url: str
    verdict: Verdict
    decision: Decision | None = None

    def __bool__(self) -> bool:
        """Whether the request may be made now."""
        return self.verdict.action is Action.PASS

    def __str__(self) -> str:
        """One line for a log, without secrets."""
        if self.decision is not None:
            return log_line_of(self.decision)
        return f"{self.action} ({self.reason}): {meaning_of(self.reason).sentence}"

    @property
    def action(self) -> Action:
        """PASS, DROP or DEFER."""
        return self.verdict.action

    @property
    def reason(self) -> Reason:
        """The reason for the action."""
        return self.verdict.reason

    @property
    def rule(self) -> str | None:
        """The line of the robots.txt that decides; None if none does."""
        rule = self.verdict.rule
        return None if rule is None else rule.text

    @property
    def line(self) -> int | None:
        """The number of that line."""
        rule = self.verdict.rule
        return None if rule is None else rule.line

    @property
    def until(self) -> float | None:
        """When to ask again after a deferral, in seconds since 1970."""
        return self.verdict.until

    @property
    def wait(self) -> float | None:
        """The seconds from the decision to `until`; None unless it is a deferral."""
        if self.verdict.until is None or self.decision is None:
            return None
        return max(0.0, self.verdict.until - self.decision.at)

    @property
    def delay(self) -> float | None:
        """The seconds that the site or the operator requires between two requests; None if neither
        does."""
        delay = self.verdict.delay
        return None if delay is None else delay.seconds


class PendingPermission(Coroutine[Any, Any, Permission]):
    """A permission to be awaited. It has no truth value, because `if guard.can_fetch(url)`, without
    `await`, would always be true."""

    def __init__(self, work: Coroutine[Any, Any, Permission]) -> None:
        self._work = work

    def __bool__(self) -> NoReturn:
        """Raise TypeError."""
        self._work.close()
        raise TypeError("can_fetch has to be awaited: write `if await guard.can_fetch(url)`")

    def __await__(self) -> Generator[Any, Any, Permission]:
        """Wait for the permission."""
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._work.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        """Raise an exception in the coroutine."""
        if value is None and trace is None:
            return self._work.throw(kind)
        return self._work.throw(kind, value, trace)

    def close(self) -> None:
        """End the coroutine."""
        self._work.close()
