"""Listeners: the remedies of addresses that cannot be listened on, and the connections that wait to be
accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import Counter

import pytest

from robots_guard.errors import SettingsError
from robots_guard.gateway import listeners
from robots_guard.gateway.listeners import Address, listening, start_server

WAITING = 300  # more than asyncio's own limit, and fewer than that of most systems


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOENT, "create the directory /run/guard"),
        (errno.EACCES, "let this user write to the directory /run/guard, or choose another one"),
        (errno.EROFS, "choose another address"),
    ],
)
def test_the_remedy_is_that_of_the_fault(monkeypatch, number, remedy):
    def fail(path):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(listeners, "_listen_at_path", fail)

    with (
        pytest.raises(SettingsError, match=f"cannot listen .*: {remedy}$"),
        listening(Address(path="/run/guard/envoy.sock"), "--envoy"),
    ):
        pass


async def test_a_burst_of_connections_waits_to_be_accepted(tmp_path):
    address = Address(path=str(tmp_path / "s"))
    with listening(address, "--envoy") as listener, contextlib.ExitStack() as opened:
        server = await start_server(asyncio.Protocol, listener)
        for _ in range(WAITING):
            client = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            client.connect(address.path)  # raises BlockingIOError if the queue is full
        server.close()


# -- no file left to open -----------------------------------------------------------------------------------------


class Exhausted(socket.socket):
    """A listener of a process that may open no more files, until `recovered`."""

    attempts, recovered = 0, False

    def accept(self):
        if self.recovered:
            return super().accept()
        self.attempts += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_without_a_file_left_accepting_pauses(monkeypatch, caplog):
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.05)
    loop, counts, failed = asyncio.get_running_loop(), Counter(), []
    loop.set_exception_handler(lambda _, context: failed.append(context["message"]))
    listeners.report_exhaustion(loop, lambda: counts)

    async def accept(reader, writer):
        writer.close()

    with Exhausted(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        started = loop.time()
        server = await listeners.start_stream_server(accept, listener)
        clients = [await asyncio.open_connection(*listener.getsockname()) for _ in range(200)]
        while listener.attempts < 4:
            await asyncio.sleep(0.01)
        # each of asyncio's own attempts would have been a thousand
        assert listener.attempts <= 5 + (loop.time() - started) / 0.05
        assert counts == {"accept/error": listener.attempts}
        # one line a second: a busy machine may need more than one second until here
        lines = caplog.text.count("accepts no new connections")
        assert 1 <= lines <= 1 + (loop.time() - started)
        assert "raise the limit of the process (ulimit -n" in caplog.text
        listener.recovered = True
        async with asyncio.timeout(30):
            for reader, writer in clients:  # each is accepted, and closed
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()
        server.close()
    loop.call_exception_handler({"message": "another"})
    assert failed == ["another"]
