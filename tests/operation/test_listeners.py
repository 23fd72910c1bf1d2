"""Listeners: the remedies of addresses that cannot be listened on, and the connections that wait to be
accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket

import pytest

from robots_guard.errors import SettingsError
from robots_guard.operation import listeners
from robots_guard.operation.listeners import Address, listening, start_server

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
