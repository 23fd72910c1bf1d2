"""Interim responses: 1xx responses of a site are forwarded, and the final one is the answer.

mitmproxy takes any response head over HTTP/1 for the final one: after a `103 Early Hints` the
client gets an empty response, and the real one is lost. Over HTTP/2 it swallows interim responses.

With the patches of `http1_client_head` and `http2_client_interim`, both send an `Interim` event to
the stream, which forwards it to the client at once (RFC 9110 section 15.2), with these exceptions:

    100         is dropped: mitmproxy has answered the client's Expect, and sends none to the site
    HTTP/1.0    clients get none, because they do not know interim responses
    fields      of one connection, of framing (RFC 9110 section 8.6), Alt-Svc, which leads past the
                proxy, and those that only the guard sets, are dropped
    101         is left to mitmproxy if the request asked for it; else it is an error of the site,
                and the client gets 502: mitmproxy would forward data that is not HTTP, and raise if
                the client speaks HTTP/2

Addons have no hook for interim responses.
"""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import ResponseHeaders

from robots_guard.gateway.own_fields import OWN_FIELDS

_REMOVED = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "alt-svc",
    *OWN_FIELDS,
)


class Interim(HttpEvent):
    """An interim response of a site."""

    def __init__(self, stream_id: int, response: http.Response) -> None:
        super().__init__(stream_id)
        self.response = response


def is_interim(status: int) -> bool:
    """Whether a final response follows. After a 101 none does: the protocol is switched."""
    return 100 <= status < 200 and status != 101


def pass_on(self: HttpStream, event: Interim) -> layer.CommandGenerator[None]:
    """Send an interim response to the client of a stream, if it can take one."""
    response = event.response
    if response.status_code == 100 or self.flow.request.http_version == "HTTP/1.0":
        return
    if self.server_state != self.state_wait_for_response_headers:
        return
    for name in _REMOVED:
        response.headers.pop(name, None)
    if self.context.options.validate_inbound_headers:
        try:
            validate_headers(response)
        except ValueError:
            return
    yield SendHttp(ResponseHeaders(self.stream_id, response), self.context.client)
