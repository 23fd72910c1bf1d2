"""Replies: the proxy's own responses, in mitmproxy's form.

The status site answers requests for http://robots.guard/ or for the proxy's own address:

    /          whether requests are judged, and the counts of decisions
    /ready     the same for programs: 200 while requests are judged, 503 otherwise
    /ca.pem    the certificate that clients must trust
    /why/ID    a recent refusal, by the id in its response
    /console   the web console, read-only, if it is enabled

The name is not a public one, and no request for it leaves the proxy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from cachetools import LRUCache
from mitmproxy import http
from mitmproxy.proxy import mode_specs

from robots_guard.audit.privacy import shown_url
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.gateway.refusal import ProxyReply, render
from robots_guard.invocation import Invocation
from robots_guard.mitmproxy.ca import CA_CERTIFICATE

HOST = "robots.guard"
CONSOLE = "/console"
_REMEMBERED = 2000  # refusals
_FORWARD = (mode_specs.RegularMode, mode_specs.UpstreamMode)
_HELP = "This is a proxy for crawlers, not a site: set it as http_proxy and https_proxy, and request a site.\n"
_LENGTH = b"content-length"

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


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


# -- the status site -----------------------------------------------------------------------------


class StatusSite:
    """Answers requests for the proxy itself.

    `reply_to` makes the response to a refused request, from the decision, its method and its Accept
    field. `invocation` returns what printed commands must name. `console` is a read-only ASGI
    application.
    """

    def __init__(
        self,
        reply_to: Callable[[Decision, str, str], ProxyReply],
        invocation: Callable[[], Invocation],
        console: Application | None = None,
    ) -> None:
        self._reply_to = reply_to
        self._invocation = invocation
        self._console = console
        self._refused: LRUCache[str, Decision] = LRUCache(_REMEMBERED)

    def remember(self, decision: Decision) -> None:
        """Keep a refusal for /why."""
        self._refused[decision.id] = decision

    async def answer(
        self, flow: http.HTTPFlow, *, fault: str | None, counts: Counter[str], confdir: str
    ) -> ProxyReply:
        """The answer to a request for the proxy itself."""
        request = flow.request
        if _is_own_name(request) and self._console is not None and _is_below(CONSOLE, request.path):
            reply = await _call(self._console, request, flow.client_conn.peername, CONSOLE)
        elif _is_own_name(request):
            reply = self._page(request.path.partition("?")[0], fault, counts, confdir)
        else:
            reply = _text(400, _HELP)
        if request.method == "HEAD":
            return reply._replace(body=b"")
        return reply

    def _page(self, path: str, fault: str | None, counts: Counter[str], confdir: str) -> ProxyReply:
        if path == "/":
            return _html(200, _status(fault, counts, has_console=self._console is not None))
        if path == "/ready":
            if fault:
                return _text(503, f"{fault}\n")
            return _text(200, "ready\n")
        if path == "/ca.pem":
            return _certificate(Path(confdir).expanduser() / CA_CERTIFICATE)
        if path.startswith("/why/"):
            return self._why(path.removeprefix("/why/"))
        paths = ["/", "/ready", "/ca.pem"]
        if self._console is not None:
            paths.append(f"{CONSOLE}/")
        return _text(404, f"The pages are {', '.join(paths)} and /why/ID.\n")

    def _why(self, number: str) -> ProxyReply:
        decision = self._refused.get(number)
        if decision is None:
            command = self._invocation().command("audit", "query", "--id", number[:64])
            return _text(404, f"Not among the last {_REMEMBERED} refusals: {command}\n")
        reply = self._reply_to(_without_secrets(decision), "GET", "text/html")
        return _html(200, reply.body)


def _without_secrets(decision: Decision) -> Decision:
    """Remove secrets from the URL, as in the audit log: every client may read /why, and ids are easily guessed.

    The page about a request that was answered with a placeholder is a page nevertheless.
    """
    question = decision.question
    shown = shown_url(f"{question.origin}{question.target}").removeprefix(str(question.origin))
    return msgspec.structs.replace(
        decision, question=msgspec.structs.replace(question, target=shown, subresource=None)
    )


def is_for_proxy(flow: http.HTTPFlow) -> bool:
    """Whether a request is for the proxy itself, not for a site."""
    return _is_own_name(flow.request) or _is_own_address(flow)


def _is_below(root: str, path: str) -> bool:
    path = path.partition("?")[0]
    return path == root or path.startswith(f"{root}/")


def _is_own_name(request: http.Request) -> bool:
    return request.data.host.lower().removesuffix(".") == HOST


def _is_own_address(flow: http.HTTPFlow) -> bool:
    """Whether a client has requested the proxy's own address as if it were a site, which would cause a loop."""
    client, request = flow.client_conn, flow.request
    if request.data.scheme != b"http" or request.data.port != client.sockname[1]:
        return False
    own = str(client.sockname[0])
    if request.host != own and not (request.host == "localhost" and own in ("127.0.0.1", "::1")):
        return False
    return isinstance(client.proxy_mode, _FORWARD)


def _status(fault: str | None, counts: Counter[str], *, has_console: bool) -> bytes:
    verdicts = {
        name: count for name, count in counts.items() if name.partition("/")[0] in set(Action)
    }
    return render(
        "status.html",
        fault=fault,
        verdicts=sorted(verdicts.items()),
        console=f"{CONSOLE}/" if has_console else None,
    )


def _certificate(path: Path) -> ProxyReply:
    try:
        content = path.read_bytes()
    except OSError:
        return _text(404, "There is no certificate yet: it is made when a client first uses TLS.\n")
    disposition = ("Content-Disposition", 'attachment; filename="robots-guard-ca.pem"')
    return ProxyReply(
        200, (("Content-Type", "application/x-pem-file"), disposition, *_COMMON), content
    )


_COMMON = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


def _text(status: int, text: str) -> ProxyReply:
    return ProxyReply(
        status, (("Content-Type", "text/plain; charset=utf-8"), *_COMMON), text.encode()
    )


def _html(status: int, body: bytes) -> ProxyReply:
    policy = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
    return ProxyReply(
        status, (("Content-Type", "text/html; charset=utf-8"), policy, *_COMMON), body
    )


# -- an ASGI application -------------------------------------------------------------------------


async def _call(
    app: Application, request: http.Request, client: tuple[Any, ...], root: str
) -> ProxyReply:
    """The reply of the application mounted at the path `root`, to a request without a body.

    Raises what the application raises.
    """
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
