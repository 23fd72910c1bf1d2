"""`Http2Client.handle_h2_event` reads the frames of a site.

It swallows interim responses, and gives up all requests in progress if the site announces by GOAWAY
that it will close the connection, as many do after a thousand requests. The replacement passes
interim responses to the stream (`interim`); one without a readable status is dropped. It reports
the requests that the site has not answered (`http_stream_connection`), including those that wait in
mitmproxy's queue, which would wait forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import h2.events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from mitmproxy import http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseProtocolError
from mitmproxy.proxy.layers.http._http2 import (
    Http2Client,
    StreamState,
    parse_h2_response_headers,
)

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.http_stream_connection import Unanswered
from robots_guard.mitmproxy.patches.interim import Interim, is_interim

Result = TypeVar("Result")
Handles = Callable[[Http2Client, Any], layer.CommandGenerator[bool]]


def _replace_handle_h2_event(plain: Handles) -> Handles:
    def handle_h2_event(self: Http2Client, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, h2.events.InformationalResponseReceived):
            yield from _pass_on(event)
            return False
        steps = plain(self, event)
        if isinstance(event, h2.events.ConnectionTerminated):
            is_orderly = event.error_code == ErrorCodes.NO_ERROR
            return (yield from end_requests(self, steps, unanswered=is_orderly))
        if isinstance(event, ProtocolError):  # h2 raises it for any frame behind a GOAWAY
            return (yield from end_requests(self, steps, unanswered=was_used(self)))
        if isinstance(event, h2.events.StreamReset):
            is_refused = event.error_code == ErrorCodes.REFUSED_STREAM
            if is_refused and (theirs := self.their_stream_id.get(event.stream_id)) is not None:
                self.our_stream_id.pop(theirs, None)  # a repeated request gets another number
            return (yield from _marked(self, steps, unanswered=is_refused))
        return (yield from steps)

    return handle_h2_event


def was_used(self: Http2Client) -> bool:
    """Whether the connection has carried another request."""
    return len(self.their_stream_id) > 1


def _pass_on(event: h2.events.InformationalResponseReceived) -> Iterator[ReceiveHttp]:
    try:
        status, headers = parse_h2_response_headers(event.headers)
    except ValueError:
        return
    if not is_interim(status):  # such as 1, or 101, which HTTP/2 does not know
        return
    response = http.Response(b"HTTP/2.0", status, b"", headers, None, None, 0.0, None)
    yield ReceiveHttp(Interim(event.stream_id, response))


def end_requests(
    self: Http2Client, steps: layer.CommandGenerator[Result], *, unanswered: bool
) -> layer.CommandGenerator[Result]:
    """End all requests of a connection that the site has closed, after mitmproxy's own `steps`."""
    result = yield from _marked(self, steps, unanswered=unanswered)
    queued = list(self.stream_queue)
    self.stream_queue.clear()
    for theirs in queued:
        ours = self.h2_conn.highest_outbound_stream_id + theirs + 1  # any number without a stream
        self.their_stream_id[ours] = theirs
        yield ReceiveHttp(
            Unanswered(ours, "the site closed the connection", ResponseProtocolError.code)
        )
    return result


def _marked(
    self: Http2Client, steps: layer.CommandGenerator[Result], *, unanswered: bool
) -> layer.CommandGenerator[Result]:
    """Run these steps. If `unanswered`, mark the errors of requests that got no answer at all."""
    while True:
        try:
            command = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if unanswered and isinstance(command, ReceiveHttp):
            error = command.event
            is_waiting = self.streams.get(error.stream_id) is StreamState.EXPECTING_HEADERS
            if is_waiting and isinstance(error, ResponseProtocolError):
                command.event = Unanswered.instead_of(error)
        yield command


PATCH = Patch(
    owner=Http2Client,
    methods=(method("handle_h2_event", "ff6f4bd92716", make=_replace_handle_h2_event),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="The 1xx responses of HTTP/2 sites are lost, such as 103 Early Hints; a GOAWAY costs the"
    " requests in progress.",
    report="""\
Interim responses (1xx) of HTTP/2 servers are not forwarded.

`Http2Client.handle_h2_event` ignores `InformationalResponseReceived`. RFC 9110 section 15.2: "A
proxy MUST forward 1xx responses unless the proxy itself requested the generation of the 1xx
response."

To see it: let an HTTP/2 server send `103` with a Link field before its 200, and request the page
through mitmproxy by `curl --http2 -i`.

The event could be passed to the stream as a `ResponseHeaders` of another class, and from there to
the client.

After a GOAWAY without an error, all requests in progress fail, although the site may still answer
some of them and has not processed the others. Those in `stream_queue` wait forever.
""",
)
