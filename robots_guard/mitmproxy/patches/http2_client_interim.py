"""`Http2Client.handle_h2_event` reads the frames of a site; it swallows interim responses.

The replacement passes them to the stream (`interim`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h2.events
from mitmproxy import http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._http2 import Http2Client, parse_h2_response_headers

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.interim import Interim

Handles = Callable[[Http2Client, Any], layer.CommandGenerator[bool]]


def _replace_handle_h2_event(plain: Handles) -> Handles:
    def handle_h2_event(self: Http2Client, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, h2.events.InformationalResponseReceived):
            yield ReceiveHttp(Interim(event.stream_id, _response(event)))
            return False
        return (yield from plain(self, event))

    return handle_h2_event


def _response(event: h2.events.InformationalResponseReceived) -> http.Response:
    status, headers = parse_h2_response_headers(event.headers)
    return http.Response(b"HTTP/2.0", status, b"", headers, None, None, 0.0, None)


PATCH = Patch(
    owner=Http2Client,
    methods=(method("handle_h2_event", "ff6f4bd92716", make=_replace_handle_h2_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="The 1xx responses of HTTP/2 sites are lost, such as 103 Early Hints.",
    report="""\
Interim responses (1xx) of HTTP/2 servers are not forwarded.

`Http2Client.handle_h2_event` ignores `InformationalResponseReceived`. RFC 9110 section 15.2: "A
proxy MUST forward 1xx responses unless the proxy itself requested the generation of the 1xx
response."

To see it: let an HTTP/2 server send `103` with a Link field before its 200, and request the page
through mitmproxy by `curl --http2 -i`.

The event could be passed to the stream as a `ResponseHeaders` of another class, and from there to
the client.
""",
)
