"""`Http1Server.send` writes a response over HTTP/1.

It raises AssertionError for the trailers of an HTTP/2 site, and the client waits forever. It would
mistake an interim response for the final one and, if none follows, close the connection without the
502 that explains it. The replacement drops trailers, as RFC 9110 section 6.5.1 allows. For an
interim response (`interim`), it writes only the head and continues to wait for the final response.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import http
from mitmproxy.net.http import http1, status_codes
from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import ResponseHeaders, ResponseTrailers
from mitmproxy.proxy.layers.http._http1 import Http1Server

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.interim import is_interim

Commands = layer.CommandGenerator[None]
Sends = Callable[[Http1Server, HttpEvent], Commands]


def _replace_send(plain: Sends) -> Sends:
    def send(self: Http1Server, event: HttpEvent) -> Commands:
        if isinstance(event, ResponseTrailers):
            return
        if isinstance(event, ResponseHeaders) and is_interim(event.response.status_code):
            yield commands.SendData(
                self.conn, http1.assemble_response_head(_as_http1(event.response))
            )
        else:
            yield from plain(self, event)

    return send


def _as_http1(response: http.Response) -> http.Response:
    response.http_version = "HTTP/1.1"
    response.reason = response.reason or status_codes.RESPONSES.get(response.status_code, "")
    return response


PATCH = Patch(
    owner=Http1Server,
    methods=(method("send", "f530fe5b569e", "cc218a1337c0", make=_replace_send),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="The trailers of an HTTP/2 site make it raise, and it has no notion of 1xx responses.",
    report="""\
An HTTP/1 client waits forever for a response with trailers from an HTTP/2 server.

`Http1Server.send` raises AssertionError for `ResponseTrailers`. It also takes any head for that of
the final response, so that 1xx responses cannot be forwarded.

To see it: `curl --http1.1` through mitmproxy to an HTTP/2 server that sends trailers.

`send` should drop trailers (RFC 9110 section 6.5.1), or write them after a chunked body, and write
the head of a 1xx response without a change of its state.
""",
)
