"""`BufferedH2Connection.receive_data` turns the bytes of one read into HTTP/2 events.

mitmproxy handles all of them before it serves another client. A request whose reset arrives in the
same read would be judged and sent for nothing, so the replacement drops it (CVE-2023-44487, "rapid
reset"). `http2_server_resets` bounds the resets of a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h2.events
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from robots_guard.gateway.patch import Patch, method

Receives = Callable[[BufferedH2Connection, bytes], list[Any]]


def _replace_receive_data(plain: Receives) -> Receives:
    def receive_data(self: BufferedH2Connection, data: bytes) -> list[Any]:
        found = plain(self, data)
        reset = {event.stream_id for event in found if isinstance(event, h2.events.StreamReset)}
        if not reset:
            return found
        return [event for event in found if not _is_request_of(event, reset)]

    return receive_data


def _is_request_of(event: Any, reset: set[int | None]) -> bool:
    return isinstance(event, h2.events.RequestReceived) and event.stream_id in reset


PATCH = Patch(
    owner=BufferedH2Connection,
    methods=(method("receive_data", "7dd57c12dc7e", "1ebc3cf9b6b1", make=_replace_receive_data),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A request that its client has already cancelled would be judged and sent.",
    report="""\
A request is begun even if its reset has arrived in the same read (rapid reset).

`BufferedH2Connection.receive_data` returns the events of one read in order. A stream that is
opened and reset in the same read begins a flow, runs its hooks, and may connect to a server, all
for nothing (CVE-2023-44487).

To see it: send HEADERS and RST_STREAM frames of a hundred streams in one piece, and count the
`request` hooks.

`RequestReceived` could be left out if a `StreamReset` of the same stream follows in the list.
""",
)
