"""Bodies of refused requests are let go as they come.

mitmproxy reads a request to its end before it sends an answer that an addon has given at the start, and keeps the
whole body until then, also of clients that have left. It has no option against that, and it crashes if one answers
and streams. HttpStream is no public interface; all that is known of it is known here.
"""

from __future__ import annotations

import functools

from mitmproxy import http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import HttpEvent, RequestData


class Refusal(http.Response):
    """A response of ours; the body of the request it answers is not needed."""


def let_go() -> None:
    """Keep no body of a refused request from now on. Once for a process; other requests are as before."""
    HttpStream.state_consume_request_body = _sparing  # type: ignore[method-assign]  # the point of this file


_keeping = HttpStream.state_consume_request_body


@functools.wraps(_keeping)
def _sparing(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
    if not (isinstance(event, RequestData) and isinstance(self.flow.response, Refusal)):
        yield from _keeping(self, event)
