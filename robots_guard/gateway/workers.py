"""Workers: several processes on one port, which share policies and turns through the store.

An event loop uses one core. The system distributes connections among the processes that
listen on a port with SO_REUSEPORT. The parent starts the workers, forwards signals, and stops all
of them when one exits. If the parent is killed, the workers notice the end of a pipe and exit.

`multiprocessing` cannot do this: each worker that it forks inherits the pipes of those forked
before, so after the parent's death they would notice it one after another. Its workers also wait
for hanging threads when they exit.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from robots_guard.errors import SettingsError

Say = Callable[[dict[str, str]], None]


def run(count: int, work: Callable[[int, Say], None], ready: Say) -> None:
    """Run `work(number, say)` in `count` processes. `ready` gets the message of the last one to be ready.

    Raises SettingsError with the message of a worker that raised it.
    """
    reading, writing = os.pipe()
    life, parent_end = os.pipe()  # only the parent has `parent_end` open
    children = [
        _fork(number, work, (reading, parent_end), writing, life) for number in range(count)
    ]
    os.close(life)
    os.close(writing)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _stop(children))
    signal.signal(signal.SIGHUP, lambda *_: _send(children, signal.SIGHUP))
    with os.fdopen(reading) as lines:
        try:
            _await_all(count, lines, ready)
        except SettingsError:
            _stop(children)
            _wait(children)
            raise
    status = _wait(children)
    if status:
        raise SettingsError(f"a worker ended with status {status}: all workers were stopped")


def _fork(
    number: int, work: Callable[[int, Say], None], parents: tuple[int, ...], writing: int, life: int
) -> int:
    child = os.fork()
    if child == 0:
        for descriptor in parents:
            os.close(descriptor)
        threading.Thread(target=_exit_with_parent, args=(life,), name="parent", daemon=True).start()
        _run_worker(number, work, writing)
    return child


def _exit_with_parent(life: int) -> None:
    os.read(life, 1)  # nothing is ever written: this returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)


def _run_worker(number: int, work: Callable[[int, Say], None], writing: int) -> NoReturn:
    def say(message: dict[str, str]) -> None:
        os.write(writing, json.dumps(message).encode() + b"\n")  # short enough to be one piece

    status = 1
    try:
        work(number, say)
        status = 0
    except SettingsError as error:
        say({"error": str(error)})
    except Exception:  # noqa: BLE001  `os._exit` below would lose the traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _await_all(count: int, lines: Any, ready: Say) -> None:
    for number, line in enumerate(lines, 1):
        message = json.loads(line)
        if "error" in message:
            raise SettingsError(message["error"])
        if number == count:
            ready(message)
            return


def _stop(children: list[int]) -> None:
    _send(children, signal.SIGTERM)


def _send(children: list[int], number: int) -> None:
    for child in children:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            continue


def _wait(children: list[int]) -> int:
    """Wait for all children and return the first exit status that is not 0. When one ends, the others are stopped."""
    left, failed = set(children), 0
    while left:
        child, status = os.wait()
        left.discard(child)
        failed = failed or os.waitstatus_to_exitcode(status)
        _stop(list(left))
    return failed


@contextmanager
def port_for_all(host: str, port: int) -> Iterator[int]:
    """Reserve a port that the workers share; `port` 0 takes a free one. Raises SettingsError."""
    try:
        # This fails on a port that other processes share.
        with _bind(host, port, socket.SO_REUSEADDR) as free:
            port = free.getsockname()[1]
        # Both options: connections of an earlier proxy in TIME_WAIT do not share the port by SO_REUSEPORT alone.
        reserved = _bind(host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise SettingsError(
            f"cannot listen on {host}:{port} ({why}): choose another with --listen"
        ) from None
    with reserved:
        yield port


def _bind(host: str, port: int, *options: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
