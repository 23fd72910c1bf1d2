"""Heads are bounded: of a request by a client, of an answer by a site.

mitmproxy reads an HTTP/1 head for as long as it goes on, keeps all of it, and has no option against that;
`body_size_limit` is of bodies only. HTTP/2 has a bound of its own. The two classes are no public interface; all that
is known of them is known here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server, make_error_response

LONGEST = 256 * 1024  # octets, or what of them comes in one piece
_SENTENCE = f"a head of more than {LONGEST} octets"

Commands = layer.CommandGenerator[None]
Reads = Callable[[Any, events.ConnectionEvent], Commands]


def bound_heads() -> None:
    """From now on, once for a process."""
    Http1Server.read_headers = _bounded_request  # type: ignore[assignment, method-assign]  # the point of this file
    Http1Client.read_headers = _bounded_answer  # type: ignore[assignment, method-assign]  # likewise


def _bounded(plain: Reads, give_up: Callable[[Any], Commands]) -> Reads:
    @functools.wraps(plain)
    def read_headers(self: Any, event: events.ConnectionEvent) -> Commands:
        yield from plain(self, event)
        if self.state == self.read_headers and len(self.buf) > LONGEST:
            self.state = self.done
            yield from give_up(self)

    return read_headers


def _refuse(self: Http1Server) -> Commands:
    yield commands.SendData(self.conn, make_error_response(431, _SENTENCE))
    yield commands.CloseConnection(self.conn)


def _fail(self: Http1Client) -> Commands:
    yield commands.CloseConnection(self.conn)
    if self.stream_id is not None:
        yield ReceiveHttp(ResponseProtocolError(self.stream_id, _SENTENCE, ResponseProtocolError.code))


_bounded_request = _bounded(Http1Server.read_headers, _refuse)
_bounded_answer = _bounded(Http1Client.read_headers, _fail)
