"""A Python that has imported what many programs need; each program is a fork of it, and so starts in milliseconds.

The imports of Scrapy, of mitmproxy and of the guard take most of the time of a small crawl, or of a proxy that answers
a few requests. What is forked is a process of its own, with the environment, the files and the end that
`subprocess.Popen` would give it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

LONGEST = 1024 * 1024  # bytes of a request


class Preloaded:
    """The process that forks, started with the first program."""

    def __init__(self, options: Sequence[str], modules: Sequence[str]) -> None:
        self._command = [sys.executable, *options, __file__]
        self._modules = modules
        self._link: socket.socket | None = None
        self._one = threading.Lock()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], *, stdin: int, stdout: int, stderr: int
    ) -> Program:
        """Start a Python script with its arguments. The last three are open files."""
        with self._one:
            link = self._link = self._link or self._start(environment)
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            request = json.dumps([list(command), dict(environment)]).encode()
            socket.send_fds(link, [request], [its.fileno(), stdin, stdout, stderr])
        return Program(command, ours)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout: float, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, as `subprocess.run` does. Raises subprocess.TimeoutExpired."""
        with contextlib.ExitStack() as stack:
            read, out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
            read.write(stdin)
            read.seek(0)
            files = {"stdin": read.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            program = stack.enter_context(self.start(command, environment, **files))
            try:
                status = program.wait(timeout)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
                raise subprocess.TimeoutExpired(command, timeout, _read(out), _read(err)) from None
            return subprocess.CompletedProcess(command, status, _read(out), _read(err))

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


class Program:
    """A program under way, with what the tests use of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], link: socket.socket) -> None:
        self._command = command
        self._link = link
        self.pid = int(link.recv(LONGEST))
        self.returncode: int | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._link], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._link.settimeout(timeout)
            try:
                status = self._link.recv(LONGEST)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self._command, timeout or 0) from None
            self.returncode = os.waitstatus_to_exitcode(int(status))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _end(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    link.close()
    process.wait(60)


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
    running: dict[int, tuple[int, int]] = {}  # by the descriptor of a program: its pid, and who waits for it
    while True:
        for ready in select.select([link.fileno(), *running], [], [])[0]:
            if ready in running:
                _tell_end(ready, *running.pop(ready))
                continue
            request, files, _, _ = socket.recv_fds(link, LONGEST, 4)
            if not request:
                return
            if not (pid := os.fork()):
                link.detach()
                _become(*json.loads(request), files[1:])
                return
            for file in files[1:]:
                os.close(file)
            os.write(files[0], str(pid).encode())
            running[os.pidfd_open(pid)] = pid, files[0]


def _tell_end(descriptor: int, pid: int, waiting: int) -> None:
    status = os.waitpid(pid, 0)[1]
    os.close(descriptor)
    with socket.socket(fileno=waiting) as link, contextlib.suppress(BrokenPipeError):
        link.send(str(status).encode())


def _become(command: list[str], environment: dict[str, str], files: Sequence[int]) -> None:
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.closerange(len(files), os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = sys.__stdout__ = _written(1, "strict")
    sys.stderr = sys.__stderr__ = _written(2, "backslashreplace")
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def _written(stream: int, errors: str) -> TextIO:
    """A standard stream, as Python opens it."""
    file = io.FileIO(stream, "w", closefd=False)
    if "PYTHONUNBUFFERED" in os.environ:
        return io.TextIOWrapper(file, errors=errors, write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(file), errors=errors, line_buffering=stream == 2)


if __name__ == "__main__":
    main()
