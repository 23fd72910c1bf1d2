"""An origin behind a tap: what reaches its address at all, before HTTP or TLS make sense of it.

`RecordingOrigin` sees requests; the tap before it sees TCP accepts, ClientHellos and bytes. "Not touched" means
that none of these has happened.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from robots_guard.testing import Loopback, RecordingOrigin, Reply

RULES = "User-agent: *\nDisallow: /private/\n"


class Tap:
    """Passes connections on to another port of the same address, and counts."""

    def __init__(self, address: str, behind: int, port: int = 0) -> None:
        self.accepts = 0
        self.hellos = 0
        self.byte_count = 0
        self.pauses: list[float] = []  # seconds before the next connections get on
        self._behind = (address, behind)
        self._listener = socket.create_server((address, port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="tap").start()

    def lead_to(self, other: Site) -> None:
        """Pass new connections on to another site."""
        self._behind = (other.origin.address, other.origin.port)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepts += 1
                threading.Thread(
                    target=self._pass_on, args=(client,), daemon=True, name="tapped"
                ).start()

    def _pass_on(self, client: socket.socket) -> None:
        if self.pauses:
            time.sleep(self.pauses.pop(0))
        with client, socket.create_connection(self._behind) as origin:
            back = threading.Thread(
                target=_copy, args=(origin, client), daemon=True, name="tapped-back"
            )
            back.start()
            for number, data in enumerate(_received(client)):
                self.byte_count += len(data)
                self.hellos += number == 0 and data.startswith(b"\x16\x03")
                with contextlib.suppress(OSError):
                    origin.sendall(data)
            with contextlib.suppress(OSError):
                origin.shutdown(socket.SHUT_WR)
            back.join()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()


def _received(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            yield data


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for data in _received(source):
            # Fails when the client has gone, so an answer without end is not read for ever.
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@dataclass
class Site:
    """An origin and its tap. `host` and `port` are those of clients' URLs."""

    origin: RecordingOrigin
    tap: Tap
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def scheme(self) -> str:
        return self.origin.scheme

    @property
    def host(self) -> str:
        return self.origin.address

    @property
    def port(self) -> int:
        return self.tap.port

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def seen(self) -> tuple[int, int, int, int]:
        """Everything that has reached this address so far."""
        return self.tap.accepts, self.tap.hellos, self.tap.byte_count, len(self.origin.received)


class Sites:
    """Starts sites, each on an address of its own, with a certificate for it where it speaks TLS."""

    addresses = (f"127.3.{high}.{low}" for high in range(250) for low in range(1, 250))

    def __init__(self, net: Loopback, authority: object) -> None:
        self._net = net
        self._ca = authority
        self._taps: list[Tap] = []

    def start(
        self,
        scheme: str = "http",
        robots: object = RULES,
        pages: Mapping[str, object] | None = None,
        authority: object = None,
        names: tuple[str, ...] = ("localhost",),
    ) -> Site:
        """`authority` signs its certificate, for its address and `names`; by default the one that the proxies trust."""
        address = next(self.addresses)
        tls = self._tls((address, *names), authority or self._ca) if scheme == "https" else None
        origin = self._net.origin(robots, pages, tls=tls, address=address)  # type: ignore[arg-type]
        tap = Tap(address, origin.port)
        self._taps.append(tap)
        return Site(origin, tap)

    def _tls(self, names: tuple[str, ...], authority: object) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)  # type: ignore[attr-defined]
        return context

    def close(self) -> None:
        for tap in self._taps:
            tap.close()


__all__ = ["RULES", "Reply", "Site", "Sites", "Tap"]
