"""The guard of a program that runs asyncio, and the permissions with which `can_fetch` answers."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote

import msgspec

from robots_guard.client.gate import Gate, Passage, open_gate
from robots_guard.decisions.check import read_url
from robots_guard.decisions.component import Component
from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.decisions.verdict import Action, Decision, Question, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.errors import log_line_of
from robots_guard.origin import UNREADABLE, objection, wire_text


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


def open(agent: str | None = None, *, config: str | None = None, **settings: Any) -> AsyncGuard:  # noqa: A001  called as robots_guard.open
    """Open a guard for a program that runs asyncio.

    `agent` is the crawler's product token. `config` names a configuration file to read instead of
    those that are found, and `settings` are settings by name, which win over the configuration
    (docs/settings.md). Raises SettingsError.

    >>> async def ask(url):
    ...     async with robots_guard.open("mybot") as guard:
    ...         permission = await guard.can_fetch(url)
    ...         return bool(permission), permission.rule, permission.line
    >>> asyncio.run(ask(site + "/private/x"))
    (False, 'Disallow: /private/', 2)
    """
    return AsyncGuard(open_gate(Component.PYTHON, agent, config, settings))


class AsyncGuard:
    """Answers for one program whether URLs may be requested. `open` makes it; it is closed at the
    end of its `async with` block, or by `aclose`."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        # for a program that ends without closing it
        self._finalizer = weakref.finalize(self, gate.close_guard)

    def can_fetch(self, url: str, *, method: str = "GET") -> PendingPermission:
        """Return, when awaited, whether a URL may be requested now.

        The site's robots.txt is fetched if necessary; that takes at most `fetch_timeout`
        seconds and a sixth of it. No turn is taken: for the request itself, `turn` asks and waits.
        """
        return PendingPermission(answer(self.gate, url, method))

    async def admit(self, url: str, *, method: str = "GET") -> Passage:
        """Admit a request that is sent at once: wait for the origin's turn, for at most `hold_max`
        seconds.

        Raises RequestDisallowed, RequestDeferred, or NotGoverned for a URL without a robots.txt.
        """
        return await admit(self.gate, url, method)

    @contextlib.asynccontextmanager
    async def turn(self, url: str, *, method: str = "GET") -> AsyncIterator[Passage]:
        """Admit a request, which is sent in the block, and count its response from the block's end.

        Raises as `admit` does.

        >>> async def visit(url):
        ...     async with robots_guard.open("mybot") as guard, guard.turn(url) as passage:
        ...         status, retry_after = 200, ""  # of your HTTP client
        ...         await passage.respond(status, retry_after)
        ...     return passage.decision.verdict.reason.value
        >>> asyncio.run(visit(site + "/open"))
        'allowed'
        """
        passage = await self.admit(url, method=method)
        await passage.use()
        try:
            yield passage
        finally:
            await passage.end()

    async def aclose(self) -> None:
        """Close the guard. Requests that wait for their turn end with ClosedGuard."""
        self._finalizer.detach()
        await self.gate.close()

    async def __aenter__(self) -> Self:
        """Return the guard."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the guard."""
        await self.aclose()

    def __enter__(self) -> NoReturn:
        """Raise TypeError: this guard needs an event loop."""
        raise TypeError("write `async with robots_guard.open(...)`, or use robots_guard.open_sync")

    def __exit__(self, *error: object) -> None:
        """Do nothing: `__enter__` has raised."""


async def answer(gate: Gate, url: str, method: str) -> Permission:
    """Return the permission for a URL."""
    asked = question_of(url, gate.settings.agent, method)
    if isinstance(asked, Verdict):
        return Permission(url, asked)
    decision = await gate.ask(*asked)
    question = decision.question
    # The target has bytes as Latin-1 characters; a client would encode these again.
    target = quote(question.target.encode("latin-1", "replace"), safe=_ASCII)
    return Permission(f"{question.origin}{target}", decision.verdict, decision)


_ASCII = "".join(map(chr, range(0x21, 0x7F)))


async def admit(gate: Gate, url: str, method: str) -> Passage:
    """Admit the request for a URL. Raises RequestRefused or NotGoverned."""
    asked = question_of(url, gate.settings.agent, method)
    if isinstance(asked, Verdict):
        raise NotGoverned(asked.detail)
    return await gate.admit(*asked)


Asked = tuple[Question, Verdict | None]


def question_of(url: str, agent: str, method: str = "GET") -> Asked | Verdict:
    """Return the question about a URL, with the verdict if it is malformed; or only a verdict if no
    robots.txt governs it, in which case there is nothing to ask."""
    fault = objection(url)
    if fault is not None:
        return _malformed(url, agent, method, fault)
    read = read_url(url)
    if not isinstance(read, Verdict):
        origin, target = read
        return Question(origin=origin, target=target, agent=agent, method=method), None
    if read.reason is Reason.NOT_GOVERNED:
        return read
    return _malformed(url, agent, method, read.detail or "")


def _malformed(url: str, agent: str, method: str, fault: str) -> Asked:
    """The refusal of a URL without an origin. It is recorded without userinfo, because it is
    unclear where a password in it ends."""
    shown = url.rpartition("@")[2]
    if "@" in url:
        fault = "a malformed URL with userinfo"
    try:
        target = wire_text(f"/{shown}")
    except MalformedURL:
        target = "/"
    question = Question(origin=UNREADABLE, target=target, agent=agent, method=method)
    return question, Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=fault)
