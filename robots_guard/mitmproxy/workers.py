"""Workers: several processes on one port, which share what they learn through the store.

mitmproxy is one loop on one core. The system deals connections out to whoever listens on a port with SO_REUSEPORT.
The parent only starts the workers, passes signals on, and ends them all if one of them ends; if it is killed itself,
they end by a pipe whose other end nobody holds any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from mitmproxy.proxy import mode_servers

from robots_guard.errors import SettingsError

Say = Callable[[dict[str, str]], None]


def run(count: int, work: Callable[[int, Say], None], ready: Say) -> None:
    """Run `work(number, say)` in that many processes; `ready` gets what the last of them to be ready says.

    Raises SettingsError with what one of them raised it with.
    """
    reading, writing = os.pipe()
    life, held = os.pipe()  # `held` by the parent alone, while it lives
    children = [_fork(number, work, (reading, held), writing, life) for number in range(count)]
    os.close(life)
    os.close(writing)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(children))
    signal.signal(signal.SIGHUP, lambda *_: _send(children, signal.SIGHUP))
    with os.fdopen(reading) as lines:
        try:
            _await_all(count, lines, ready)
        except SettingsError:
            _end(children)
            _wait(children)
            raise
    status = _wait(children)
    if status:
        raise SettingsError(f"a worker ended with status {status}: all were ended")


def _fork(number: int, work: Callable[[int, Say], None], parents: tuple[int, ...], writing: int, life: int) -> int:
    child = os.fork()
    if child == 0:
        for descriptor in parents:
            os.close(descriptor)
        threading.Thread(target=_end_with_parent, args=(life,), name="parent", daemon=True).start()
        _work(number, work, writing)
    return child


def _end_with_parent(life: int) -> None:
    os.read(life, 1)  # nobody ever writes: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)


def _work(number: int, work: Callable[[int, Say], None], writing: int) -> NoReturn:
    def say(what: dict[str, str]) -> None:
        os.write(writing, json.dumps(what).encode() + b"\n")  # short enough to be one piece

    status = 1
    try:
        work(number, say)
        status = 0
    except SettingsError as error:
        say({"error": str(error)})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _await_all(count: int, lines: Any, ready: Say) -> None:
    for number, line in enumerate(lines, 1):
        said = json.loads(line)
        if "error" in said:
            raise SettingsError(said["error"])
        if number == count:
            ready(said)
            return


def _end(children: list[int]) -> None:
    _send(children, signal.SIGTERM)


def _send(children: list[int], number: int) -> None:
    for child in children:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            continue


def _wait(children: list[int]) -> int:
    """Wait for all; the first status that is not 0. One that ends takes the others along."""
    left, failed = set(children), 0
    while left:
        child, status = os.wait()
        left.discard(child)
        failed = failed or os.waitstatus_to_exitcode(status)
        _end(list(left))
    return failed


@contextmanager
def port_for_all(host: str, port: int) -> Iterator[int]:
    """A port that workers may share, kept from others in between; `port` 0 takes a free one. Raises SettingsError."""
    try:
        with _bound(host, port, socket.SO_REUSEADDR) as free:  # refuses a port that others share among themselves
            port = free.getsockname()[1]
        # Both: connections of an earlier proxy that wait for their end (TIME_WAIT) do not share by SO_REUSEPORT.
        held = _bound(host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise SettingsError(f"cannot listen on {host}:{port} ({why}): choose another with --listen") from None
    with held:
        yield port


def _bound(host: str, port: int, *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def share_ports() -> None:
    """Have this process listen on ports that others may listen on, too."""
    alone = mode_servers.AsyncioServerInstance.listen

    async def listen(self: Any, host: str, port: int) -> Any:
        if self.mode.transport_protocol != "tcp":
            return await alone(self, host, port)
        return [await asyncio.start_server(self.handle_stream, host, port, reuse_port=True)]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[method-assign]  # the one place they begin
