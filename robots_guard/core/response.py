"""The verdict on a response: what its header fields and its page state, against the purposes.

The request for it has been permitted and made. A refusal here means that the content is not used:
Scrapy does not hand it to the spider, and the proxy does not hand it to its client.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from robots_guard.core.reasons import Reason
from robots_guard.core.signal_settings import Use
from robots_guard.core.uses import Uses, read_uses, refusal_of
from robots_guard.core.verdict import Action, Terms, Verdict, refused_by_signal
from robots_guard.rep.html.page import HTML, XHTML, media_types
from robots_guard.rep.signals.statement import Statement

#: The statuses of responses with content that could be used. What others state is only recorded.
_NOT_MODIFIED = 304
_PAYMENT_REQUIRED = 402
_ASKS_FOR_LICENCE = (401, 402, 403, 503)
_HTML = frozenset((HTML, XHTML))


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """The status and the header fields of a response. Field lines of one name stay apart, in their
    order. `method` is the request's."""

    status: int
    headers: Sequence[tuple[str, str]] = ()
    method: str = "GET"

    @property
    def has_content(self) -> bool:
        """Whether the response has content of its resource, so that its signals are enforced."""
        return 200 <= self.status < 300 or self.status == _NOT_MODIFIED

    @property
    def brings_content(self) -> bool:
        """Whether the response itself brings content, so that its silence about a purpose counts. A
        304 leaves what was stated before as it was (RFC 9111 section 4.3.4)."""
        return self.method != "HEAD" and self.status != _NOT_MODIFIED

    @property
    def content_type(self) -> str:
        """The values of Content-Type, joined if there are several, because a client can take any."""
        values = [value for name, value in self.headers if name.lower() == "content-type"]
        return ", ".join(values)

    @property
    def may_be_page(self) -> bool:
        """Whether the response may contain a page of HTML, as far as its fields say.

        Without a readable type, its content decides.
        """
        if self.method == "HEAD" or not 200 <= self.status < 300:
            return False
        types = media_types(self.content_type)
        return not types or not _HTML.isdisjoint(types)


def needs_page(head: ResponseHead, terms: Terms) -> bool:
    """Whether the page of a response must be read before it may be used.

    Every purpose can be denied by a page: by META robots, or by its reservation of text and data
    mining.
    """
    return terms.enforces_signals and head.may_be_page


def reads_page(head: ResponseHead, terms: Terms) -> bool:
    """Whether an integration that has the whole page reads it.

    Reading costs more than all other judging, so that a page is not read only to be recorded,
    unless the operator has asked for that.
    """
    return (terms.enforces_signals or terms.signals == "record") and head.may_be_page


def judge_response(
    statements: Sequence[Statement],
    head: ResponseHead,
    agent: str,
    terms: Terms,
    now: float,
    *,
    is_complete: bool = True,
    is_incomplete: bool = False,
    pays: bool = False,
) -> Verdict:
    """Judge a response by all that its site states about it.

    `is_complete`: nothing more will be read, so that silence counts as `on_unknown` says.
    `is_incomplete`: part of the page could not be read. `pays`: the caller hands a demand for
    payment on, because it is its client's to answer.
    """
    uses = read_uses(statements, agent, terms, now, is_incomplete=is_incomplete)
    verdict = Verdict(action=Action.PASS, reason=Reason.ALLOWED, uses=uses)
    if terms.action == "pass":  # an exemption: recorded only
        return msgspec.structs.replace(verdict, reason=Reason.BYPASSED)
    if _asks_for_payment(head, uses):
        return _payment(verdict, terms, pays=pays)
    if not head.has_content:
        return verdict
    refusal = refusal_of(uses, terms, is_complete=is_complete and head.brings_content)
    if refusal is None:
        return verdict
    if not terms.enforces_signals:
        return msgspec.structs.replace(verdict, relaxed=f"signals={terms.signals}")
    if terms.noindex_action == "follow-only" and _is_for_links_only(uses, terms):
        return msgspec.structs.replace(verdict, is_follow_only=True, detail=refusal.detail)
    return refused_by_signal(verdict, refusal, uses)


def _asks_for_payment(head: ResponseHead, uses: Uses) -> bool:
    if head.status == _PAYMENT_REQUIRED and uses.price is not None:
        return True
    needs_licence = any(each.statement.rule == "license-required" for each in uses.evidence)
    return needs_licence and head.status in _ASKS_FOR_LICENCE


def _payment(verdict: Verdict, terms: Terms, *, pays: bool) -> Verdict:
    price = verdict.uses.price if verdict.uses else None
    detail = f"price {price}" if price else "a licence is required"
    asked = msgspec.structs.replace(verdict, reason=Reason.PAYMENT_REQUIRED, detail=detail)
    if pays or terms.signals == "record":
        return asked
    return msgspec.structs.replace(asked, action=Action.DROP)


def _is_for_links_only(uses: Uses, terms: Terms) -> bool:
    """Whether `noindex` alone refuses the page, so that its links may still be used."""
    if uses.states[Use.FOLLOW] == "deny":
        return False
    denied = set(terms.declared) & set(uses.denied)
    rules = {each.statement.rule for each in uses.evidence if not denied.isdisjoint(each.denies)}
    return rules == {"noindex"}
