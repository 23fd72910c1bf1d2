"""A name server for tests, in the place of `socket.getaddrinfo`."""

from __future__ import annotations

import socket
import threading
from typing import Any


class NameServer:
    """Resolves the names below `.test`. Each lookup takes the next one of `answers`, which are lists
    of addresses.

    The last answer is repeated. An empty one means that the name is unknown. While `gate` is
    cleared, no answer is given. `asked` has the names that were looked up, in order.
    """

    def __init__(self) -> None:
        self.answers: list[list[str]] = []
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self._system = socket.getaddrinfo

    def getaddrinfo(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if not str(host).endswith(".test"):
            return self._system(host, port, *args, **options)
        self.asked.append(host)
        assert self.gate.wait(10)
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]
