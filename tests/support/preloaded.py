"""A Python process with preloaded modules. Programs are forks of it, and so start in milliseconds.

Importing Scrapy, mitmproxy and the guard takes most of the time of a small crawl, or of a proxy
that answers a few requests. A forked program is a separate process, with the environment, files and
exit status that `subprocess.Popen` would give it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
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

MAX_REQUEST = 1024 * 1024  # bytes


class Preloaded:
    """The preloaded process that forks, started with the first program."""

    def __init__(self, options: Sequence[str], modules: Sequence[str]) -> None:
        self._command = [sys.executable, *options, __file__]
        self._modules = modules
        self._link: socket.socket | None = None
        self._starting = threading.Lock()

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> Program:
        """Start a Python script with its arguments. The standard streams are file descriptors."""
        with self._starting:
            link = self._link = self._link or self._start(environment)
        parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child:
            request = json.dumps([list(command), dict(environment)]).encode()
            socket.send_fds(link, [request], [child.fileno(), stdin, stdout, stderr])
        return Program(command, parent)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to completion, like `subprocess.run`. Raises subprocess.TimeoutExpired."""
        done = self.run_in_bytes(command, environment, timeout, stdin.encode())
        out, err = (
            io.TextIOWrapper(io.BytesIO(data)).read() for data in (done.stdout, done.stderr)
        )
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    def run_in_bytes(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a script like `run`, but with its standard input and output in bytes."""
        with contextlib.ExitStack() as stack:
            read, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
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
        parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child, tempfile.TemporaryFile("w+") as err:
            command = [*self._command, str(child.fileno()), *self._modules]
            process = subprocess.Popen(
                command,
                pass_fds=[child.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=err,
                env=environment,
            )
            child.close()
            atexit.register(_end, parent, process)
            ready = parent.recv(MAX_REQUEST)
            assert ready == b"ready", _read(err)
            assert "/robots_guard/" not in _read(err), _read(err)
        return parent


def is_readable(file: Any, within: float = 0.0) -> bool:
    """Whether a file or socket can be read within some seconds; select() takes no descriptor beyond
    1023."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(within * 1000))


class Program:
    """A running program, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, command: Sequence[str], link: socket.socket) -> None:
        self._command = command
        self._link = link
        self.pid = int(link.recv(MAX_REQUEST))
        self.returncode: int | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def poll(self) -> int | None:
        if self.returncode is None and is_readable(self._link):
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._link.settimeout(timeout)
            try:
                status = self._link.recv(MAX_REQUEST)
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


def _read(file: Any) -> Any:
    file.seek(0)
    return file.read()


# -- in the preloaded process ----------------------------------------------------------------------


def main() -> None:
    """Import the modules, then fork for each request until the link is closed.

    Also returns in each child, when its program has ended.
    """
    end = _End()  # before the modules register functions of theirs
    link = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # a program collects only what it has created itself
    link.send(b"ready")
    # by pidfd of a program: its pid, and the descriptor to report to
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([link.fileno(), *running], [], [])[0]:
            if ready in running:
                _report_end(ready, *running.pop(ready))
                continue
            request, files, _, _ = socket.recv_fds(link, MAX_REQUEST, 4)
            if not request:
                return
            if not (pid := os.fork()):
                link.detach()
                with end:
                    _become(*json.loads(request), files[1:])
                return
            for file in files[1:]:
                os.close(file)
            os.write(files[0], str(pid).encode())
            running[os.pidfd_open(pid)] = pid, files[0]


class _End:
    """The end of a program that has returned, or has raised SystemExit with a number.

    The process exits when its threads have ended and all functions of `atexit` have been called. It
    does not release its modules, as Python would: that would write to nearly every page of memory
    that the process shares with the preloaded one, and take 0.3 s of CPU. Any other end is left to
    Python.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        atexit.register(self._exit)  # the first to be registered, and so the last to be called

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        code = error.code if isinstance(error, SystemExit) else None
        if error is None or (isinstance(error, SystemExit) and code is None):
            self._status = 0
        elif isinstance(code, int):
            self._status = code

    def _exit(self) -> None:
        if self._status is not None:
            gc.collect()  # finalisers run now, and warn of what has not been closed
            with contextlib.suppress(
                OSError, ValueError
            ):  # Python then ends the process, and reports that
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self._status & 0xFF)
        gc.unfreeze()


def _report_end(descriptor: int, pid: int, waiting: int) -> None:
    status = os.waitpid(pid, 0)[1]
    os.close(descriptor)
    with socket.socket(fileno=waiting) as link, contextlib.suppress(BrokenPipeError):
        link.send(str(status).encode())


def _become(command: list[str], environment: dict[str, str], files: Sequence[int]) -> None:
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.closerange(len(files), os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environb.update({_in_bytes(name): _in_bytes(environment[name]) for name in environment})
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.FileIO(0, closefd=False), **_text(sys.__stdin__)
    )
    sys.stdout = sys.__stdout__ = _open_output(1, **_text(sys.__stdout__))
    sys.stderr = sys.__stderr__ = _open_output(2, **_text(sys.__stderr__))
    sys.argv = [os.fsdecode(_in_bytes(argument)) for argument in command]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _in_bytes(text: str) -> bytes:
    """Return the bytes that the tests have sent as text. The tests run in UTF-8; the locale of the
    child may be another."""
    return text.encode("utf-8", "surrogateescape")


def _text(stream: Any) -> dict[str, str]:
    """Return the encoding that Python has chosen for a stream, and its handler of errors."""
    return {"encoding": stream.encoding, "errors": stream.errors}


def _open_output(stream: int, encoding: str, errors: str) -> TextIO:
    """Open a standard output stream as Python does at startup."""
    file = io.FileIO(stream, "w", closefd=False)
    if "PYTHONUNBUFFERED" in os.environ:
        return io.TextIOWrapper(file, encoding, errors, write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, errors, line_buffering=stream == 2)


if __name__ == "__main__":
    main()
