"""`Http3Client._handle_event` writes requests over HTTP/3, if the operator has allowed it.

The replacement writes the head that the gate of the master produces (`write_check`), nothing of a
stream whose head was refused, and no trailers.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestHeaders, RequestTrailers
from mitmproxy.proxy.layers.http._http3 import Http3Client

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.write_check import NotApproved, current_gate, produce, replies

Commands = layer.CommandGenerator[None]
Handles = Callable[[Http3Client, events.Event], Commands]


def _replace_handle_event(plain: Handles) -> Handles:
    def handle_event(self: Http3Client, event: events.Event) -> Commands:
        gate = current_gate()
        refused: set[int] = self.__dict__.setdefault("refused", set())
        if isinstance(event, HttpEvent) and event.stream_id in refused:
            return
        if gate is not None and isinstance(event, RequestTrailers):
            return
        if gate is not None and isinstance(event, RequestHeaders):
            try:
                event = produce(gate, event, self)
            except NotApproved as error:
                refused.add(event.stream_id)
                for reply in replies(event.stream_id, error):
                    yield ReceiveHttp(reply)
                return
        yield from plain(self, event)

    return handle_event


PATCH = Patch(
    owner=Http3Client,
    methods=(method("_handle_event", "94b342097cc2", make=_replace_handle_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A request can change after its last hook.",
    report="""\
Addons have no hook at which a request is final: HTTP/3.

`Http3Client._handle_event` writes whatever `flow.request` contains after the connection has been
made, as `Http1Client.send` and `Http2Client._handle_event2` do. The report about those says more.

To see it: change `flow.request.path` in a task while the QUIC connection to the site is being
made.

A hook called where the head is written, or a request that is frozen after `request`, would help.
""",
)
