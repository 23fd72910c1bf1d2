"""`HttpLayer.handle_event` yields a `SendData` for each head, body and frame that an event causes.

mitmproxy writes each of them to the socket separately; with TLS, each is a record. A response with
a head and a body takes two system calls, and 64 requests that arrive in one read of an HTTP/2
connection take 64 to the site and 128 to the client. The replacement joins what one event sends to
the same connection. mitmproxy handles an event without a pause, so nothing is sent noticeably later.
Everything joined is sent before any other command, except for `Log`.

Invariant: each connection gets the same bytes as from mitmproxy, in the same order relative to the
commands that have an effect on connections, hooks and timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mitmproxy.connection import Connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpLayer

from robots_guard.gateway.patch import Patch, method

JOINED_BYTES = 64 * 1024  # joining more would copy it, and save little

Commands = layer.CommandGenerator[None]
Handles = Callable[[HttpLayer, events.Event], Commands]


def _replace_handle_event(plain: Handles) -> Handles:
    def handle_event(self: HttpLayer, event: events.Event) -> Commands:
        collected: dict[Connection, bytearray] = {}
        for command in plain(self, event):
            if isinstance(command, commands.SendData) and len(command.data) < JOINED_BYTES:
                data = collected.setdefault(command.connection, bytearray())
                data += command.data
                if len(data) < JOINED_BYTES:
                    continue
                command = commands.SendData(command.connection, bytes(data))
                del collected[command.connection]
            elif collected and not isinstance(command, commands.Log):
                yield from _flush(collected)
            yield command
        yield from _flush(collected)

    return handle_event


def _flush(collected: dict[Connection, bytearray]) -> Iterator[commands.SendData]:
    for connection, data in collected.items():
        yield commands.SendData(connection, bytes(data))
    collected.clear()


PATCH = Patch(
    owner=HttpLayer,
    methods=(method("handle_event", "fd88b0fb09ce", make=_replace_handle_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Each head, body and frame is written by a separate system call, as a separate TLS record.",
    report="""\
Join what one event sends to a connection.

`HttpLayer` yields a `SendData` for each head, body and frame, and `ConnectionHandler.server_event`
writes each separately: a small response takes two system calls, and 64 requests that arrive in one
read of an HTTP/2 connection take 64 to the site and 128 to the client. With TLS, each is a record.

To see it: count the calls of `send` with strace while a mitmdump serves small requests.

`server_event` could collect what goes to each connection, and write it before the next command of
another kind and at the end of the event.
""",
)
