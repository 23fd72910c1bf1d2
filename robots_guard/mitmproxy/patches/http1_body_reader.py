"""`make_body_reader` chooses the reader of a body over HTTP/1, in requests and responses.

`Http1Connection.read_body` raises NotImplementedError if that reader finds a trailer field, and the
client waits forever. The replaced reader of chunked bodies drops trailers: RFC 9110 section 6.5.1
allows an intermediary to discard them. Between an HTTP/2 site and an HTTP/2 client, mitmproxy
forwards the trailers of a response. Those of a request are never forwarded: the enforcer removes
them.

The reader also bounds the size line of a chunk and the trailers, which mitmproxy collects until a
line ends; `body_size_limit` does not cover them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy.proxy.layers.http import _http1

from robots_guard.gateway.patch import Patch, method

#: Bytes of a size line or a trailer section; one that arrives in one piece may be longer.
LONGEST = 64 * 1024


class _Reader(ChunkedReader):
    """A reader of chunked bodies that reads their trailers and drops them."""

    def __call__(self, buf: Any) -> h11.Data | h11.EndOfMessage | None:
        event: h11.Data | h11.EndOfMessage | None = super().__call__(buf)
        if event is None and len(buf) > LONGEST:
            raise h11.RemoteProtocolError(
                f"a chunk's size line or trailers of more than {LONGEST} bytes"
            )
        if isinstance(event, h11.EndOfMessage) and event.headers:
            return h11.EndOfMessage()
        return event


def _replace_make_body_reader(plain: Callable[[int | None], Any]) -> Callable[[int | None], Any]:
    def make_body_reader(expected_size: int | None) -> Any:
        if expected_size is None:
            return _Reader()
        return plain(expected_size)

    return make_body_reader


PATCH = Patch(
    owner=_http1,
    methods=(method("make_body_reader", "9b076acda459", make=_replace_make_body_reader),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="mitmproxy raises on a trailer field, and the client waits forever.",
    report="""\
A chunked body with a trailer field leaves the client waiting forever.

`Http1Connection.read_body` raises NotImplementedError ("HTTP trailers are not implemented yet")
for a request or a response with trailers. A size line or a trailer section that does not end is
collected until the memory is full; `body_size_limit` does not apply to it.

To see it: let a server respond with `5\\r\\nwhole\\r\\n0\\r\\nX-Sum: 1\\r\\n\\r\\n`.

`read_body` should drop the fields (RFC 9110 section 6.5.1) or emit `RequestTrailers` and
`ResponseTrailers`, and limit what it collects.
""",
)
