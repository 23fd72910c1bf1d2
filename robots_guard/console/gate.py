"""The gate before all pages: who may come in, under which name, and what a browser may do with what it gets.

The law of this file: a console on loopback is within reach of every page a browser opens. So the Host must be one
of ours (a stranger's name may have been pointed at 127.0.0.1), the token must be known (in a cookie that no other
site's page can send), and what changes anything must come from a page of our own. Read-only, nothing can be changed,
and whoever reaches the app may read: the door in front of it decides that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection
from html import escape
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING = ("GET", "HEAD")
COOKIE_LIFE = 30 * 86400  # seconds

FIELDS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Nobody else is told where a reader came from. Not "no-referrer": under that a browser sends our own forms
    # with `Origin: null` (Fetch, "append a request Origin header"), and we could not tell them from a stranger's.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Gate:
    """Lets through to `app` what may pass. `hosts` are the values of Host that are ours, in lower case.

    `close` lets go what the pages have open; a server that tells of its end (ASGI lifespan) calls it by itself.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str, read_only: bool, close: Callable[[], None]
    ) -> None:
        self.close = close
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = self._refusal(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, _sealed(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to what does not pass, or None."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _no(421, "The console does not answer under this name: open the address that it printed.")
        if scope["method"] not in READING and (self._read_only or scope["method"] != "POST"):
            return _no(405, "Nothing can be changed here.", Allow="GET, HEAD")
        if self._read_only:
            return None
        entered = self._entering(scope, hosts[0])
        if entered is not None:
            return entered
        if not self._knows(headers, hosts[0]):
            return _no(403, "Open the console by the address that it printed at its start: the token in it is needed.")
        if scope["method"] == "POST" and not _is_own(headers, scope["scheme"], hosts[0]):
            return _no(403, "This did not come from a page of the console: nothing was done.")
        return None

    def _entering(self, scope: Scope, host: str) -> Response | None:
        """Who brings the token in the address gets a cookie, and the same address without it."""
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="replace")
        brought = query.pop("token", None)
        if brought is None or scope["method"] != "GET":
            return None
        if len(brought) != 1 or not _same(brought[0], self._token):
            return _no(403, "This token is not the console's: open the address that it printed at its last start.")
        path = "/" + quote(scope["path"].lstrip("/\\"))  # never another host's
        answer = _onwards(f"{path}?{urlencode(query, doseq=True)}" if query else path)
        answer.set_cookie(
            cookie_name(host), self._token, max_age=COOKIE_LIFE, path="/", httponly=True, samesite="strict"
        )
        return answer

    def _knows(self, headers: Headers, host: str) -> bool:
        name = cookie_name(host)
        found = False
        for field in headers.getlist("cookie"):
            for pair in field.split(";"):
                key, _, value = pair.strip().partition("=")
                found |= key == name and _same(value, self._token)
        return found


def cookie_name(host: str) -> str:
    """A cookie goes to all ports of a host: each console has a name of its own."""
    return f"robots_guard_{host.rpartition(':')[2] if host[-1:].isdigit() else '80'}"


def form_token(token: str) -> str:
    """What a form of ours carries: not the token itself, and of no use without it."""
    return hmac.digest(token.encode(), b"robots_guard form", hashlib.sha256).hex()


def is_form_token(given: str, token: str) -> bool:
    """Whether a form is one of ours."""
    return bool(token) and _same(given, form_token(token))


def _same(given: str, wanted: str) -> bool:
    """In a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _is_own(headers: Headers, scheme: str, host: str) -> bool:
    """Whether a browser says that a page of ours has sent this. One that says neither is too old to be trusted."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None and site is None:
        return False
    return origin in (None, f"{scheme}://{host}") and site in (None, "same-origin")


def _onwards(address: str) -> Response:
    """A page of our own that leads on at once. A redirect would not do: of whoever comes by a link on another site's
    page, it is a part of that site's request, with which a strict cookie does not go."""
    to = escape(address)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>robots_guard</title>'
        f'<meta http-equiv="refresh" content="0; url={to}"><p><a href="{to}">To the console</a></p></html>'
    )


def _no(status: int, sentence: str, **fields: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, fields)


def _sealed(send: Send) -> Send:
    """Send, each answer with the fields that bind a browser."""

    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            fields = MutableHeaders(scope=message)
            for name, value in FIELDS.items():
                fields.setdefault(name, value)
        await send(message)

    return sealed
