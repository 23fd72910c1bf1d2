"""The proxy's own responses, in mitmproxy's form."""

from __future__ import annotations

from http import HTTPStatus

from mitmproxy import http

from robots_guard.gateway.refusal import ProxyReply
from robots_guard.settings import CLOCKS

_LENGTH = b"content-length"


class Refusal(http.Response):
    """A response made by the guard. The body of the request it answers is not needed."""

    @classmethod
    def of(cls, reply: ProxyReply, method: str) -> Refusal:
        """A reply as mitmproxy's response to a request with that method.

        It equals the result of mitmproxy's `Response.make`, which takes longer, apart from the
        Content-Length of a 204.
        """
        fields = [_field(name, value) for name, value in dict(reply.headers).items()]
        fields = [field for field in fields if field[0].lower() != _LENGTH]
        has_length = reply.status != HTTPStatus.NO_CONTENT  # RFC 9110 section 8.6
        if has_length and method != "HEAD":  # the length of a response to GET is not known
            fields.append((_LENGTH, b"%d" % len(reply.body)))
        now = CLOCKS.now()
        return cls(
            http_version=b"HTTP/1.1",
            status_code=reply.status,
            reason=HTTPStatus(reply.status).phrase.encode(),  # mitmproxy does not know them all
            headers=http.Headers(fields),
            content=reply.body,
            trailers=None,
            timestamp_start=now,
            timestamp_end=now,
        )


class NoRoom(Refusal):
    """The response to an upload for which there is no room."""


def _field(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), value.encode("utf-8", "surrogateescape")
