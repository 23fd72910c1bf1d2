"""Peers: the workers of one decision service, which hand each other the responses to their requests.

A data plane asks over several connections, and the system gives each to any worker. So a response
may be reported to another worker than the one that has admitted its request. The id that a data
plane gets therefore begins with the number of the worker, and a worker hands what is not its own to
that one, over a Unix socket in a folder that only this user may read.

Invariant: deny first. If a worker cannot be reached, the response counts as that to an unknown
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from robots_guard.decisions.addresses import Address
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Decision
from robots_guard.gateway.listeners import BACKLOG, start_stream_server
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.serve.plan import Plan
from robots_guard.serve.service import Admitted, Answer, DecisionService

log = logging.getLogger("robots_guard")

TIMEOUT = 5.0  # seconds for a worker's answer: it may wait for the store
_LENGTH = 4  # bytes of the number before each message


class ResponseReport(msgspec.Struct, frozen=True, kw_only=True):
    """A response to a request of another worker; without `head`, the request has ended without
    one."""

    id: str
    head: ResponseHead | None = None
    retry_after: str = ""


class ReportAnswer(msgspec.Struct, frozen=True):
    """What the other worker returns: the response that replaces the reported one, or None."""

    reply: ProxyReply | None = None


_REPORTS = msgspec.msgpack.Decoder(ResponseReport)
_ANSWERS = msgspec.msgpack.Decoder(ReportAnswer)


@dataclass(frozen=True, slots=True)
class Peers:
    """The sockets of the workers. A single worker has none."""

    sockets: tuple[socket.socket, ...] = ()
    folder: Path = Path()

    def path_of(self, number: int) -> str:
        """The path of a worker's socket."""
        return str(self.folder / str(number))

    def __len__(self) -> int:
        """The number of workers that have sockets."""
        return len(self.sockets)


@contextmanager
def peers_of(workers: int) -> Iterator[Peers]:
    """Open the sockets of the workers before they are forked; none for a single worker."""
    if workers == 1:
        yield Peers()
        return
    folder = Path(tempfile.mkdtemp(prefix="robots_guard-"))  # for this user only
    with contextlib.ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        sockets = []
        for number in range(workers):
            listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(folder / str(number)))
            listener.listen(BACKLOG)
            sockets.append(listener)
        yield Peers(tuple(sockets), folder)


class PeerService(DecisionService):
    """The decision service of one worker, whose ids every worker understands."""

    def __init__(self, peers: Peers, number: int, plan: Plan) -> None:
        own_addresses = plan.own_addresses  # made once, because each request is compared with them
        super().__init__(
            plan.settings,
            plan.invocation,
            listening=lambda: own_addresses,
            authorities=str(plan.upstream_ca) if plan.upstream_ca else None,
        )
        self._peers = peers
        self._number = number
        self._releases: set[asyncio.Task[None]] = set()

    async def listen(self) -> _PeerServer:
        """Answer the other workers."""
        server = _PeerServer(self)
        if self._peers:
            await server.start(self._peers.sockets[self._number])
        return server

    def _permit(self, decision: Decision, method: str, address: Address | None) -> Answer:
        """Do what the base class does. The id names this worker."""
        result = super()._permit(decision, method, address)
        if self._peers and isinstance(result, Admitted):
            return result._replace(id=f"{self._number}.{result.id}")
        return result

    async def respond(
        self, decision_id: str, head: ResponseHead, retry_after: str = ""
    ) -> ProxyReply | None:
        """Do what the base class does, or have the worker do it that has admitted the request."""
        number, own_id = self._split(decision_id)
        if number == self._number:
            return await super().respond(own_id, head, retry_after)
        try:
            report = ResponseReport(id=own_id, head=head, retry_after=retry_after)
            return (await self._ask(number, report)).reply
        except (OSError, EOFError, msgspec.MsgspecError) as error:  # TimeoutError is an OSError
            log.warning("worker %d does not answer: %s", number, error or type(error).__name__)
            return self.reply_to_unknown(head)

    def release(self, decision_id: str) -> None:
        """Do what the base class does, or have the worker do it that has admitted the request."""
        number, own_id = self._split(decision_id)
        if number == self._number:
            super().release(own_id)
            return
        task = asyncio.ensure_future(self._release_at(number, own_id))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release_at(self, number: int, own_id: str) -> None:
        with contextlib.suppress(OSError, EOFError, msgspec.MsgspecError):
            await self._ask(number, ResponseReport(id=own_id))

    def _split(self, decision_id: str) -> tuple[int, str]:
        """The worker that an id names, and its own id. An id that names none is this worker's."""
        number, dot, own_id = decision_id.partition(".")
        if dot and number.isascii() and number.isdigit() and int(number) < len(self._peers):
            return int(number), own_id
        return self._number, decision_id

    async def _ask(self, number: int, report: ResponseReport) -> ReportAnswer:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(self._peers.path_of(number))
            try:
                _write(writer, msgspec.msgpack.encode(report))
                return _ANSWERS.decode(await _read(reader))
            finally:
                writer.close()


class _PeerServer:
    """Answers the other workers' reports."""

    def __init__(self, service: DecisionService) -> None:
        self._service = service
        self._server: asyncio.AbstractServer | None = None

    async def start(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._server = await start_stream_server(self._answer, listener)

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()

    async def wait_closed(self) -> None:
        """Return at once: the other workers end, too."""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.suppress(OSError, EOFError, msgspec.MsgspecError),
            contextlib.closing(writer),
        ):
            report = _REPORTS.decode(await _read(reader))
            _write(writer, msgspec.msgpack.encode(ReportAnswer(await self._reply_to(report))))

    async def _reply_to(self, report: ResponseReport) -> ProxyReply | None:
        if report.head is None:
            self._service.release(report.id)
            return None
        return await self._service.respond(report.id, report.head, report.retry_after)


def _write(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(_LENGTH, "big") + message)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read one message. Raises IncompleteReadError, an EOFError, if the other side ends."""
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    return await reader.readexactly(length)
