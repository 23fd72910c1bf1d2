"""A site that does not read the body of a request, and so parses it as the next request."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading

import trustme


class _Unread(http.server.SimpleHTTPRequestHandler):
    """The handler of `python3 -m http.server --protocol HTTP/1.1`, which does not read bodies of
    GET, and answers other methods in the same way. Unlike it, this one survives a line of junk
    between two requests.
    """

    protocol_version = "HTTP/1.1"

    def parse_request(self) -> bool:
        """Skip a line that is no request line, such as the length of a chunk, as some servers do."""
        while len(self.raw_requestline.split()) == 1:
            self.raw_requestline = self.rfile.readline(65537)
        return super().parse_request()

    def do_GET(self) -> None:
        self.server.lines.append(self.requestline)
        body = (
            b"User-agent: *\nDisallow: /private/\n"
            if self.path == "/robots.txt"
            else self.path.encode()
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PROPFIND = do_TRACE = do_GET  # noqa: N815

    def finish(self) -> None:
        """Close like nginx (lingering_close): an unread body would reset the connection and lose
        the answer.
        """
        super().finish()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(65536):
                pass

    def log_message(self, *_) -> None:
        """Print nothing."""


class UnreadSite(http.server.ThreadingHTTPServer):
    """A site that answers a request at once and parses its body as the next request.

    `lines` are the request lines it has read. With an `authority`, it uses TLS.
    Clients know it by `name`.
    """

    def __init__(self, authority: trustme.CA | None = None, name: str = "127.0.0.1") -> None:
        super().__init__(("127.0.0.1", 0), _Unread)
        self.lines: list[str] = []
        self.scheme = "http" if authority is None else "https"
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(context)
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
        self.authority = f"{name}:{self.server_port}"
        self.url = f"{self.scheme}://{self.authority}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_) -> None:
        """Ignore errors, such as a client that closes."""
