"""Listeners: the addresses that a local service listens on, and their sockets.

Invariant: nothing listens beyond this machine unless the operator has allowed it. A Unix socket can
be used by its owner and its group only. That of a running service is never removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import resource
import socket
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from robots_guard.errors import SettingsError

log = logging.getLogger("robots_guard")

MODE = 0o660  # of a Unix socket
BACKLOG = 1024  # connections that wait to be accepted
_UNIX = "unix:"
_TCP = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/]+)):(?P<port>[0-9]{1,20})")
_LARGEST_PORT = 65_535
_EXHAUSTED = "socket.accept() out of system resource"  # asyncio's message
_REPORT_EVERY = 1.0  # seconds
_CONNECT_TIMEOUT = 1.0  # seconds; a local service answers at once, or is overloaded


class Address(NamedTuple):
    """An address to listen on: the path of a Unix socket, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        """The address as in the settings."""
        if self.path:
            return f"{_UNIX}{self.path}"
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"

    def of_worker(self, number: int) -> Address:
        """The address of one of several workers that do not share theirs: a path with the number
        behind it, or a further port. That of the first one is this."""
        if number == 0:
            return self
        if self.path:
            return self._replace(path=f"{self.path}.{number}")
        return self._replace(port=self.port + number)

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def address_of(text: str, option: str, *, allow_remote: bool = False) -> Address:
    """Return an address from `unix:PATH` or HOST:PORT. Raises SettingsError, which names the
    option."""
    if text.startswith(_UNIX):
        if text == _UNIX:
            raise SettingsError(f"{option} {text!r} names no path: write unix:/run/NAME.sock")
        # Absolute below, because the path is for other programs, too.
        path = os.path.expanduser(text.removeprefix(_UNIX))  # noqa: PTH111  Path.expanduser fails without a home
        return Address(path=str(Path(path).absolute()))
    found = _TCP.fullmatch(text)
    if found is None or int(found["port"]) > _LARGEST_PORT:
        raise SettingsError(
            f"{option} {text!r} is not an address: use unix:PATH or HOST:PORT, such as 127.0.0.1:9001"
        )
    address = Address(host=found["v6"] or found["host"], port=int(found["port"]))
    if not (address.is_local or allow_remote):
        raise SettingsError(
            f"{option} {text!r} can be reached from other machines, without credentials: use a Unix"
            " socket or 127.0.0.1, or set allow_remote"
        )
    return address


@contextmanager
def listening(address: Address, option: str) -> Iterator[socket.socket]:
    """Listen on an address in the block; a Unix socket is removed at its end. Raises
    SettingsError."""
    try:
        listener = _listen_at_path(address.path) if address.path else _listen_at_port(address)
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise SettingsError(
            f"{option} {address}: cannot listen ({why}): {_remedy(address, error)}"
        ) from None
    file = _file_at(address.path)
    try:
        with listener:
            yield listener
    finally:
        if file is not None and _file_at(address.path) == file and os.getpid() == file.owner:
            Path(address.path).unlink()


def _remedy(address: Address, error: OSError) -> str:
    folder = Path(address.path).parent
    if address.path and isinstance(error, FileNotFoundError):
        return f"create the directory {folder}"
    if address.path and isinstance(error, PermissionError):
        return f"let this user write to the directory {folder}, or choose another one"
    return "choose another address"


class _SocketFile(NamedTuple):
    """The identity of a file, and the process that made it: its forked children leave it alone."""

    device: int
    inode: int
    owner: int


def _file_at(path: str) -> _SocketFile | None:
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        return _SocketFile(found.st_dev, found.st_ino, os.getpid())
    return None


def _listen_at_port(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    host = "127.0.0.1" if address.host == "localhost" else address.host
    return socket.create_server((host, address.port), family=family, backlog=BACKLOG)


def _listen_at_path(path: str) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~MODE)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket of a service that has ended without removing it. Raises FileExistsError for
    any other file, and OSError if a service listens on it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"there is a file at {path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except FileNotFoundError:
            return
        except TimeoutError:
            pass
    raise OSError("another process listens there")


async def start_server(
    factory: Callable[[], asyncio.BaseProtocol], listener: socket.socket
) -> asyncio.Server:
    """Accept the connections of a listener. `factory` makes a protocol for each.

    When the process cannot open another file, asyncio retries after a second. But it tries to accept
    `backlog` connections at a time, and reports and retries each of them. So `backlog` is 1 here,
    and the queue of the listener, which asyncio sets to the same number, is made long again.
    """
    server = await asyncio.get_running_loop().create_server(factory, sock=listener, backlog=1)
    listener.listen(BACKLOG)
    return server


class ServedConnection(Protocol):
    """A connection of a `ConnectionServer`, which it leaves when it is lost."""

    ended: asyncio.Event

    def end(self) -> None:
        """Close the connection after the answer in progress."""


class ConnectionServer:
    """A server on one socket, with its connections."""

    def __init__(self) -> None:
        self.connections: set[ServedConnection] = set()

    async def start(
        self, factory: Callable[[], asyncio.BaseProtocol], listener: socket.socket
    ) -> None:
        """Accept the connections of a listener. `factory` makes a protocol for each."""
        self._server = await start_server(factory, listener)

    def close(self) -> None:
        """Accept no more connections, and close each one after the answer in progress."""
        self._server.close()
        for connection in list(self.connections):
            connection.end()

    async def wait_closed(self) -> None:
        """Wait for the end of all connections."""
        for connection in list(self.connections):
            await connection.ended.wait()
        await self._server.wait_closed()


async def start_stream_server(
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    listener: socket.socket,
) -> asyncio.Server:
    """Accept the connections of a listener as `asyncio.start_server` does."""

    def protocol() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), accept)

    return await start_server(protocol, listener)


def report_exhaustion(loop: asyncio.AbstractEventLoop, counts: Callable[[], Counter[str]]) -> None:
    """Log at most once a second that no connection can be accepted, and count each attempt.

    The loop's previous handler gets all other errors.
    """
    before = loop.get_exception_handler()
    reported = -_REPORT_EVERY

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported
        if context.get("message") != _EXHAUSTED:
            if before is None:
                loop.default_exception_handler(context)
            else:
                before(loop, context)
            return
        counts()["accept/error"] += 1
        if loop.time() - reported >= _REPORT_EVERY:
            reported = loop.time()
            log.error(
                "robots_guard accepts no new connections for a second: %s; raise the limit of the"
                " process (ulimit -n, LimitNOFILE=), or start more processes",
                context.get("exception"),
            )

    loop.set_exception_handler(handle)


def raise_file_limit() -> None:
    """Raise the limit of open files as far as this process may: a request that waits for a
    robots.txt has a socket, and most shells allow 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
