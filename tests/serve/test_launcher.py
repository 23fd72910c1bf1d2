"""`robots-guard serve` as a program: its addresses, workers, metrics, signals and mistakes."""

from __future__ import annotations

# One test calls a private function: nothing else shows which event loop is used.
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import uvloop
from support.audit_log import decisions
from support.waiting import eventually

from robots_guard.serve import launcher

PROGRAM = Path(__file__).with_name("line_service.py")
RULES = "User-agent: *\nDisallow: /private/\n"
SLOW = "User-agent: *\nCrawl-delay: {}\n"
USUAL = ("--agent", "mybot", "--allow-private", "127.0.0.0/8", "--audit", "all")


class Client:
    """A connection to the service."""

    def __init__(self, place: str) -> None:
        if place.startswith("unix:"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(place.removeprefix("unix:"))
        else:
            host, _, port = place.rpartition(":")
            self._socket = socket.create_connection((host, int(port)))
        self._socket.settimeout(60)
        self._lines = self._socket.makefile("rw")

    def send(self, line: str) -> None:
        self._lines.write(f"{line}\n")
        self._lines.flush()

    def receive(self) -> str:
        return self._lines.readline().strip()

    def ask(self, line: str) -> str:
        self.send(line)
        return self.receive()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Service:
    """A running `robots-guard serve`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.notice = ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()


@pytest.fixture
def start(tmp_path):
    """A function that starts a service with options, and waits until it says that it listens."""
    with ExitStack() as ends:

        def begin(*options: str, store: str | None = None, waits: bool = True) -> Service:
            store = store or f"sqlite:///{tmp_path / 'store.sqlite'}"
            places = ("--store", store, "--audit-log", str(tmp_path / "audit_log"))
            errors = ends.enter_context((tmp_path / "stderr").open("w"))
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), "serve", *USUAL, *places, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[1])},
            )
            ends.callback(process.wait)
            ends.callback(process.kill)
            assert process.stdout is not None
            ends.callback(process.stdout.close)
            service = Service(process, tmp_path)
            if waits:
                service.notice = process.stdout.readline()
                assert service.notice, service.errors
            return service

        yield begin


@pytest.fixture
def connect():
    """A function that connects to an address; the connection is closed after the test."""
    with ExitStack() as ends:
        yield lambda place: ends.enter_context(closing(Client(place)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_says_where_it_listens_and_answers_at_each_address(start, connect, net, tmp_path):
    site, path, port = net.origin(RULES), tmp_path / "envoy.sock", free_port()

    service = start("--envoy", f"unix:{path}", "--icap", f"127.0.0.1:{port}")

    assert f"guarding mybot, envoy on unix:{path}, icap on 127.0.0.1:{port}" in service.notice
    assert str(tmp_path / "audit_log") in service.notice
    first, second = connect(f"unix:{path}"), connect(f"127.0.0.1:{port}")
    assert first.ask(f"{site.url}/open").startswith("admitted")
    assert second.ask(f"{site.url}/private/x") == "refused 403"
    assert len(site.robots_fetches) == 1
    assert service.stop() == 0
    assert not path.exists()
    assert {each["component"] for each in decisions(tmp_path / "audit_log")} == {"serve"}


def test_a_unix_socket_is_for_its_owner_and_group_only(start, tmp_path):
    path = tmp_path / "envoy.sock"

    start("--envoy", f"unix:{path}")

    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_socket_of_a_killed_service_is_replaced(start, connect, tmp_path):
    place = f"unix:{tmp_path / 'envoy.sock'}"
    start("--envoy", place).stop(signal.SIGKILL)

    start("--envoy", place)

    assert connect(place).ask("worker") == "0"


def test_the_socket_of_a_running_service_is_not_taken_away(start, connect, tmp_path):
    place = f"unix:{tmp_path / 'envoy.sock'}"
    start("--envoy", place)

    second = start("--envoy", place, waits=False)

    assert second.process.wait(60) == 2
    assert f"--envoy {place}: cannot listen (another process listens there)" in second.errors
    assert connect(place).ask("worker") == "0"


def test_a_file_that_is_no_socket_is_left_alone(start, tmp_path):
    file = tmp_path / "notes"
    file.write_text("mine")

    service = start("--envoy", f"unix:{file}", waits=False)

    assert service.process.wait(60) == 2
    assert "there is a file" in service.errors
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "there is nothing to serve: set --envoy"),
        (("--sds", "127.0.0.1:9"), "there is nothing to serve"),
        (("--envoy", "0.0.0.0:9001"), "can be reached from other machines"),
        (("--envoy", "192.0.2.1:9001"), "can be reached from other machines"),
        (("--envoy", "9001"), "--envoy '9001' is not an address: use unix:PATH"),
        (("--envoy", "127.0.0.1:99999"), "is not an address"),
        (("--envoy", "unix:"), "names no path"),
        (("--envoy", "unix:/nowhere/at/all.sock"), "create the directory /nowhere/at"),
        (("--envoy", "unix:/tmp/" + "x" * 200), "cannot listen (af_unix path too long)"),
        (("--icap", "127.0.0.1:1", "--data-plane", "nowhere"), "--data-plane 'nowhere' is not"),
        (("--icap", "127.0.0.1:0", "--upstream-ca", "/nowhere.pem"), "--upstream-ca"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_status_2(start, options, sentence):
    service = start(*options, waits=False)

    assert service.process.wait(60) == 2
    assert sentence.lower() in service.errors.lower()
    assert len(service.errors.strip().splitlines()) == 1


def test_workers_need_a_shared_store(start, tmp_path):
    service = start(
        "--envoy", f"unix:{tmp_path / 's'}", "--workers", "2", store="memory:", waits=False
    )

    assert service.process.wait(60) == 2
    assert "--workers need a store that processes share" in service.errors


def test_an_address_that_is_in_use_is_named(start):
    with socket.create_server(("127.0.0.1", 0)) as used:
        place = f"127.0.0.1:{used.getsockname()[1]}"
        service = start("--icap", place, waits=False)
        assert service.process.wait(60) == 2
    assert f"--icap {place}: cannot listen (address already in use)" in service.errors
    assert service.errors.rstrip().endswith("choose another address")


def test_each_worker_has_an_address_for_envoy_and_all_share_that_of_icap(start, connect, tmp_path):
    path, port = tmp_path / "envoy.sock", free_port()

    service = start("--envoy", f"unix:{path}", "--icap", f"127.0.0.1:{port}", "--workers", "2")

    assert connect(f"unix:{path}").ask("worker") == "0"
    assert connect(f"unix:{path}.1").ask("worker") == "1"
    assert connect(f"127.0.0.1:{port}").ask("worker") in ("0", "1")
    assert service.stop() == 0
    assert not list(tmp_path.glob("envoy.sock*"))


def test_a_response_may_be_reported_to_another_worker(start, connect, net, tmp_path):
    site, path = net.origin(RULES), tmp_path / "envoy.sock"
    start("--envoy", f"unix:{path}", "--workers", "2", "--purposes", "search")
    first, second = connect(f"unix:{path}"), connect(f"unix:{path}.1")

    own, other = first.ask(f"{site.url}/a").split()[1], second.ask(f"{site.url}/b").split()[1]

    assert [own.partition(".")[0], other.partition(".")[0]] == ["0", "1"]
    assert [second.ask(f"respond {own}"), first.ask(f"respond {other}")] == ["passed", "passed"]
    # a request ends with its response, and a worker that there is not knows none
    for unknown in (own, other, "7.ab-1", "x"):
        assert first.ask(f"respond {unknown}") == "refused 503"


def test_a_worker_that_ends_ends_all(start, connect, tmp_path):
    path = tmp_path / "envoy.sock"
    service = start("--envoy", f"unix:{path}", "--workers", "2")
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")

    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)

    assert service.process.wait(60) == 2
    assert "all workers were stopped" in service.errors


def test_metrics_health_and_readiness(start, connect, net, tmp_path):
    site, place, port = net.origin(RULES), f"unix:{tmp_path / 'envoy.sock'}", free_port()
    start("--envoy", place, "--metrics", str(port))
    client = connect(place)
    client.ask(f"{site.url}/open")
    client.ask(f"{site.url}/private/")

    assert get(port, "/ready") == (200, "ready\n")
    assert get(port, "/health") == (200, "healthy\n")
    _, metrics = get(port, "/metrics")
    assert 'robots_guard_verdicts_total{action="pass",reason="allowed"} 1.0' in metrics
    assert 'robots_guard_verdicts_total{action="drop",reason="disallowed"} 1.0' in metrics
    assert "robots_guard_decision_seconds_count 2.0" in metrics
    assert "robots_guard_body_bytes" not in metrics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_answers_the_held_requests_and_awaits_responses(
    start, connect, net, tmp_path, number
):
    site, place, port = net.origin(SLOW.format(30)), f"unix:{tmp_path / 's'}", free_port()
    service = start("--envoy", place, "--hold-max", "30", "--metrics", str(port), "--drain", "60")
    first, second, third = connect(place), connect(place), connect(place)
    admitted = first.ask(f"{site.url}/a")
    second.send(f"{site.url}/b")
    eventually(lambda: "robots_guard_held 1.0" in get(port, "/metrics")[1])

    service.process.send_signal(number)

    assert second.receive() == "refused 503"
    assert third.ask(f"{site.url}/c") == "refused 503"
    assert get(port, "/ready") == (503, "not ready\n")
    assert service.process.poll() is None
    assert first.ask(f"respond {admitted.split()[1]}") == "passed"
    assert service.process.wait(60) == 0


def test_a_second_interrupt_ends_a_drain(start, connect, net, tmp_path):
    site, place = net.origin(SLOW.format(30)), f"unix:{tmp_path / 's'}"
    service = start("--envoy", place, "--drain", "600")
    client = connect(place)
    client.ask(f"{site.url}/a")
    service.process.send_signal(signal.SIGINT)
    eventually(lambda: client.ask(f"{site.url}/b") == "refused 503")

    assert service.stop(signal.SIGINT) == 0


def test_a_hangup_reloads_the_overrides(start, connect, net, tmp_path):
    site, place = net.origin(RULES), f"unix:{tmp_path / 's'}"
    overrides = tmp_path / "overrides.toml"
    overrides.write_text("")
    service = start("--envoy", place, "--overrides", str(overrides))
    client = connect(place)
    assert client.ask(f"{site.url}/private/").startswith("refused")

    overrides.write_text(
        f'[[override]]\nid = "a"\norigin = "{site.url}"\nowner = "ops"\nreason = "ours"\n'
        'expires = 2099-01-01\naction = "pass"\n'
    )
    service.process.send_signal(signal.SIGHUP)

    eventually(lambda: client.ask(f"{site.url}/private/").startswith("admitted"))


def test_the_data_plane_may_not_be_reached(start, connect, tmp_path):
    place, port = f"unix:{tmp_path / 's'}", free_port()
    start("--envoy", place, "--data-plane", f"127.0.0.1:{port}", "--connect-ports", "1-65535")

    assert connect(place).ask(f"http://127.0.0.1:{port}/") == "refused 403"


def test_decisions_have_lines_on_standard_error(start, connect, net, tmp_path):
    site, place = net.origin(RULES), f"unix:{tmp_path / 's'}"
    service = start("--envoy", place)

    connect(place).ask(f"{site.url}/private/x")

    eventually(lambda: "disallowed" in service.errors)


def test_uvloop_is_used_if_it_is_installed(monkeypatch):
    assert launcher._loop_factory() is uvloop.new_event_loop

    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert launcher._loop_factory() is None
