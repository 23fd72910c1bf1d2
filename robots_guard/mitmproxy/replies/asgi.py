"""Calls of an ASGI application under the proxy's own name, for requests without a body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from mitmproxy import http

from robots_guard.gateway.refusal import ProxyReply

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


async def call(
    app: Application, request: http.Request, client: tuple[Any, ...], root: str
) -> ProxyReply:
    """Return the reply of the application mounted at the path `root`. Raises what the application raises."""
    sent: list[Message] = []
    unread: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not unread:  # a second call waits for the client to disconnect; if it returned, the caller would loop
            await asyncio.Event().wait()
        return unread.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(_scope(request, client, root), receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    headers = tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in start.get("headers", ())
    )
    return ProxyReply(
        start["status"], headers, b"".join(message.get("body", b"") for message in sent)
    )


def _scope(request: http.Request, client: tuple[Any, ...], root: str) -> Message:
    path, _, query = request.path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": root,
        "query_string": query.encode(),
        "headers": [(name.lower(), value) for name, value in request.headers.fields],
        "client": client[:2],
        "server": (request.host, request.port),
    }
