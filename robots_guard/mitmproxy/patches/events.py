"""Events: what the replaced methods of different protocols tell the stream of a request.

mitmproxy takes any response head over HTTP/1 for the final one: after a `103 Early Hints` the
client gets an empty response, and the real one is lost. Over HTTP/2 it swallows interim responses.
With the patches, both send an `Interim` event to the stream, which forwards it to the client at
once (RFC 9110 section 15.2), with these exceptions:

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

from typing import Any

from mitmproxy import http
from mitmproxy.net.http import status_codes
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpStream, SendHttp, _events
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import ResponseHeaders, ResponseProtocolError

from robots_guard.gateway.own_fields import OWN_FIELDS

# The codes of protocol errors are an enumeration since version 12, and HTTP status codes before.
_enumeration: Any = getattr(_events, "ErrorCode", None)
CLIENT_DISCONNECTED: Any = (
    _enumeration.CLIENT_DISCONNECTED if _enumeration else status_codes.CLIENT_CLOSED_REQUEST
)
REQUEST_TOO_LARGE: Any = (
    _enumeration.REQUEST_TOO_LARGE if _enumeration else status_codes.PAYLOAD_TOO_LARGE
)

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


class Unanswered(ResponseProtocolError):
    """The site sent no byte of a response to a request, on a connection on which it had answered
    another; or it said that it did not process the request."""

    @classmethod
    def instead_of(cls, error: ResponseProtocolError) -> Unanswered:
        """The same error, marked."""
        return cls(error.stream_id, error.message, error.code)


PATCHES = ()
