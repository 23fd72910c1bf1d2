"""A world without the internet in which pages are executed:
`unshare --net --mount --pid --fork python -m docs.world FOLDER`.

In its network namespace the sites of `sites.py` have their names, addresses and ports, and every
program trusts their authority as one of the usual ones. So the commands of the pages run
unchanged. What they write to /etc stays in the namespace. Each line of standard input is a page's
steps as JSON, and each line of standard output its results.

One-shot `robots-guard` commands are forks of a process that has imported it, which saves half a
second of CPU each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import trustme
from support.preloaded import Preloaded

from docs.page import END, difference
from docs.sites import SITES, Sites, hosts, trust
from robots_guard.testing import Loopback

TESTS = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent
CERTIFICATES = Path("/etc/ssl/certs")
WITHIN = 90.0  # seconds for a command, and for a program that stays until it is ready

#: Programs that stay until the reader ends them, and what they print when they are ready.
STAYING = [
    (re.compile(r"^(\w+=\S+ )*robots-guard proxy\b(?! ca\b)"), re.compile(r"guarding \S+ on ")),
    (re.compile(r"^robots-guard serve\b(?!.*--print-config)"), re.compile(r"guarding \S+, ")),
    (re.compile(r"^envoy -c"), re.compile(r"starting main dispatch loop")),
    (re.compile(r"^mitmdump "), re.compile(r"robots_guard: guarding")),
    (re.compile(r"^robots-guard console "), re.compile(r"the console is at ")),
    (re.compile(r"^robots-guard audit tail\b"), re.compile("")),
    (re.compile(r"^redis-server\b"), re.compile(r"Ready to accept connections")),
]
_LISTENS = re.compile(r"--(?:listen|port) (\S+)")
#: Where those listen that are not told.
_DEFAULTS = {
    "robots-guard proxy": "127.0.0.1:8080",
    "robots-guard serve": "127.0.0.1:9001",
    "envoy -c": "127.0.0.1:8080",
    "mitmdump": "127.0.0.1:8080",
    "robots-guard console": "127.0.0.1:8099",
    "redis-server": "6379",
}


def main(folder: Path) -> None:
    """Set the namespace up, then execute pages until standard input ends."""
    authority, private = trustme.CA(), trustme.CA()
    _protect(folder)
    _connect(folder)
    _trust(authority, folder)
    private.cert_pem.write_to_path(str(folder / "corp-ca.pem"))
    with Loopback() as net:
        reader = Reader(folder, Sites(net, authority, private, SITES))
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(reader.follow(**json.loads(line))), flush=True)
        reader.end()


def _run(line: str) -> str:
    return subprocess.run(line.split(), check=True, stdout=subprocess.PIPE, text=True).stdout


def _protect(folder: Path) -> None:
    """Give the namespace a copy of /etc, in which the commands of root on the pages write."""
    # What this user may not read is not copied.
    subprocess.run(["cp", "-a", "/etc", folder / "etc"], stderr=subprocess.DEVNULL, check=False)
    _run(f"mount --bind {folder / 'etc'} /etc")


def _connect(folder: Path) -> None:
    """Give the namespace the addresses and names of the sites, and no others."""
    _run("ip link set lo up")
    for site in SITES.values():
        _run(f"ip addr add {site.address}/32 dev lo")
    (folder / "hosts").write_text(hosts(SITES))
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    for name in ("hosts", "resolv.conf"):
        _run(f"mount --bind {folder / name} /etc/{name}")


def _trust(authority: trustme.CA, folder: Path) -> None:
    """Let every program trust the authority of the sites."""
    usual = folder / "certs"
    usual.mkdir()
    pem = usual / "sites.pem"
    authority.cert_pem.write_to_path(str(pem))
    name = _run(f"openssl x509 -noout -subject_hash -in {pem}").strip()
    (usual / f"{name}.0").symlink_to("sites.pem")
    trust(CERTIFICATES / "ca-certificates.crt", authority, usual / "ca-certificates.crt")
    _run(f"mount --bind {usual} {CERTIFICATES}")
    bundle = Path(certifi.where())
    trust(bundle, authority, folder / "certifi.pem")
    _run(f"mount --bind {folder / 'certifi.pem'} {bundle}")


def _address(text: str) -> str:
    """Return where a command listens, or the command if it does not."""
    if given := _LISTENS.search(text):
        return given[1]
    return next((where for name, where in _DEFAULTS.items() if name in text), text)


# -- a reader ------------------------------------------------------------------------------------


class Reader:
    """Follows pages: writes their files and types their commands into a shell."""

    def __init__(self, folder: Path, sites: Sites) -> None:
        self._folder = folder
        self._sites = sites
        self._programs = _programs(folder)
        self._go_cache = _run("go env GOCACHE").strip() if shutil.which("go") else ""
        self._running: dict[str, Staying] = {}

    def follow(self, page: str, steps: list[dict[str, Any]], home: str) -> list[dict[str, Any]]:
        """Execute the steps of a page in a folder of its own, and return what its commands did.

        Pages of the same `home` have one configuration folder, store and audit log, and the
        programs that stay.
        """
        self._sites.show(page)
        place = self._folder / "pages" / page.replace("/", "-")
        place.mkdir(parents=True)
        environment = self._environment(home)
        with contextlib.closing(Shell(place, environment)) as shell:
            return [self._step(step, shell, place, environment) for step in steps]

    def _step(
        self, step: dict[str, Any], shell: Shell, place: Path, environment: dict[str, str]
    ) -> dict[str, Any]:
        if "name" in step:
            target = place / step["name"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step["text"])
            return {}
        text = step["text"]
        ready = next((ready for kind, ready in STAYING if kind.match(text)), None)
        began = time.monotonic()
        if text == END:
            self._running.popitem()[1].end()
            status, printed = 0, ""
        elif ready is None:
            status, printed = shell.run(text)
        else:
            status, printed = self._stay(text, ready, step["output"], place, environment)
        printed = printed.replace(environment["HOME"], "~")
        seconds = time.monotonic() - began
        result = {"line": step["line"], "status": status, "printed": printed}
        return {**result, "is_staying": ready is not None, "seconds": seconds}

    def _stay(
        self,
        text: str,
        ready: re.Pattern[str],
        output: list[str],
        place: Path,
        environment: dict[str, str],
    ) -> tuple[int, str]:
        """Start a program that stays, in place of another one at the same address."""
        address = _address(text)
        earlier = self._running.get(address)
        if earlier and earlier.is_same(text, environment):
            return earlier.wait(ready, output)
        if earlier:
            self._running.pop(address).end()
        self._running[address] = Staying(text, place, environment)
        return self._running[address].wait(ready, output)

    def _environment(self, home: str) -> dict[str, str]:
        folder = self._folder / "homes" / home.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(self._programs), str(PROGRAMS), os.environ["PATH"]])
        return {
            "HOME": str(folder),
            "PATH": path,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "GOCACHE": self._go_cache,
            "CORP_CA": str(self._folder / "corp-ca.pem"),  # of the sites in a private network
        }

    def end(self) -> None:
        """End the programs that stayed."""
        for running in self._running.values():
            running.end()


class Shell:
    """A shell that keeps its directory and variables from one command to the next."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self._answers, end = os.pipe()
        self._script = place.parent / f"{place.name}.sh"
        self._output = place.parent / f"{place.name}.txt"
        self._end = end
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            text=True,
            cwd=place,
            env=environment,
            pass_fds=[end],
            start_new_session=True,
        )
        os.close(end)
        self._type("status=0")

    def run(self, text: str) -> tuple[int, str]:
        """Return a command's exit status and what it has printed."""
        self._script.write_text(f"{text}\n")
        run = f"(exit $status); . {self._script} >{self._output} 2>&1 </dev/null"
        self._type(f"{run}; status=$?; echo $status >&{self._end}")
        if not select.select([self._answers], [], [], WITHIN)[0]:
            return -1, f"{self._output.read_text('utf-8', 'replace')}\n(it did not end)"
        answer = os.read(self._answers, 100)
        return int(answer or -1), self._output.read_text("utf-8", "replace")

    def _type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the shell, and what it has left in the background."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._answers)


class Staying:
    """A program that runs in a terminal of its own until the reader ends it."""

    def __init__(self, text: str, place: Path, environment: dict[str, str]) -> None:
        self._text = text
        self._environment = environment
        self._output = place.parent / f"{place.name}-{time.monotonic_ns()}.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", text.removesuffix("&")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=place,
                env=environment,
                start_new_session=True,
            )

    def is_same(self, text: str, environment: dict[str, str]) -> bool:
        """Whether it is what a page asks for, and still runs."""
        same = (self._text, self._environment) == (text, environment)
        return same and self._process.poll() is None

    def wait(self, ready: re.Pattern[str], output: list[str]) -> tuple[int, str]:
        """Return what it has printed when it is ready; the status is -1 if it ends before, or does
        not print what the page says."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            printed = self._output.read_text("utf-8", "replace")
            shown = printed.replace(self._environment["HOME"], "~")
            if ready.search(printed) and not (output and difference([*output, "..."], shown)):
                return 0, printed
            if self._process.poll() is not None:
                return -1, f"{printed}\n(it has ended, with {self._process.returncode})"
            time.sleep(0.02)
        return -1, f"{printed}\n(it was not ready)"

    def end(self) -> None:
        """End it as Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


# -- robots-guard, already imported --------------------------------------------------------------

#: A program that asks this process to run robots-guard with its own streams and directory.
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({path!r})
request = json.dumps([os.getcwd(), sys.argv[1:], dict(os.environ)]).encode()
socket.send_fds(link, [request], [0, 1, 2])
pid = int(link.recv(100))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda received, frame: os.kill(pid, received))
status = int(link.recv(100) or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
_PRELOADED = [
    "mitmproxy.tools.dump",
    "duckdb",
    "aiohttp",
    "rich.table",
    "robots_guard.mitmproxy.launcher",
]
_PACKAGES = ("audit", "app.cli", "guard", "protocol")


def _programs(folder: Path) -> Path:
    """Return a folder with a `robots-guard` that runs as a fork of a process of this one."""
    place = folder / "bin"
    place.mkdir()
    path = folder / "robots-guard.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()
    client = place / "robots-guard"
    client.write_text(_CLIENT.format(python=sys.executable, path=str(path)))
    client.chmod(0o755)
    forks = Preloaded(["-W", "ignore::DeprecationWarning"], [*_PRELOADED, *_modules()])
    threading.Thread(target=_accept, args=(listener, forks), daemon=True).start()
    return place


def _modules() -> list[str]:
    """Return the modules of robots_guard that its commands import."""
    packages = [importlib.import_module(f"robots_guard.{name}") for name in _PACKAGES]
    found = [
        module.name
        for package in packages
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [name for name in found if not name.endswith("__main__")]


def _accept(listener: socket.socket, forks: Preloaded) -> None:
    while True:
        link, _ = listener.accept()
        threading.Thread(target=_serve, args=(link, forks), daemon=True).start()


def _serve(link: socket.socket, forks: Preloaded) -> None:
    request, files, _, _ = socket.recv_fds(link, 1024 * 1024, 3)
    directory, arguments, environment = json.loads(request)
    streams = dict(zip(("stdin", "stdout", "stderr"), files, strict=True))
    script = str(Path(__file__).with_name("command.py"))
    with link, forks.start([script, directory, *arguments], environment, **streams) as program:
        for file in files:
            os.close(file)
        link.send(str(program.pid).encode())
        link.send(str(program.wait()).encode())


# -- from the tests ------------------------------------------------------------------------------


class World:
    """The namespace, as a process that executes pages."""

    def __init__(self, folder: Path, unshare: list[str]) -> None:
        self._process = subprocess.Popen(
            [*unshare, sys.executable, "-m", "docs.world", str(folder)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready\n"

    def follow(self, page: str, steps: list[dict[str, Any]], home: str) -> list[dict[str, Any]]:
        """Execute a page; see `Reader.follow`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"page": page, "steps": steps, "home": home}) + "\n")
        self._process.stdin.flush()
        results: list[dict[str, Any]] = json.loads(self._line())
        return results

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """End all processes in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WITHIN)
        self._process.stdout.close()


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """A world, for as long as the tests use it."""
    opened = World(folder, unshare())
    try:
        yield opened
    finally:
        opened.close()


def unshare() -> list[str]:
    """Return the command that creates the namespace, with the rights of this user."""
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return own if os.geteuid() == 0 else [*own, "--user", "--map-root-user"]


def why_not() -> str:
    """Return why there can be no world on this machine, or ''."""
    if not shutil.which("unshare"):
        return "unshare is not installed"
    tried = subprocess.run([*unshare(), "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
