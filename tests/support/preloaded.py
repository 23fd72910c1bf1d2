"""A Python that has imported what many programs need; each program is a fork of it, and so starts in milliseconds.

The imports of Scrapy and of the guard take eight tenths of a small crawl's time. What is forked is a process of its
own, with the environment, the files and the end that `subprocess.run` would give it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 1024 * 1024  # bytes of a request


class Preloaded:
    """The process that forks, started with the first program."""

    def __init__(self, options: Sequence[str], modules: Sequence[str]) -> None:
        self._command = [sys.executable, *options, __file__]
        self._modules = modules
        self._link: socket.socket | None = None
        self._one = threading.Lock()

    def run(
        self, script: str, stdin: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, as `subprocess.run` does. Raises subprocess.TimeoutExpired."""
        with self._one, contextlib.ExitStack() as stack:
            link = self._link = self._link or self._start(environment)
            files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            request = json.dumps([script, dict(environment)]).encode()
            socket.send_fds(link, [request], [file.fileno() for file in files])
            status = _await(link, timeout)
            out, err = map(_read, files[1:])
            if status is None:
                raise subprocess.TimeoutExpired(script, timeout, out, err)
            return subprocess.CompletedProcess([script], os.waitstatus_to_exitcode(status), out, err)

    def _start(self, environment: Mapping[str, str]) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, tempfile.TemporaryFile("w+") as err:
            command = [*self._command, str(its.fileno()), *self._modules]
            process = subprocess.Popen(
                command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stderr=err, env=environment
            )
            its.close()
            atexit.register(_end, ours, process)
            ready = ours.recv(LONGEST)
            assert ready == b"ready", _read(err)
            assert "/robots_guard/" not in _read(err), _read(err)
        return ours


def _end(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    link.close()
    process.wait(60)


def _await(link: socket.socket, timeout: float) -> int | None:
    """The status with which the program under way ends; None if it had to be killed."""
    pid = int(link.recv(LONGEST))
    link.settimeout(timeout)
    try:
        return int(link.recv(LONGEST))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        link.settimeout(None)
        link.recv(LONGEST)
        return None
    finally:
        link.settimeout(None)


def _read(file: Any) -> str:
    file.seek(0)
    return file.read()


# -- the side of the process that forks ----------------------------------------------------------------------


def main() -> None:
    """Import, then fork for each request until the other side is closed. Returns in each child when it has ended."""
    link = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    link.send(b"ready")
    while True:
        request, files, _, _ = socket.recv_fds(link, LONGEST, 3)
        if not request:
            return
        if not (pid := os.fork()):
            link.close()
            _become(*json.loads(request), files)
            return
        for file in files:
            os.close(file)
        link.send(str(pid).encode())
        link.send(str(os.waitpid(pid, 0)[1]).encode())


def _become(script: str, environment: dict[str, str], files: Sequence[int]) -> None:
    for stream, file in enumerate(files):
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
