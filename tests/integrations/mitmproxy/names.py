"""A parent proxy that stands in for DNS: every name leads to a given site, at any port.

So a test can request http://example.test/ and https://example.test/ at their own ports, on a machine where these
names do not exist and those ports are not available.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from integrations.mitmproxy.origin import Site


class Names:
    """Sends connections for port 443 to `secure`, others to `plain`, except for the hosts in `others`."""

    def __init__(self, plain: Site, secure: Site, others: dict[str, Site]) -> None:
        self._plain, self._secure, self._others = plain, secure, others
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True, name="names").start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(client,), daemon=True, name="named"
                ).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        with client, contextlib.suppress(OSError):
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte:
                    return
                head += byte
            method, target, _ = head.split(b"\r\n")[0].split(b" ", 2)
            authority = (target if method == b"CONNECT" else target.split(b"/")[2]).decode()
            host, _, port = authority.partition(":")
            site = self._others.get(host) or (self._secure if port == "443" else self._plain)
            with socket.create_connection((site.host, site.port)) as origin:
                if method == b"CONNECT":
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    origin.sendall(head.replace(f"http://{authority}".encode(), b"", 1))
                back = threading.Thread(
                    target=_copy, args=(origin, client), daemon=True, name="named-back"
                )
                back.start()
                _copy(client, origin)
                back.join()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
