"""`ClientTLSLayer` reads the ClientHello of a TLS connection.

`receive_handshake_data` buffers an endless ClientHello without limit, and parses it again from the
start whenever data arrives. After an unreadable ClientHello, `receive_data` raises when more data
arrives, and the connection stays open. The replacements close the connection of a client whose
ClientHello exceeds `MAX_HELLO`, and ignore data after an unreadable one.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.tls import ClientTLSLayer

from robots_guard.gateway.patch import Patch, method

MAX_HELLO = 16 * 1024  # bytes; browsers send 2,000

ReceivesHello = Callable[[ClientTLSLayer, bytes], layer.CommandGenerator[tuple[bool, str | None]]]
Receives = Callable[[ClientTLSLayer, bytes], layer.CommandGenerator[None]]


def _replace_receive_handshake_data(plain: ReceivesHello) -> ReceivesHello:
    def receive_handshake_data(
        self: ClientTLSLayer, data: bytes
    ) -> layer.CommandGenerator[tuple[bool, str | None]]:
        if self.client_hello_parsed or len(self.recv_buffer) + len(data) <= MAX_HELLO:
            return (yield from plain(self, data))
        yield commands.CloseConnection(self.conn)
        return False, None

    return receive_handshake_data


def _replace_receive_data(plain: Receives) -> Receives:
    def receive_data(self: ClientTLSLayer, data: bytes) -> layer.CommandGenerator[None]:
        if self.client_hello_parsed:
            yield from plain(self, data)

    return receive_data


PATCH = Patch(
    owner=ClientTLSLayer,
    methods=(
        method("receive_handshake_data", "a0ee021f92f6", make=_replace_receive_handshake_data),
        method("receive_data", "b85a8a4fd562", "85c0e6b656c3", make=_replace_receive_data),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A TLS hello without an end costs memory, and CPU time that grows with its square.",
    report="""\
A TLS ClientHello that does not end costs quadratic time; data after an unreadable one raises.

`ClientTLSLayer.receive_handshake_data` appends what arrives to `recv_buffer` and parses all of it
again with each piece. Nothing limits its size. If the hello cannot be parsed and more data
arrives, `receive_data` raises, and the connection stays open.

To see it: send a ClientHello whose handshake header declares 16 MB, in pieces of 100 bytes. Or
send an unreadable hello, and more data 0.1 s later.

A limit of some 16 KiB is enough for every client; data after an unreadable hello can be ignored.
""",
)
