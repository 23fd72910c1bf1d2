"""Refusal forms: refusals that lack only what differs between requests that one rule refuses.

A crawler that ignores a rule is refused by it thousands of times. The page that says so is the same
each time but for the target of the request and the id of the decision, and to render it costs more
than to judge the request.

Invariant: a form gives the reply that `reply_to` gives (`gateway.refusal`). It is the reply to a
request with a secret word as its target and its id; target and id then replace that word, escaped
as the whole URL would be. What the reply depends on otherwise is the key of the form.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from cachetools import LRUCache
from markupsafe import escape

from robots_guard.core.verdict import Action, Decision
from robots_guard.gateway.refusal import MAX_URL, ProxyReply, prefers_html, reply_to
from robots_guard.invocation import BARE, Invocation

KEPT = 512  # forms, of about 4 KB each

_SECRET = secrets.token_hex(16)  # no robots.txt can contain it
_TARGET = f"/{_SECRET}"
_ID = f"0-{_SECRET}"
_GAPS = re.compile(f"({_TARGET}|{_ID})".encode())
_PLAIN_ID = re.compile(r"[0-9a-f]+-[0-9]+")  # an id that no escaping changes

Escape = Callable[[str], bytes]


class RefusalForm(NamedTuple):
    """A reply with gaps: the end of its first header field, and every second part of its body."""

    status: int
    first_field: tuple[str, str]  # up to the id
    headers: tuple[tuple[str, str], ...]  # all others
    body: Sequence[bytes]
    escape: Escape

    @classmethod
    def of(cls, reply: ProxyReply, escape: Escape) -> RefusalForm:
        """The form of the reply to a decision with `_TARGET` and `_ID`."""
        (name, value), *headers = reply.headers
        parts = _GAPS.split(reply.body)
        return cls(reply.status, (name, value.partition(_ID)[0]), tuple(headers), parts, escape)

    def fill(self, decision: Decision, method: str) -> ProxyReply:
        """The reply to a decision."""
        name, value = self.first_field
        headers = ((name, f'{value}{decision.id}"'), *self.headers)
        if method == "HEAD":
            return ProxyReply(self.status, headers, b"")
        question = decision.question
        target = self.escape(question.target[: MAX_URL - len(str(question.origin))])
        gaps = {_TARGET.encode(): target, _ID.encode(): decision.id.encode()}
        return ProxyReply(
            self.status, headers, b"".join([gaps.get(part, part) for part in self.body])
        )


class RefusalForms:
    """The replies of one proxy. `contact` and `invocation` are those of `reply_to`."""

    def __init__(self, contact: str = "", invocation: Invocation = BARE) -> None:
        self._compose = partial(reply_to, contact=contact, invocation=invocation)
        self._forms: LRUCache[object, RefusalForm] = LRUCache(KEPT)

    def reply_to(self, decision: Decision, method: str = "GET", accept: str = "") -> ProxyReply:
        """The reply to a request that is refused or deferred, or whose response is refused."""
        if not _has_form(decision):
            return self._compose(decision, method=method, accept=accept)
        is_html = prefers_html(accept)
        document = decision.policy.document if decision.policy else None
        fetched_at = None if document is None else int(document.fetched_at)
        question = decision.question
        key = (
            decision.verdict,
            question.origin,
            question.agent,
            decision.purposes,
            fetched_at,
            is_html,
        )
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._form(decision, accept, is_html=is_html)
        return form.fill(decision, method)

    def _form(self, decision: Decision, accept: str, *, is_html: bool) -> RefusalForm:
        question = msgspec.structs.replace(decision.question, target=_TARGET)
        blank = msgspec.structs.replace(decision, id=_ID, question=question)
        return RefusalForm.of(
            self._compose(blank, accept=accept), _escape_html if is_html else _escape_json
        )


def _has_form(decision: Decision) -> bool:
    """Whether a form can give the reply: it would differ in the seconds to wait of a deferral, and
    what signals state cannot be a key."""
    verdict = decision.verdict
    is_plain = decision.response is None and verdict.uses is None
    return is_plain and verdict.action is Action.DROP and bool(_PLAIN_ID.fullmatch(decision.id))


def _escape_html(text: str) -> bytes:
    return escape(text).encode()


def _escape_json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
