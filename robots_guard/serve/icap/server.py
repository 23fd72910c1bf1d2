"""The listener: ICAP connections on asyncio.

A connection carries one request after another. A client that has sent several at once gets the
responses in their order. When a client closes its connection, the request that it waits for is
cancelled, so that a held request gives up its place in the queue. A client that begins a request and
does not end it loses its connection, so that it cannot occupy all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from robots_guard.gateway.operation.listeners import ConnectionServer, ServedConnection
from robots_guard.serve.icap.handler import IcapHandler, PendingResponse
from robots_guard.serve.icap.protocol import (
    IcapRequest,
    IcapResponse,
    ProtocolError,
    RequestReader,
    error_response,
)
from robots_guard.serve.protocols import Running

log = logging.getLogger("robots_guard")

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
