"""Judges what a site states in a response before the client gets any of it.

A response is refused by its header fields at once. If its page is read, to enforce or to record
what it states, the page is held until its beginning has been judged (`bodies`). A response that
passes is not changed, except for the field `Robots-Guard-Signals`.

Invariant: if signals are enforced, a response passes only after it has been judged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mitmproxy import http

from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.gateway.admission import Admission
from robots_guard.gateway.own_fields import OWN_FIELDS, SIGNALS, signals_field
from robots_guard.gateway.refusal import ProxyReply, not_ready
from robots_guard.mitmproxy.bodies import HELD_PAGES, SCAN_LIMIT, HeldPage, PageWindow
from robots_guard.mitmproxy.replies import Refusal
from robots_guard.mitmproxy.service import OpenGuard
from robots_guard.protocol.html.page import Page, read_page
from robots_guard.protocol.signals.headers import FIELDS

log = logging.getLogger("robots_guard")

_OWN = frozenset(name.lower().encode() for name in OWN_FIELDS)
_CONTENT = ("content-type", "content-encoding")
_SIGNALS = frozenset(name.encode() for name in FIELDS)
_SOUGHT = _SIGNALS | _OWN | {name.encode() for name in _CONTENT}
_PARTIAL = 206
Fields = list[tuple[bytes, bytes]]
_NO_VERDICT = "The guard could not reach a verdict on the response."


class ResponseReview:
    """Reviews the responses of one proxy.

    `reply_to` makes the refusal, from the decision, the request's method and its Accept field.
    `on_refusal` gets each flow whose response is refused.
    """

    def __init__(
        self,
        reply_to: Callable[[Decision, str, str], ProxyReply],
        on_refusal: Callable[[http.HTTPFlow, Decision], None],
    ) -> None:
        self._reply_to = reply_to
        self._on_refusal = on_refusal

    def begin(self, flow: http.HTTPFlow, opened: OpenGuard, decision_id: str) -> None:
        """Judge a response by its head, in the hook `responseheaders`: pass it, refuse it, or hold
        its page."""
        response = flow.response
        assert response is not None
        found = _sought_fields(response)
        if opened.settings.signals == "off" and not opened.settings.overrides:
            return
        refusal = self._safely(flow, lambda: self._begin(flow, opened, decision_id, found))
        if refusal is not None:
            flow.response = refusal

    def end(self, flow: http.HTTPFlow) -> None:
        """Remove the guard's fields from the trailers of a response, in the hook `response`."""
        trailers = flow.response.trailers if flow.response is not None else None
        if trailers is not None:
            _remove_own_fields(trailers)

    def _begin(
        self, flow: http.HTTPFlow, opened: OpenGuard, decision_id: str, found: Fields
    ) -> Refusal | None:
        admission = opened.admission
        head = _head(flow, found)
        page = None
        if admission.needs_page(decision_id, head):
            refusal = admission.judge_head(decision_id, head)
            if refusal is not None:
                return self._apply(flow, refusal)
            window = PageWindow(_encoding(head), SCAN_LIMIT)
            if not window.is_full:
                self._hold(flow, admission, decision_id, head, window)
                return None
            page = Page(is_incomplete=True)  # of an unknown coding
        return self._apply(flow, admission.judge_response(decision_id, head, page))

    def _hold(
        self,
        flow: http.HTTPFlow,
        admission: Admission,
        decision_id: str,
        head: ResponseHead,
        window: PageWindow,
    ) -> None:
        response = flow.response
        assert response is not None

        def judge() -> Refusal | None:
            is_whole = window.is_whole and head.status != _PARTIAL
            page = read_page(window.body, head.content_type, flow.request.url, is_whole=is_whole)
            return self._apply(flow, admission.judge_response(decision_id, head, page))

        HELD_PAGES[flow.id] = HeldPage(
            window, lambda: self._safely(flow, judge), response.stream, time.monotonic()
        )
        response.stream = False  # until the page has been judged

    def _apply(self, flow: http.HTTPFlow, decision: Decision | None) -> Refusal | None:
        """Return the refusal of a response; or None, with the field set, if it passes."""
        request, response = flow.request, flow.response
        assert response is not None
        if decision is None:
            return None
        if decision.verdict.action is not Action.PASS:
            self._on_refusal(flow, decision)
            accept = request.headers.get("accept", "")
            reply = self._reply_to(decision, request.method, accept)
            return Refusal.of(reply, request.method)
        uses = decision.verdict.uses
        if uses is not None and (value := signals_field(uses)):
            response.headers[SIGNALS] = value
        return None

    def _safely(self, flow: http.HTTPFlow, judge: Callable[[], Refusal | None]) -> Refusal | None:
        """Judge a response; refuse it if that fails."""
        try:
            return judge()
        except Exception:  # fail closed: an internal error must not open a response
            log.exception("robots_guard failed; the response is refused")
            reply = not_ready(_NO_VERDICT, method=flow.request.method)
            return Refusal.of(reply, flow.request.method)


def _sought_fields(response: http.Response) -> Fields:
    """The fields of a response that are read here. Those that only the guard sets are removed."""
    found = [each for each in response.data.headers.fields if each[0].lower() in _SOUGHT]
    if any(each[0].lower() in _OWN for each in found):
        _remove_own_fields(response.headers)
    return found


def _remove_own_fields(fields: http.Headers) -> None:
    """Remove the fields that only the guard sets."""
    for name in OWN_FIELDS:
        fields.pop(name, None)


def _head(flow: http.HTTPFlow, found: Fields) -> ResponseHead:
    assert flow.response is not None
    return ResponseHead(
        status=flow.response.data.status_code,
        headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in found],
        method=flow.request.data.method.decode("latin-1"),
    )


def _encoding(head: ResponseHead) -> str:
    values = (value for name, value in head.headers if name.lower() == "content-encoding")
    return ", ".join(values)
