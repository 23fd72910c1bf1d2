"""What stops a start: one sentence that names the thing and the remedy, a status that is not 0, no traceback."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.process import PATIENCE, proxy, refused_start, running
from integrations.mitmproxy.wire import connected, plain
from support.waiting import eventually

from robots_guard.testing import Reply


def assert_refused(result, *words):
    status, printed = result
    assert status not in (0, None), printed
    assert "Traceback" not in printed
    assert [word for word in words if word not in printed] == [], printed


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_agent(kind, tmp_path):
    name = "--agent" if kind == "proxy" else "robots_guard_agent"
    assert_refused(refused_start(kind, tmp_path, agent=""), f"{name} is not set", "product token")


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_is_not_a_token(kind, tmp_path):
    assert_refused(
        refused_start(kind, tmp_path, agent="my bot/1.0"), "agent", "my bot/1.0", "letters"
    )


def test_an_unknown_guard_option(tmp_path):
    result = refused_start("mitmdump", tmp_path, robots_gaurd="x", dialekt="google")
    assert_refused(result, "robots_guard_")


def test_an_unknown_option_names_the_nearest(tmp_path):
    result = refused_start("mitmdump", tmp_path, dialekt="google")
    assert_refused(result, "robots_guard_dialekt", "did you mean robots_guard_dialect?")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("dialect", "klingon"), ("on_restricted", "maybe"), ("fetch_timeout", "0")],
)
def test_values_of_the_wrong_type(kind, name, value, tmp_path):
    assert_refused(
        refused_start(kind, tmp_path, **{name: value}),
        name if kind == "mitmdump" else name.split("_")[0],
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--proxyauth", "jane"], "--proxyauth names no user: write USER:PASSWORD"),
        (
            ["--set", "body_size_limit=much"],
            "Invalid body_size_limit specification: much",
        ),
    ],
)
def test_unusable_command_options(args, sentence, tmp_path):
    assert_refused(refused_start("proxy", tmp_path, args), sentence)


def test_an_unreadable_mitmproxy_value(tmp_path):
    assert_refused(
        refused_start("mitmdump", tmp_path, audit="perhaps"), "robots_guard", "all", "evidence"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_log_that_cannot_be_written(kind, tmp_path):
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    assert_refused(
        refused_start(kind, tmp_path, audit_log=str(blocked / "audit_log")),
        "audit_log",
        "name a directory",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_does_not_exist(kind, tmp_path):
    assert_refused(refused_start(kind, tmp_path, store="mongodb://x"), "store")


@pytest.mark.parametrize(
    "option",
    [
        "ignore_hosts=x",
        "map_remote=|/open|/private",
        "stream_large_bodies=1k",
        "ssl_insecure=true",
        "mode=reverse:tcp://127.0.0.1:9",
    ],
)
def test_options_that_bypass_the_guard(option, tmp_path):
    name = option.partition("=")[0]
    assert_refused(
        refused_start("mitmdump", tmp_path, ["--set", option]), f"mitmproxy's option {name}=", ": "
    )


@pytest.mark.parametrize(
    "content",
    ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_an_upstream_ca_without_certificates(content, tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text(content)
    result = refused_start("proxy", tmp_path, ["--upstream-ca", str(path)])

    assert_refused(result, f"--upstream-ca '{path}' cannot be used", "name a PEM file")
    assert result[0] == 2
    assert result[1].count("\n") == 1


def test_modes_without_http(tmp_path):
    assert_refused(refused_start("proxy", tmp_path, ["--mode", "dns"]), "mode=dns", "regular")


def test_a_mode_that_does_not_exist(tmp_path):
    assert_refused(refused_start("proxy", tmp_path, ["--mode", "telepathy"]), "telepathy")


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(
            refused_start("proxy", tmp_path, ["--listen", f"127.0.0.1:{port}"]), str(port), "in use"
        )


@pytest.mark.parametrize(
    ("listen", "remedy"),
    [
        ("8080", "127.0.0.1:8080"),
        ("127.0.0.1", "127.0.0.1:8080"),
        ("127.0.0.1:99999", "use 0 to 65535"),
        ("nonsense:x", "127.0.0.1:8080"),
    ],
)
def test_an_invalid_address(listen, remedy, tmp_path):
    assert_refused(refused_start("proxy", tmp_path, ["--listen", listen]), listen, remedy)


def test_an_unusable_confdir(tmp_path):
    (tmp_path / "a-file").write_text("")
    assert_refused(
        refused_start("proxy", tmp_path, ["--confdir", str(tmp_path / "a-file" / "ca")]), "confdir"
    )


def test_without_the_extra(tmp_path):
    code = "import sys; sys.modules['mitmproxy'] = None; from robots_guard.app.cli.main import main; main(['proxy'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert_refused((done.returncode, done.stderr), "pip install 'robots_guard[proxy]'")


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_only_reports_says_so_when_it_starts(start, kind):
    with start(kind, report_only="true") as integration:
        (line,) = [line for line in integration.output if "guarding mybot" in line]

    assert "report_only: no request is refused because of a robots.txt" in line


def test_the_readiness_line_and_the_private_folder(tmp_path):
    with proxy(tmp_path, anew=True, agent="mybot") as integration:
        places = (
            f"CA certificate: {integration.ca}; audit log: {tmp_path}/audit_log; store: memory:"
        )
        assert (
            integration.output[0]
            == f"robots-guard: guarding mybot on {integration.url} ({places})\n"
        )
        assert integration.ca.exists()
        assert (tmp_path / "ca").stat().st_mode & 0o777 == 0o700
        key = tmp_path / "ca" / "mitmproxy-ca.pem"
        assert key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_ends_it_cleanly(kind, tmp_path):
    with running(kind, tmp_path, anew=True, agent="mybot") as integration:
        pass
    assert integration.process.returncode == 0
    assert not [line for line in integration.output if "Traceback" in line or "rror" in line]
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((integration.host, integration.port))


def test_sigterm_while_clients_wait(tmp_path, sites):
    """The proxy waits for none of them, sends nothing more of theirs, and prints nothing."""
    site = sites.start(robots=Reply(hang=True))
    with contextlib.ExitStack() as clients:
        with proxy(tmp_path) as integration:
            for _ in range(5):
                waiting = clients.enter_context(connected(integration))
                waiting.sendall(
                    f"GET {site.url}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
                )
            eventually(lambda: site.origin.robots_fetches)
        assert integration.process.returncode == 0
        assert len(integration.output) == 1
    assert site.origin.targets == []


@pytest.mark.parametrize("kind", KINDS)
def test_requests_before_the_proxy_runs(kind, tmp_path, sites):
    """mitmproxy listens before it calls `running`: requests are sent from the first moment."""
    site = sites.start()
    port = _free_port()
    listen = ["--listen", f"127.0.0.1:{port}"] if kind == "proxy" else ["--listen-port", str(port)]
    hammer = _Hammer(port, site)
    with running(kind, tmp_path, listen, started=hammer.start) as integration:
        hammer.stop()
        assert plain(integration, site.url + "/open").status == 200
    assert hammer.answers
    assert site.origin.targets == ["/open"]


class _Hammer:
    """Sends a forbidden request as often as it can connect."""

    def __init__(self, port, site):
        self._port = port
        head = f"GET {site.url}/private/x HTTP/1.1\r\nHost: {site.authority}\r\nConnection: close\r\n\r\n"
        self._head = head.encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answers = []

    def start(self, _pid):
        self._thread.start()

    def stop(self):
        eventually(lambda: self.answers)
        self._stop.set()
        self._thread.join(60)

    def _run(self):
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
                    connection.sendall(self._head)
                    self.answers.append(connection.recv(4096))
            except OSError:
                time.sleep(0.001)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_the_users_own_folders_are_not_changed(tmp_path):
    """The CA is not that of the user's own mitmproxy: trusting one does not mean trusting the other."""
    home = tmp_path / "home"
    home.mkdir()
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    command = [
        sys.executable,
        "-c",
        "from robots_guard.app.cli.main import main; main()",
        "proxy",
        "--agent",
        "mybot",
    ]
    command += [
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
        "--audit-log",
        str(tmp_path / "audit_log"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert str(home / "config" / "robots_guard" / "mitmproxy") in process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert not (home / ".mitmproxy").exists()
