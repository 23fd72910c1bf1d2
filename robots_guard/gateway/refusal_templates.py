"""Refusal templates: replies to requests that one rule refuses, without the target and the id.

A crawler that ignores a rule is refused thousands of times. The reply is the same each time, except
for the target of the request and the id of the decision, and rendering its page takes longer than
judging the request. Therefore a reply is rendered once for each rule and kept as a template.

Invariant: a template results in the reply that `reply_to` of `gateway.refusal` returns. A template
is the reply to a request whose target and decision id contain a secret word as placeholders. The
real target and id then replace them, escaped as `reply_to` escapes them. Everything else on which a
reply depends is in the key of the template; a decision with more than that has no template.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from cachetools import LRUCache
from markupsafe import escape

from robots_guard.decisions.verdict import Action, Decision
from robots_guard.gateway.refusal import MAX_URL, ProxyReply, prefers_html, reply_to
from robots_guard.invocation import BARE, Invocation

KEPT = 512  # templates, of about 4 KB each

_SECRET = secrets.token_hex(16)  # no robots.txt can contain it
_TARGET = f"/{_SECRET}"
_ID = f"0-{_SECRET}"
_PLACEHOLDERS = re.compile(f"({_TARGET}|{_ID})".encode())
_PLAIN_ID = re.compile(r"[0-9a-f]+-[0-9]+")  # an id that no escaping changes

Escape = Callable[[str], bytes]


class RefusalTemplate(NamedTuple):
    """A reply whose first header field ends where the id belongs. Every second part of its body is a
    placeholder."""

    status: int
    first_field: tuple[str, str]  # up to the id, after which only a quotation mark follows
    headers: tuple[tuple[str, str], ...]  # without the first
    body: Sequence[bytes]
    escape: Escape

    @classmethod
    def of(cls, reply: ProxyReply, escape: Escape) -> RefusalTemplate:
        """The template of a reply to a decision with `_TARGET` and `_ID`."""
        (name, value), *headers = reply.headers
        parts = _PLACEHOLDERS.split(reply.body)
        return cls(reply.status, (name, value.partition(_ID)[0]), tuple(headers), parts, escape)

    def fill(self, decision: Decision, method: str) -> ProxyReply:
        """The reply to a decision on a request with this method."""
        name, value = self.first_field
        headers = ((name, f'{value}{decision.id}"'), *self.headers)
        if method == "HEAD":
            return ProxyReply(self.status, headers, b"")
        question = decision.question
        target = self.escape(question.target[: MAX_URL - len(str(question.origin))])
        values = {_TARGET.encode(): target, _ID.encode(): decision.id.encode()}
        body = b"".join([values.get(part, part) for part in self.body])
        return ProxyReply(self.status, headers, body)


class RefusalTemplates:
    """The templates of one proxy's replies. `contact` and `invocation` are those of `reply_to`."""

    def __init__(self, contact: str = "", invocation: Invocation = BARE) -> None:
        self._compose = partial(reply_to, contact=contact, invocation=invocation)
        self._templates: LRUCache[Hashable, RefusalTemplate] = LRUCache(KEPT)

    def reply_to(self, decision: Decision, method: str = "GET", accept: str = "") -> ProxyReply:
        """The reply to a request that is refused or deferred, or whose response is refused. It is
        made from a template if there can be one."""
        if not _has_template(decision):
            return self._compose(decision, method=method, accept=accept)
        is_html = prefers_html(accept)
        key = _key_of(decision, is_html=is_html)
        template = self._templates.get(key)
        if template is None:
            template = self._template(decision, accept, is_html=is_html)
            self._templates[key] = template
        return template.fill(decision, method)

    def _template(self, decision: Decision, accept: str, *, is_html: bool) -> RefusalTemplate:
        question = msgspec.structs.replace(decision.question, target=_TARGET)
        blank = msgspec.structs.replace(decision, id=_ID, question=question)
        reply = self._compose(blank, accept=accept)
        return RefusalTemplate.of(reply, _escape_html if is_html else _escape_json)


def _has_template(decision: Decision) -> bool:
    """Whether the reply can be made from a template. The reply to a deferral cannot, because it also
    has the seconds to wait; nor can a reply that says what signals state, which is not in the key. A
    placeholder needs none."""
    verdict = decision.verdict
    is_plain = decision.response is None and verdict.uses is None
    is_plain = is_plain and decision.question.subresource is None
    return is_plain and verdict.action is Action.DROP and bool(_PLAIN_ID.fullmatch(decision.id))


def _key_of(decision: Decision, *, is_html: bool) -> Hashable:
    """Everything on which the reply depends, except for the target and the id."""
    question, policy = decision.question, decision.policy
    fetched_at = None
    is_pinned = policy is not None and policy.is_pinned
    if policy is not None and policy.document is not None:
        fetched_at = int(policy.document.fetched_at)  # the page shows whole seconds
    return (
        decision.verdict,
        question.origin,
        question.agent,
        decision.purposes,
        fetched_at,
        is_pinned,
        is_html,
    )


def _escape_html(text: str) -> bytes:
    return escape(text).encode()


def _escape_json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
