"""Workers: several processes on one port, which share what they learn through the store.

mitmproxy is one loop on one core. The system deals connections out to whoever listens on a port with SO_REUSEPORT.
The parent only starts the workers, passes signals on, and ends them all if one of them ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
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
    children = [_fork(number, work, reading, writing) for number in range(count)]
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


def _fork(number: int, work: Callable[[int, Say], None], reading: int, writing: int) -> int:
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(number, work, writing)
    return child


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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind((host, port))
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            raise SettingsError(f"cannot listen on {host}:{port} ({why}): choose another with --listen") from None
        yield held.getsockname()[1]


def share_ports() -> None:
    """Have this process listen on ports that others may listen on, too."""
    alone = mode_servers.AsyncioServerInstance.listen

    async def listen(self: Any, host: str, port: int) -> Any:
        if self.mode.transport_protocol != "tcp":
            return await alone(self, host, port)
        return [await asyncio.start_server(self.handle_stream, host, port, reuse_port=True)]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[method-assign]  # the one place they begin
