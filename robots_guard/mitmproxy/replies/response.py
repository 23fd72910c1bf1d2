"""The proxy's own responses, in mitmproxy's form."""

from __future__ import annotations

from http import HTTPStatus

from mitmproxy import http

from robots_guard.gateway.refusal import ProxyReply


class Refusal(http.Response):
    """A response made by the guard. The body of the request it answers is not needed."""

    @classmethod
    def of(cls, reply: ProxyReply, method: str) -> Refusal:
        """A reply as mitmproxy's response to a request with that method."""
        response = cls.make(reply.status, reply.body, dict(reply.headers))
        response.reason = HTTPStatus(reply.status).phrase  # mitmproxy does not know them all
        if method == "HEAD":
            del response.headers["content-length"]  # the length of a response to GET is not known
        assert isinstance(response, cls)
        return response


class NoRoom(Refusal):
    """The response to an upload for which there is no room."""
