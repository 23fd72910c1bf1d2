"""Access control for all pages: Host, token and origin checks, and the headers that restrict the
browser.

Invariant: any web page that the user opens can send requests to a console on loopback. Therefore
the Host must be one of the console's (DNS rebinding can point another name at 127.0.0.1), the token
must be present (in a cookie that no other site can send), and a request that changes something must
come from a page of the console. A read-only console can change nothing and needs no token: the
integration in front of it decides which clients may read.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robots_guard.app.console.markup import TEMPLATES

SAFE_METHODS = ("GET", "HEAD")
COOKIE_LIFE = 30 * 86400  # seconds

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Other sites get no Referer. Not "no-referrer": with it a browser sends the console's own forms with
    # `Origin: null` (Fetch, "append a request Origin header"), like those of a foreign page.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class AccessControl:
    """Passes permitted requests to `app` and refuses the others. `hosts` are the accepted Host
    values, in lower case.

    `close` closes the files that the pages have open; a server with ASGI lifespan support calls it
    at shutdown.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        token: str,
        read_only: bool,
        close: Callable[[], None],
    ) -> None:
        self.close = close
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            else:  # a WebSocket, which any page may try to open
                await send({"type": "websocket.close"})
            return
        response = self._refuse_or_log_in(scope, Headers(scope=scope))
        await (response or self._app)(scope, receive, _add_headers(send))

    def _refuse_or_log_in(self, scope: Scope, headers: Headers) -> Response | None:
        """Return a refusal, the response to a log-in, or None for a request that may pass."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _refuse(
                421,
                "The console does not answer under this name: open the address that it printed.",
            )
        if scope["method"] not in SAFE_METHODS and (self._read_only or scope["method"] != "POST"):
            return _refuse(405, "Nothing can be changed here.", Allow="GET, HEAD")
        if self._read_only:
            return None
        login = self._log_in(scope, hosts[0])
        if login is not None:
            return login
        if not self._has_cookie(headers, hosts[0]):
            return _refuse(
                403, "A token is needed: open the address that the console printed when it started."
            )
        if scope["method"] == "POST" and not _is_from_console(headers, scope["scheme"], hosts[0]):
            return _refuse(
                403, "This request did not come from a page of the console, so nothing was done."
            )
        return None

    def _log_in(self, scope: Scope, host: str) -> Response | None:
        """Answer a request with the token in its address: set the cookie, and go to the address
        without the token.

        Returns None if there is no token in the address.
        """
        query = parse_qs(
            scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="replace"
        )
        tokens = query.pop("token", None)
        if tokens is None or scope["method"] != "GET":
            return None
        if len(tokens) != 1 or not _are_equal(tokens[0], self._token):
            return _refuse(
                403,
                "The token is wrong or outdated: open the address that the console printed last.",
            )
        path = "/" + quote(scope["path"].lstrip("/\\"))  # "//host" would lead to another site
        response = _forward_to(f"{path}?{urlencode(query, doseq=True)}" if query else path)
        response.set_cookie(
            cookie_name(host),
            self._token,
            max_age=COOKIE_LIFE,
            path="/",
            httponly=True,
            samesite="strict",
        )
        return response

    def _has_cookie(self, headers: Headers, host: str) -> bool:
        """Whether a cookie has the token. All cookies are compared, so that the time does not
        depend on the values."""
        name = cookie_name(host)
        found = False
        for field in headers.getlist("cookie"):
            for pair in field.split(";"):
                key, _, value = pair.strip().partition("=")
                found |= key == name and _are_equal(value, self._token)
        return found


def cookie_name(host: str) -> str:
    """Return the cookie's name, with the port in it: a browser sends a cookie to all ports of a
    host."""
    port = host.rpartition(":")[2] if host[-1:].isdigit() else "80"
    return f"robots_guard_{port}"


def _are_equal(given: str, expected: str) -> bool:
    """Compare in constant time, so that an attacker learns nothing from how long it takes."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _is_from_console(headers: Headers, scheme: str, host: str) -> bool:
    """Whether the browser states that a page of the console sent this.

    This suffices against forged requests, for all forms at once: a page cannot set Origin or
    Sec-Fetch-Site, every browser that supports SameSite cookies sends at least one of them with a
    POST, and a POST with neither is refused. A secret in each form would add nothing: only a page
    of the console could read it.
    """
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    if not origins and not sites:
        return False
    # A field may come twice: each must say the same.
    return {*origins} <= {f"{scheme}://{host}"} and {*sites} <= {"same-origin"}


def _forward_to(address: str) -> Response:
    """Return a page that forwards the browser at once.

    An HTTP redirect would not work: after a link on another site it belongs to the cross-site
    navigation, and browsers withhold SameSite=Strict cookies.
    """
    return HTMLResponse(TEMPLATES.get_template("forward.html").render(address=address))


def _refuse(status: int, sentence: str, **headers: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, headers)


def _add_headers(send: Send) -> Send:
    """Wrap `send` so that each response has the headers that restrict the browser."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
