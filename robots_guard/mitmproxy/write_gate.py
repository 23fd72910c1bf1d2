"""The write gate: the last check of a request, at the moment mitmproxy turns it into bytes.

Invariant: a request that is written has a live permit, is still the request that was judged, and
goes to the address it was judged for. A change by another addon, an intercepted flow or a
background task since the last hook is found here: nothing of such a request is sent, its client
gets an error, and the audit log gets a record. A request that lost its turn since gets the response
to the refusal that is already in the audit log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mitmproxy import connection, ctx, http
from mitmproxy.addons.upstream_auth import parse_upstream_auth
from mitmproxy.proxy import mode_specs

from robots_guard.decisions.verdict import Decision
from robots_guard.mitmproxy.patches.write_check import NotApproved
from robots_guard.mitmproxy.permits import PassedFlow, Permits, destination_of
from robots_guard.mitmproxy.wire import (
    body_length,
    declared_length,
    http1_request,
    http2_request,
)

log = logging.getLogger("robots_guard")

Record = Callable[[http.Request, connection.Client, str], Decision]
Refuse = Callable[[http.Request, str], http.Response | None]

_UNJUDGED = "there is no verdict that lets this request pass"
_CHANGED = "the request was changed after its verdict"
_ELSEWHERE = "the connection does not lead where the verdict points"
_TOO_LATE = "its turn expired while it waited: send the request again"


class WriteGate:
    """Approves requests by their permits.

    `record` writes a refusal to the audit log; it may raise any exception. `mark_sent` counts the
    turn of a decision from now, and returns whether its request may be sent. `refuse` returns the
    response to a request whose decision, which has this id, has been replaced by a recorded
    refusal since; None if it still permits the request.
    """

    def __init__(
        self,
        permits: Permits,
        record: Record,
        mark_sent: Callable[[str], bool],
        refuse: Refuse = lambda request, decision_id: None,  # noqa: ARG005  (its signature)
    ) -> None:
        self._permits = permits
        self._record = record
        self._mark_sent = mark_sent
        self._refuse = refuse

    def objection(self, request: http.Request, client: connection.Client) -> str | None:
        """Why no connection may be made for this request, or None."""
        why = _objection(self._permits.sealed_permit(request), request, client)
        if why is None:
            return None
        return self._record_refusal(request, client, why)

    def outgoing(
        self,
        request: http.Request,
        client: connection.Client,
        server: connection.Server,
        *,
        has_body: bool,
        is_http1: bool,
    ) -> http.Request:
        """The request as it is to be written. Raises NotApproved."""
        permit = self._permits.sealed_permit(request)
        why = _objection(permit, request, client)
        if why is None and not destination_of(request).is_of(server):
            why = _ELSEWHERE
        if why is not None:
            raise NotApproved(self._record_refusal(request, client, why))
        assert permit is not None
        if not self._permits.send(request, self._mark_sent):
            self._raise_if_refused(request, permit)
            raise NotApproved(self._record_refusal(request, client, _TOO_LATE))
        length = body_length(request, has_body=has_body)
        if is_http1:
            return self._http1_request(request, client, permit, length)
        return http2_request(request, permit.approved, length=length)

    def _raise_if_refused(self, request: http.Request, permit: PassedFlow) -> None:
        """Raise NotApproved, with the response, if the request has been refused since its verdict."""
        response = self._refuse(request, permit.decision_id) if permit.decision_id else None
        if response is not None:
            self._permits.refuse_sealed(request, response)
            raise NotApproved("the request was refused while it waited", response)

    def _http1_request(
        self,
        request: http.Request,
        client: connection.Client,
        permit: PassedFlow,
        length: int | None,
    ) -> http.Request:
        is_absolute = _is_for_parent_proxy(request, client)
        return http1_request(
            request,
            permit.approved,
            length=declared_length(request) if length is None else length,
            credentials=_credentials() if is_absolute else None,
            is_absolute=is_absolute,
        )

    def _record_refusal(self, request: http.Request, client: connection.Client, why: str) -> str:
        """Record a refusal, and return the message for the client with the id of the record."""
        try:
            decision = self._record(request, client, why)
        except Exception:  # the request is refused even without a record
            log.exception("robots_guard could not record that a request was not sent")
            return why
        return f"{why}; id={decision.id}"


def _objection(
    permit: PassedFlow | None, request: http.Request, client: connection.Client
) -> str | None:
    if permit is None:
        return _UNJUDGED
    if permit.is_still(request, client):
        return None
    return _CHANGED


def _is_for_parent_proxy(request: http.Request, client: connection.Client) -> bool:
    """Whether a parent proxy reads this request itself, not only a CONNECT before it."""
    return isinstance(client.proxy_mode, mode_specs.UpstreamMode) and request.data.scheme == b"http"


def _credentials() -> bytes | None:
    """The operator's credentials for the parent proxy; None if there are none."""
    auth = ctx.options.upstream_auth if "upstream_auth" in ctx.options else None
    if auth:
        return parse_upstream_auth(auth)
    return None
