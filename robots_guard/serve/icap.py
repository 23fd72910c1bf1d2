"""ICAP (RFC 3507): the guard behind Squid, which asks about each request and hands in responses.

    OPTIONS   what the service offers
    REQMOD    a request is admitted: 204, or the response to its client
    RESPMOD   a response has begun: 204, or the response that replaces it

Squid keeps the decision's id until the request has ended (`adaptation_masterx_shared_names`) and
hands it in with the response. So neither the request nor the response is changed, and the site
never sees the id. With the decision, Squid also gets the name of the service that must see the
response, if one must (`X-Next-Services`).

A connection carries one request after another. A client that has sent several at once gets the
responses in their order. When a client closes its connection, the request that it waits for is
cancelled, so that a held request gives up its place in the queue. A client that begins a request and
does not end it loses its connection, so that it cannot occupy all of them.

Invariant: fail closed. A request passes only by an admission of the service, and after an exception
the client gets a refusal.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import msgspec

from robots_guard import __version__
from robots_guard.configuration.settings import ProxySettings
from robots_guard.gateway.listeners import ConnectionServer, ServedConnection
from robots_guard.gateway.refusal import ProxyReply, not_ready
from robots_guard.gateway.waits import MAX_HELD
from robots_guard.serve.icap_messages import (
    IcapRequest,
    IcapResponse,
    ProtocolError,
    RequestReader,
    UnreadableMessage,
    error_response,
    http_response,
    options_response,
    read_request,
    read_response,
    reply_head,
    retry_after,
    unmodified_response,
)
from robots_guard.serve.service import ANSWERS, Answer, DecisionService, PendingAnswer, Running

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


LAST_CHUNK_DELAY = 0.01  # seconds, after which Squid has read what was sent before
#: Seconds from the first byte of a request to its last one. Squid sends heads only.
REQUEST_TIMEOUT = 60.0
_MAX_WAITING = 512 * 1024  # bytes of further requests that a connection may send ahead

#: Returns the response to a request; or, if the request has to wait, a function that a task calls.
Handler = Callable[[IcapRequest], IcapResponse | PendingResponse]


class IcapConnection(asyncio.Protocol):
    """One connection of Squid."""

    def __init__(self, handler: Handler, tag: str, connections: set[ServedConnection]) -> None:
        self._handler = handler
        self._tag = tag
        self._connections = connections
        self._reader = RequestReader()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_chunk: asyncio.TimerHandle | None = None  # of a response that is being written
        self._may_write = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._ending = False
        self.ended = asyncio.Event()

    # -- asyncio's callbacks -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        # uvloop's transport has all methods of asyncio's, but is no subclass of it.
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        """Read what has come, and answer it unless an earlier request is in progress."""
        self._reader.feed(data)
        if not self._is_answering:
            self._begin_next()
        elif self._reader.buffered > _MAX_WAITING and self._transport is not None:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The client does not read its responses: begin no further request."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The client has gone: it no longer waits for a response."""
        self._transport = None
        self._connections.discard(self)
        self.ended.set()
        self._may_write.set()
        self._cancel_deadline()
        if self._last_chunk is not None:
            self._last_chunk.cancel()
        if self._task is not None:
            self._task.cancel()

    # -- one request after another -----------------------------------------------------------------------

    def end(self) -> None:
        """Close the connection after the response to the request in progress."""
        self._ending = True
        if not self._is_answering and self._transport is not None:
            self._transport.close()

    @property
    def _is_answering(self) -> bool:
        return self._task is not None or self._last_chunk is not None

    def _begin_next(self) -> None:
        """Answer the complete requests, one after the other, until one has to wait."""
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """Answer the next request, if it is complete: at once, or by a task if something has to be
        waited for. Returns whether the request after it may be answered now."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        try:
            request = self._reader.next()
            answer = self._handler(request) if request is not None else None
        except ProtocolError as error:
            self._break_off(transport, error)
            return False
        if request is None or answer is None:
            self._limit_wait()
            return False
        self._cancel_deadline()
        if isinstance(answer, IcapResponse) and self._may_write.is_set():
            transport.write(answer.first)
            self._ending |= answer.closes or not request.keeps_alive
            if answer.last:
                self._write_later(answer.last)
                return False
            if self._ending:
                transport.close()
            return not self._ending
        self._task = asyncio.get_running_loop().create_task(self._serve(request, answer))
        self._task.add_done_callback(self._go_on)
        return False

    def _write_later(self, last: bytes) -> None:
        """Write the last chunk of a response after a while; then go on. A task would cost more."""
        loop = asyncio.get_running_loop()
        self._last_chunk = loop.call_later(LAST_CHUNK_DELAY, self._write_last, last)

    def _write_last(self, last: bytes) -> None:
        self._last_chunk = None
        transport = self._transport
        if transport is None:
            return
        transport.write(last)
        if self._ending:
            transport.close()
        else:
            transport.resume_reading()
            self._begin_next()

    def _limit_wait(self) -> None:
        """Wait for the rest of a request that has begun, but not for ever."""
        if self._deadline is None and self._reader.is_within_request:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(REQUEST_TIMEOUT, self._give_up)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        log.warning("robots_guard: an ICAP request did not end")
        if self._transport is not None:
            self._transport.abort()

    async def _serve(self, request: IcapRequest, answer: IcapResponse | PendingResponse) -> None:
        response = answer if isinstance(answer, IcapResponse) else await answer()
        self._ending |= response.closes or not request.keeps_alive
        self._write(response.first)
        if response.last:
            await asyncio.sleep(LAST_CHUNK_DELAY)
            self._write(response.last)
        if not self._may_write.is_set():
            await self._may_write.wait()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _go_on(self, task: asyncio.Task[None]) -> None:
        self._task = None
        transport = self._transport
        if transport is None:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled() or self._ending:
            if error is not None:
                log.error("robots_guard failed; an ICAP connection is closed", exc_info=error)
            transport.close()
        else:
            transport.resume_reading()
            self._begin_next()

    def _break_off(self, transport: asyncio.Transport, error: ProtocolError) -> None:
        log.warning("robots_guard: an ICAP request was refused: %s", error)
        transport.write(error_response(error.status, self._tag).first)
        transport.close()


async def start(running: Running) -> ConnectionServer:
    """Answer Squid's questions as one of the protocols of the decision service."""
    icap, server = IcapHandler(running.service), ConnectionServer()
    await server.start(
        lambda: IcapConnection(icap.answer, icap.tag, server.connections), running.listener
    )
    return server
