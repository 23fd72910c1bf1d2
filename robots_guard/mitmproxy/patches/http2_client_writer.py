"""`Http2Client._handle_event2` writes requests over HTTP/2, also those of streams that were queued.

The replacement writes the head that the gate of the master produces (`write_check`), and drops
trailers, which arrive after the verdict. It also reports the requests that a site has not answered
when it closes the connection (`http2_client_interim`).
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestHeaders, RequestTrailers
from mitmproxy.proxy.layers.http._http2 import Http2Client

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.http2_client_interim import end_requests, was_used
from robots_guard.mitmproxy.patches.write_check import NotApproved, current_gate, produce, replies

Commands = layer.CommandGenerator[None]
Handles = Callable[[Http2Client, events.Event], Commands]


def _replace_handle_event2(plain: Handles) -> Handles:
    def handle_event(self: Http2Client, event: events.Event) -> Commands:
        gate = current_gate()
        # Trailers arrive after the verdict.
        if gate is not None and isinstance(event, RequestTrailers):
            return
        if gate is not None and isinstance(event, RequestHeaders):
            try:
                event = produce(gate, event, self)
            except NotApproved as error:
                # Other streams continue. This stream number is never used again (RFC 9113 section 5.1.1), so the
                # rest of the request has no stream to be written to.
                self.h2_conn.highest_outbound_stream_id = event.stream_id
                for reply in replies(event.stream_id, error):
                    yield ReceiveHttp(reply)
                return
        if isinstance(event, events.ConnectionClosed):
            yield from end_requests(self, plain(self, event), unanswered=was_used(self))
        else:
            yield from plain(self, event)

    return handle_event


PATCH = Patch(
    owner=Http2Client,
    methods=(method("_handle_event2", "a3b722b18c3f", make=_replace_handle_event2),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A request can change after its last hook; over HTTP/2 it may also be queued, until the"
    " site permits another stream.",
    report="""\
Addons have no hook at which a request is final.

After the `request` hook, a flow waits for a connection, and over HTTP/2 for the site to permit
another stream. Whatever `flow.request` contains by then is written. An addon that must guarantee
something about every request that is sent cannot do so.

To see it: let a site announce SETTINGS_MAX_CONCURRENT_STREAMS = 1, send two requests, and change
the path of the second in a task while it is queued. The site gets the changed path.

A hook called where the head is written, or a request that is frozen after `request`, would help.
The same applies to `Http1Client.send` and `Http3Client._handle_event`.
""",
)
