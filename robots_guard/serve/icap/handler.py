"""The handler: answers ICAP requests by the decision service.

    OPTIONS   what the service offers
    REQMOD    a request is admitted: 204, or the response to its client
    RESPMOD   a response has begun: 204, or the response that replaces it

Squid keeps the decision's id until the request has ended (`adaptation_masterx_shared_names`) and
hands it in with the response. So neither the request nor the response is changed, and the site
never sees the id. With the decision, Squid also gets the name of the service that must see the
response, if one must (`X-Next-Services`).

Invariant: fail closed. A request passes only by an admission of the service, and after an exception
the client gets a refusal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from robots_guard import __version__
from robots_guard.configuration.settings import ProxySettings
from robots_guard.gateway.refusal import ProxyReply, not_ready
from robots_guard.gateway.waits import MAX_HELD
from robots_guard.serve.icap.messages import (
    UnreadableMessage,
    read_request,
    read_response,
    reply_head,
    retry_after,
)
from robots_guard.serve.icap.protocol import (
    IcapRequest,
    IcapResponse,
    ProtocolError,
    error_response,
    http_response,
    options_response,
    unmodified_response,
)
from robots_guard.serve.service import ANSWERS, Answer, DecisionService, PendingAnswer

log = logging.getLogger("robots_guard")

#: The ICAP field in which Squid keeps the id of a decision until the response.
DECISION = "X-Robots-Guard-Decision"
#: The name that squid.conf gives to the service that sees responses.
RESPONSE_SERVICE = "robots_guard_responses"
OPTIONS_TTL = 3600  # seconds; a refresh that fails makes Squid refuse everything for 30 s
MAX_CONNECTIONS = MAX_HELD + 4096  # each held request occupies one

#: The method that each service accepts (RFC 3507 section 4.3.2: one each, besides OPTIONS).
_SERVICES = {"/reqmod": "REQMOD", "/respmod": "RESPMOD"}
_NO_VERDICT = "The guard could not reach a verdict."
_NO_TUNNELS = "A tunnel that is not inspected cannot be judged: Squid must bump every CONNECT."
_UNREADABLE = "The request cannot be read in one way."

PendingResponse = Callable[[], Coroutine[Any, Any, IcapResponse]]  # waits, and returns the response


class IcapHandler:
    """Answers the ICAP requests of all connections of one listener."""

    def __init__(self, service: DecisionService) -> None:
        self._service = service
        self.tag = _tag(service.settings)

    def answer(self, request: IcapRequest) -> IcapResponse | PendingResponse:
        """Return the response to a request; or a function that waits for it. Raises
        ProtocolError."""
        accepted = _SERVICES.get(request.path)
        if accepted is None:
            return error_response(404, self.tag)
        if request.method == "OPTIONS":
            return options_response(
                accepted, tag=self.tag, ttl=OPTIONS_TTL, connections=MAX_CONNECTIONS
            )
        if request.method != accepted:
            return error_response(405, self.tag)
        if not request.allows_no_content:
            raise ProtocolError(501, "neither a preview nor Allow: 204")
        if accepted == "RESPMOD":
            return partial(self._response_or_refusal, partial(self._respond, request))
        try:
            return self._admit(request)
        except Exception:  # noqa: BLE001  `_fail` logs it
            return self._fail()

    async def _response_or_refusal(self, wait: PendingResponse) -> IcapResponse:
        """Wait for a response; fail closed if that raises an exception."""
        try:
            return await wait()
        except Exception:  # noqa: BLE001  `_fail` logs it
            return self._fail()

    def _fail(self) -> IcapResponse:
        """Log the exception that is being handled, and return a refusal: an internal error must not
        let a request or a response pass."""
        log.exception("robots_guard failed; the request is refused")
        return self._reply(not_ready(_NO_VERDICT), "GET")

    def _admit(self, request: IcapRequest) -> IcapResponse | PendingResponse:
        try:
            http = read_request(request.request_head)
        except UnreadableMessage:
            return self._reply(not_ready(_UNREADABLE), "GET")
        method = http.method.decode("latin-1")
        if method == "CONNECT":
            return self._reply(not_ready(_NO_TUNNELS), method)
        wire = http.wire(request.fields.get("x-client-ip", ""))
        answer = self._service.begin(
            wire,
            user=_user(request),
            accept=http.accept,
            in_tunnel=wire.scheme == "https",
        )
        if isinstance(answer, ANSWERS):
            return self._response_to(answer, method)
        return partial(self._response_or_refusal, partial(self._admit_later, answer, method))

    async def _admit_later(self, wait: PendingAnswer, method: str) -> IcapResponse:
        return self._response_to(await wait(), method)

    def _response_to(self, answer: Answer, method: str) -> IcapResponse:
        """The response that tells Squid the answer of the service."""
        if isinstance(answer, ProxyReply):
            return self._reply(answer, method)
        fields = [(DECISION, answer.id)]
        if answer.needs_response:
            fields.append(("X-Next-Services", RESPONSE_SERVICE))
        return unmodified_response(self.tag, fields)

    async def _respond(self, request: IcapRequest) -> IcapResponse:
        decision_id = request.fields.get(DECISION.lower(), "")
        try:
            http = read_request(request.request_head)
            method = http.method.decode("latin-1")
            head = read_response(request.response_head, method)
        except UnreadableMessage:
            return self._reply(not_ready(_UNREADABLE), "GET")
        reply = await self._service.respond(decision_id, head, retry_after(head))
        if reply is None:
            return unmodified_response(self.tag)
        return self._reply(reply, method)

    def _reply(self, reply: ProxyReply, method: str) -> IcapResponse:
        """The guard's own response, in place of the request or of the site's response."""
        body = None if method == "HEAD" else reply.body
        return http_response(self.tag, reply_head(reply), body)


def _tag(settings: ProxySettings) -> str:
    """The ISTag: workers with the same settings and version give the same answers."""
    # A digest of a URL with a password would help to guess the password.
    shown = msgspec.structs.replace(settings, store="memory:", fetch_proxy="")
    data = __version__.encode() + msgspec.json.encode(shown)
    return f"robots-guard-{hashlib.sha256(data).hexdigest()[:16]}"


def _user(request: IcapRequest) -> str | None:
    """The client that Squid has authenticated. Its name is encoded in Base64, because it may contain
    anything. Raises ValueError."""
    encoded = request.fields.get("x-client-username")
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(
            "X-Client-Username is not in Base64: icap_client_username_encode"
        ) from None
