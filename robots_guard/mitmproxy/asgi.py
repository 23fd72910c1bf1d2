"""An ASGI application behind the proxy's own name: a request without a body in, a reply out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from mitmproxy import http

from robots_guard.mitmproxy.replies import Reply

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


async def asked(app: Application, request: http.Request, client: tuple[Any, ...], root: str) -> Reply:
    """What the application, which lies under the path `root`, answers. Raises what it raises."""
    said: list[Message] = []
    unread: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not unread:  # who asks again waits for a client that leaves: at once, it would ask for ever
            await asyncio.Event().wait()
        return unread.pop()

    async def send(message: Message) -> None:
        said.append(message)

    await app(_scope(request, client, root), receive, send)
    start = next(message for message in said if message["type"] == "http.response.start")
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ()))
    return Reply(start["status"], headers, b"".join(message.get("body", b"") for message in said))


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
