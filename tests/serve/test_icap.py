"""The ICAP server: requests are answered by the decision service, one after another."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from functools import partial
from typing import NamedTuple

import pytest
from serve.test_icap_protocol import OPTIONS, REQMOD, REQUEST, RESPMOD, icap
from support.waiting import until

from robots_guard.configuration.settings import ProxySettings
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.serve import icap as icap_module
from robots_guard.serve.icap import start
from robots_guard.serve.service import Admitted

REFUSAL = ProxyReply(403, (("Robots-Guard", "drop"),), b"no\n")


class Decisions:
    """Stands in for the decision service: it records the questions, and takes its answers from
    `answers`.

    With `at_once`, it answers without waiting while the gate is open.
    """

    settings = ProxySettings(agent="mybot", store="memory:", audit_log="")

    def __init__(self, *, at_once=False):
        self.at_once = at_once
        self.asked = []
        self.answers = {}
        self.held = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def begin(self, wire, *, user=None, accept="", in_tunnel=False):
        self.asked.append((wire.target, user, accept, in_tunnel, wire.client))
        if self.at_once and self.gate.is_set():
            return self._answer_to(wire)
        return partial(self._wait, wire)

    async def _wait(self, wire):
        self.held += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.held -= 1
        return self._answer_to(wire)

    def _answer_to(self, wire):
        answer = self.answers.get(wire.target, Admitted("id-1", needs_response=False))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def respond(self, decision_id, head, retry_after=""):
        self.asked.append((decision_id, head.status, head.method, retry_after))
        return self.answers.get(head.status)


class Worker(NamedTuple):
    service: Decisions
    listener: socket.socket


@pytest.fixture(params=[True, False], ids=["at-once", "later"])
async def decisions(request):
    return Decisions(at_once=request.param)


@pytest.fixture
async def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
async def server(decisions, listener):
    server = await start(Worker(decisions, listener))
    yield listener.getsockname()
    decisions.gate.set()
    server.close()
    await server.wait_closed()


@contextlib.asynccontextmanager
async def connected(place):
    reader, writer = await asyncio.open_connection(*place)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer_of(reader):
    """The next response: status line, ICAP fields, encapsulated head and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *fields = head.rstrip().split("\r\n")
    names = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
    http = body = b""
    parts = names["encapsulated"]
    if parts.startswith("res-hdr"):
        http = await reader.readexactly(int(parts.rpartition("=")[2]))
    if "res-body" in parts:
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        assert await reader.readline() == b"\r\n"
    return line.split(" ", 2)[1], names, http, body


async def ask(server, *messages):
    async with connected(server) as (reader, writer):
        writer.write(b"".join(messages))
        return [await answer_of(reader) for _ in messages]


def request(target, *fields, line="GET http://site.test{} HTTP/1.1", preview="Preview: 0"):
    head = line.format(target) + "\r\nHost: site.test\r\nAccept: text/html\r\n\r\n"
    return icap("REQMOD", f"req-hdr=0, null-body={len(head)}", head.encode(), preview, *fields)


async def test_options(server):
    (answer,) = await ask(server, OPTIONS)
    status, fields, _, _ = answer
    assert (status, fields["methods"], fields["preview"]) == ("200", "REQMOD", "0")
    assert fields["allow"] == "204"
    assert int(fields["options-ttl"]) > 0
    assert int(fields["max-connections"]) > 0
    assert 2 < len(fields["istag"]) <= 34  # RFC 3507 section 4.7: 32 bytes in quotation marks


async def test_a_permitted_request(server, decisions):
    (answer,) = await ask(server, request("/a", "X-Client-IP: 192.0.2.9"))
    status, fields, http, _ = answer
    assert (status, fields["x-robots-guard-decision"], http) == ("204", "id-1", b"")
    assert "x-next-services" not in fields
    assert decisions.asked == [("/a", None, "text/html", False, "192.0.2.9")]


async def test_a_request_whose_response_is_needed(server, decisions):
    decisions.answers["/a"] = Admitted("id-2", needs_response=True)
    (answer,) = await ask(server, request("/a"))
    assert answer[1]["x-next-services"] == "robots_guard_responses"


async def test_a_refused_request(server, decisions):
    decisions.answers["/a"] = REFUSAL
    ((status, _, http, body),) = await ask(server, request("/a"))
    assert (status, body) == ("200", b"no\n")
    assert http.startswith(b"HTTP/1.1 403 Forbidden\r\nRobots-Guard: drop\r\nContent-Length: 3\r\n")


async def test_a_refused_head_has_no_body(server, decisions):
    decisions.answers["/a"] = REFUSAL
    message = request("/a", line="HEAD http://site.test{} HTTP/1.1")
    ((status, fields, _, body),) = await ask(server, message)
    assert (status, body, "null-body" in fields["encapsulated"]) == ("200", b"", True)


async def test_a_request_inside_tls(server, decisions):
    await ask(server, request("/a", line="GET https://site.test{} HTTP/1.1"))
    assert decisions.asked[0][3] is True


async def test_the_user(server, decisions):
    name = base64.b64encode("bot\u00e4 \n".encode()).decode()
    await ask(server, request("/a", f"X-Client-Username: {name}"))
    assert decisions.asked[0][1] == "bot\u00e4 \n"


@pytest.mark.parametrize(
    "message",
    [
        request("/a", "X-Client-Username: not base64"),
        request("/a", line="CONNECT site.test:443 HTTP/1.1"),
        request("/a", line="GET"),
        icap("REQMOD", "null-body=0", b"", "Preview: 0"),
        icap("RESPMOD", "null-body=0", b"", "Preview: 0", path="/respmod"),
    ],
    ids=["user", "connect", "line", "no-request", "no-response"],
)
async def test_what_cannot_be_asked_about_is_refused(server, decisions, message):
    ((status, _, http, _),) = await ask(server, message)
    assert status == "200"
    assert http.startswith(b"HTTP/1.1 503 ")
    assert decisions.asked == []


async def test_an_exception_is_a_refusal(server, decisions):
    decisions.answers["/a"] = RuntimeError("planted")
    ((status, _, http, _),) = await ask(server, request("/a"))
    assert (status, http.startswith(b"HTTP/1.1 503 ")) == ("200", True)


async def test_a_response(server, decisions):
    message = RESPMOD.replace(
        b"Preview: 0\r\n", b"Preview: 0\r\nX-Robots-Guard-Decision: id-3\r\n", 1
    )
    ((status, _, _, _),) = await ask(server, message)
    assert status == "204"
    assert decisions.asked == [("id-3", 200, "GET", "")]


async def test_a_replaced_response(server, decisions):
    decisions.answers[200] = REFUSAL
    ((status, _, http, body),) = await ask(server, RESPMOD)
    assert (status, http[:12], body) == ("200", b"HTTP/1.1 403", b"no\n")


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (OPTIONS.replace(b"/reqmod", b"/other"), "404"),
        (RESPMOD.replace(b"/respmod", b"/reqmod"), "405"),
        (REQMOD.replace(b"/reqmod", b"/respmod"), "405"),
        (b"hello\r\n\r\n", "400"),
        (icap("REQMOD", f"req-hdr=0, null-body={len(REQUEST)}", REQUEST), "501"),
    ],
)
async def test_an_error_ends_the_connection(server, decisions, message, status):
    async with connected(server) as (reader, writer):
        writer.write(message + REQMOD)
        answer = await answer_of(reader)
        assert (answer[0], answer[1]["connection"]) == (status, "close")
        assert await reader.read() == b""
    assert decisions.asked == []


async def test_pipelined_requests_are_answered_in_order(server, decisions):
    decisions.answers["/b"] = REFUSAL
    answers = await ask(server, request("/a"), request("/b"), request("/c"), OPTIONS)
    assert [answer[0] for answer in answers] == ["204", "200", "204", "200"]
    assert [asked[0] for asked in decisions.asked] == ["/a", "/b", "/c"]


async def test_a_held_request_does_not_hold_another_connection(server, decisions):
    decisions.gate.clear()
    async with connected(server) as (reader, writer):
        writer.write(request("/a") + request("/b"))
        await until(lambda: decisions.held)
        assert (await ask(server, OPTIONS))[0][0] == "200"
        decisions.gate.set()
        assert [(await answer_of(reader))[0] for _ in "ab"] == ["204", "204"]


async def test_a_client_that_leaves_cancels_its_request(server, decisions):
    decisions.gate.clear()
    async with connected(server) as (_, writer):
        writer.write(request("/a") + request("/b"))
        await until(lambda: decisions.held)
    await until(lambda: decisions.cancelled)
    assert [asked[0] for asked in decisions.asked] == ["/a"]


async def test_a_client_that_sends_without_end_is_stopped(server, decisions):
    decisions.gate.clear()
    async with connected(server) as (_, writer):
        writer.write(request("/a"))
        await until(lambda: decisions.held)
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(OPTIONS * 400_000)  # more than both systems keep
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.3)
        assert decisions.held == 1
        writer.transport.abort()


async def test_the_end_waits_for_the_request_that_is_under_way(decisions, listener):
    server = await start(Worker(decisions, listener))
    place = listener.getsockname()
    decisions.gate.clear()
    async with connected(place) as (reader, writer), connected(place) as (idle, _):
        writer.write(request("/a"))
        await until(lambda: decisions.held)
        server.close()
        assert await idle.read() == b""
        decisions.gate.set()
        assert (await answer_of(reader))[0] == "204"
        assert await reader.read() == b""
        await server.wait_closed()


@pytest.mark.parametrize("sent", [REQMOD[:20], REQMOD[:-10], RESPMOD[:-1], OPTIONS + REQMOD[:9]])
async def test_a_request_that_does_not_end(server, decisions, monkeypatch, sent):
    """Such connections would be kept until there are no more files to open."""
    monkeypatch.setattr(icap_module, "REQUEST_TIMEOUT", 0.05)
    async with connected(server) as (reader, writer):
        writer.write(sent)
        rest = await asyncio.wait_for(ended(reader), 5)
    assert (decisions.asked, rest.count(b"ICAP/1.0")) == ([], sent.count(OPTIONS))


async def test_a_connection_without_a_request_is_kept(server, monkeypatch):
    monkeypatch.setattr(icap_module, "REQUEST_TIMEOUT", 0.05)
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(REQMOD)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"ICAP/1.0 204")
            await asyncio.sleep(0.1)


async def ended(reader):
    """What comes until the connection is lost."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            received += data
    return received
