"""`HttpLayer.handle_event` yields a `SendData` for each head, body and frame that an event causes.

mitmproxy writes each of them to the socket by itself, through TLS as a record of its own. A response
of a head and a body is two system calls, and 64 requests that arrive in one read of an HTTP/2
connection are 64 for the site and 128 for the client. The replacement joins what goes to the same
connection while one event is handled. mitmproxy handles an event without a pause, so nothing is
sent later than before; but before any other command, except for `Log`, everything is sent.

Invariant: the bytes that a connection gets, and their order among the commands that have an effect
on connections, hooks and timers, are those of mitmproxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mitmproxy.connection import Connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpLayer

from robots_guard.gateway.patch import Patch, method

JOINED_BYTES = 64 * 1024  # to join more would cost a copy of it, and save little

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
    versions="mitmproxy 11.0.2, 12.2.3",
    reason="Each head, body and frame is a system call, and a TLS record of its own.",
    report="""\
Join what one event sends to a connection.

`HttpLayer` yields a `SendData` for each head, body and frame, and `ConnectionHandler.server_event`
writes each by itself: a small response is two system calls, and 64 requests that arrive in one read
of an HTTP/2 connection are 64 for the site and 128 for the client. With TLS, each is a record.

To see it: count the calls of `send` with strace while a mitmdump serves small requests.

`server_event` could collect what goes to each connection, and write it before the next command of
another kind and at the end of the event.
""",
)
