"""Start, workers, metrics, users, the CA and the shutdown of a proxy."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.process import PATIENCE, PROGRAMS, environment, proxy, refused_start
from integrations.mitmproxy.wire import connected, exchange, plain, read_answer
from support.programs import program
from support.waiting import eventually

from robots_guard.testing import Reply


def request_to(site, target):
    return f"GET {site.url}{target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()


# -- more connections than files ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_file_left_to_open(start, kind):
    """It logs a line a second at most, and serves again when clients have left."""
    with start(kind) as integration, contextlib.ExitStack() as clients:
        pid = integration.process.pid
        most = len(list(Path(f"/proc/{pid}/fd").iterdir())) + 5
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        for _ in range(60):
            address = (integration.host, integration.port)
            clients.enter_context(socket.create_connection(address, timeout=PATIENCE))
        eventually(lambda: _reports(integration))
        began, before = time.monotonic(), _reports(integration)
        time.sleep(2.0)  # to count the lines of some time
        assert _reports(integration) - before <= time.monotonic() - began + 1
        assert not [line for line in integration.output if "Traceback" in line]
        clients.close()
        eventually(lambda: plain(integration, "http://robots.guard/ready").status == 200)


def _reports(integration) -> int:
    return sum("accepts no new connections" in line for line in integration.output)


# -- the end --------------------------------------------------------------------------------------------------


def test_sigterm_finishes_permitted_requests_only(tmp_path, sites):

    site = sites.start(pages={"/slow": Reply(body="at last", delay=1.0)})
    with (
        proxy(tmp_path, ["--drain", "10"]) as integration,
        connected(integration) as idle,
        connected(integration) as busy,
    ):
        assert exchange(idle, request_to(site, "/open")).status == 200
        busy.sendall(request_to(site, "/slow"))
        eventually(lambda: "/slow" in site.origin.targets)
        integration.process.send_signal(signal.SIGTERM)
        eventually(lambda: _refuses(integration))
        answer = exchange(idle, request_to(site, "/late"))
        assert (answer.status, b"shutting down" in answer.body) == (503, True)
        assert read_answer(busy).body == b"at last"
        assert integration.process.wait(PATIENCE) == 0
    assert site.origin.targets == ["/open", "/slow"]


def _refuses(integration):
    with (
        contextlib.suppress(OSError),
        socket.create_connection((integration.host, integration.port), timeout=60),
    ):
        return False
    return True


def test_the_shutdown_has_a_time_limit(tmp_path, sites):
    site = sites.start(pages={"/never": Reply(hang=True)})
    with proxy(tmp_path, ["--drain", "0.3"]) as integration, connected(integration) as busy:
        busy.sendall(request_to(site, "/never"))
        eventually(lambda: "/never" in site.origin.targets)
        integration.process.send_signal(signal.SIGTERM)
        assert integration.process.wait(PATIENCE) == 0
        assert read_answer(busy).status == 0


def test_a_second_interrupt_ends_at_once(tmp_path, sites):
    site = sites.start(pages={"/never": Reply(hang=True)})
    with proxy(tmp_path, ["--drain", "3600"]) as integration, connected(integration) as busy:
        busy.sendall(request_to(site, "/never"))
        eventually(lambda: "/never" in site.origin.targets)
        integration.process.send_signal(signal.SIGINT)
        eventually(lambda: _refuses(integration))
        integration.process.send_signal(signal.SIGINT)
        assert integration.process.wait(PATIENCE) == 0


# -- workers --------------------------------------------------------------------------------------------------


def test_workers_share_a_port_and_the_store(tmp_path, sites):
    site = sites.start()
    settings = {"store": f"sqlite:///{tmp_path / 'policies.sqlite'}", "audit": "all"}
    with proxy(tmp_path, ["--workers", "2"], **settings) as integration:
        children = [int(pid) for pid in _children(integration.process.pid)]
        assert len(children) == 2
        for number in range(40):
            assert plain(integration, f"{site.url}/open/{number}").status == 200
            assert plain(integration, f"{site.url}/private/{number}").status == 403
        records = integration.records()
    assert len({record["writer"] for record in records}) == 2
    assert len(records) == 80
    assert len(site.origin.robots_fetches) == 1
    assert integration.process.returncode == 0
    assert len([line for line in integration.output if "guarding" in line]) == 1


def _children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_worker_that_dies_stops_the_others(tmp_path):
    """A supervisor restarts all of them; a partial proxy would look like a complete one."""
    with proxy(
        tmp_path, ["--workers", "2"], store=f"sqlite:///{tmp_path / 'p.sqlite'}"
    ) as integration:
        os.kill(int(_children(integration.process.pid)[0]), signal.SIGKILL)
        assert integration.process.wait(PATIENCE) == 2
        eventually(lambda: _refuses(integration))


def test_workers_end_if_their_parent_is_killed(tmp_path):
    with proxy(
        tmp_path, ["--workers", "2"], store=f"sqlite:///{tmp_path / 'p.sqlite'}"
    ) as integration:
        workers = children(integration.process.pid)
        integration.process.kill()
        integration.process.wait()

        assert len(workers) == 2
        eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))


def test_workers_share_their_port_with_no_other_proxy(tmp_path):
    settings = {"store": f"sqlite:///{tmp_path / 'p.sqlite'}"}
    with proxy(tmp_path / "one", ["--workers", "2"], **settings) as integration:
        options = ["--workers", "2", "--listen", f"127.0.0.1:{integration.port}"]
        status, printed = refused_start("proxy", tmp_path / "other", options, **settings)

    assert (status, "cannot listen on" in printed, "--listen" in printed) == (2, True, True)


def children(parent):
    return [
        int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ]


def test_workers_without_a_store_to_share(tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--workers", "2"])
    assert (status, "--workers" in printed, "sqlite" in printed) == (2, True, True)


def test_workers_that_cannot_start_report_it_once(tmp_path):
    options = ["--workers", "2", "--set", "rawtcp=true"]
    status, printed = refused_start(
        "proxy", tmp_path, options, store=f"sqlite:///{tmp_path / 'p.sqlite'}"
    )
    assert (status, printed.count("rawtcp=false")) == (2, 1)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_reloads_the_overrides(tmp_path, http_site, workers):
    overrides = tmp_path / "overrides.toml"
    overrides.write_text("")
    store = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with proxy(
        tmp_path, ["--workers", workers], overrides=str(overrides), store=store
    ) as integration:
        assert plain(integration, http_site.url + "/open").status == 200
        overrides.write_text(
            f'[[override]]\nid = "gone"\norigin = "{http_site.url}"\nowner = "o"\nreason = "r"\n'
            'expires = 2999-01-01\naction = "drop"\n'
        )
        integration.process.send_signal(signal.SIGHUP)
        eventually(lambda: plain(integration, http_site.url + "/open").status == 403)
        assert integration.process.poll() is None
        blocked = f"drop (blocked): GET {http_site.url}/open: "
        eventually(lambda: any(blocked in line for line in integration.output))


# -- metrics --------------------------------------------------------------------------------------------------


def test_metrics_count_waiting_requests(tmp_path, http_site):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        proxy(tmp_path, ["--metrics", str(port)], min_delay="2.5", hold_max="3") as integration,
        ThreadPoolExecutor(1) as pool,
    ):
        plain(integration, http_site.url + "/open")
        waiting = pool.submit(plain, integration, http_site.url + "/open")
        seen = set()
        while not waiting.done():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                seen.update(
                    re.findall(r"^robots_guard_held (.*)$", answer.read().decode(), re.MULTILINE)
                )
    assert waiting.result().status == 200
    assert "1.0" in seen


def test_metrics_on_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, printed = refused_start("proxy", tmp_path, ["--metrics", port])
    assert (status, f"--metrics {port}" in printed, "choose another port" in printed) == (
        2,
        True,
        True,
    )


# -- what it tells --------------------------------------------------------------------------------------------

BAD = '[[override]]\nid = "bad"\norigin = "http://a.test"\nowner = "o"\nexpires = 2099-01-01\n'


def test_warnings_are_printed(tmp_path, http_site):
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(BAD)
    with proxy(tmp_path, overrides=str(overrides), store="redis://127.0.0.1:1/0") as integration:
        assert plain(integration, http_site.url + "/open").status == 200
        overrides.write_text("[[override")
        eventually(lambda: "stay in force" in _printed_after_a_request(integration, http_site))
        printed = "".join(integration.output)

    assert "WARNING override 'bad' has no effect" in printed
    assert "WARNING the policy store cannot be read" in printed
    assert "the previous overrides stay in force" in printed
    assert "Traceback" not in printed


def _printed_after_a_request(integration, site):
    assert plain(integration, site.url + "/open").status == 200
    return "".join(integration.output)


# -- users ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_a_wider_bind_demands_authentication(listen, tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--listen", listen])
    assert (status, "--proxyauth" in printed) == (2, True)


def test_a_wider_bind_rejects_proxyauth_any(tmp_path):
    status, printed = refused_start(
        "proxy", tmp_path, ["--listen", "0.0.0.0:0", "--proxyauth", "any"]
    )
    assert (status, "USER:PASSWORD" in printed) == (2, True)


@pytest.mark.parametrize("mode", ["regular@:0", "socks5@0.0.0.0:0", "regular@[::]:0"])
def test_a_mode_with_a_wider_bind_of_its_own(mode, tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--mode", "regular", "--mode", mode])
    assert (status, "--proxyauth" in printed) == (2, True)


def test_a_wider_bind_with_authentication(tmp_path, http_site):
    with proxy(tmp_path, ["--listen", "0.0.0.0:0", "--proxyauth", "a:b"]) as integration:
        assert plain(integration, http_site.url + "/open").status == 407
        fields = "Proxy-Authorization: Basic YTpi\r\n"
        assert plain(integration, http_site.url + "/open", fields=fields).status == 200
    assert "proxy-authorization" not in http_site.origin.received[-1].headers


ALICE = "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="  # secret


def test_sighup_reloads_the_users(tmp_path, http_site):
    users, alice = tmp_path / "users", "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0\r\n"
    users.write_text(ALICE + "\n")
    with proxy(tmp_path, ["--proxyauth", f"@{users}"]) as integration:
        assert plain(integration, http_site.url + "/open", fields=alice).status == 200
        users.write_text("alice\n")
        integration.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the earlier users stay valid" in "".join(integration.output))
        assert plain(integration, http_site.url + "/open", fields=alice).status == 200
        users.write_text(ALICE.replace("alice", "bob") + "\n")
        integration.process.send_signal(signal.SIGHUP)
        eventually(lambda: plain(integration, http_site.url + "/open", fields=alice).status == 407)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("alice\n", "line 1"), ("# x\nalice:\n", "line 2"), (":hash\n", "line 1"), ("\n", "no user")],
)
def test_an_htpasswd_file_with_unintended_users(text, expected, tmp_path):
    (tmp_path / "users").write_text(text)
    status, printed = refused_start("proxy", tmp_path, ["--proxyauth", f"@{tmp_path / 'users'}"])
    assert (status, expected in printed, "htpasswd" in printed) == (2, True, True), printed


def test_several_modes_at_once(tmp_path, sites):
    site = sites.start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    modes = ["--mode", "regular", "--mode", f"reverse:{site.url}@127.0.0.1:{port}"]
    with proxy(tmp_path, modes) as integration:
        assert plain(integration, site.url + "/open").status == 200
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = "GET /private/x HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n"
            assert exchange(connection, head.encode()).status == 403


def trust_in_chromium(line, home):
    """Run a line for Chromium in a shell, as a user with an empty home directory would; return what is trusted then."""
    program("certutil")
    variables = environment() | {"HOME": str(home)}
    listed = f"{line} && certutil -d sql:{home}/.pki/nssdb -L"
    return subprocess.run(
        ["sh", "-c", listed],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        env=variables,
    ).stdout


# -- the CA ---------------------------------------------------------------------------------------------------


def test_how_to_trust_the_ca(tmp_path):
    command = [str(PROGRAMS / "robots-guard"), "proxy", "ca", "--confdir", str(tmp_path / "ca")]
    bundle = tmp_path / "bundle.pem"
    done = subprocess.run(
        [*command, "--bundle", str(bundle)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(),
    )
    certificate = tmp_path / "ca" / "mitmproxy-ca-cert.pem"
    assert done.returncode == 0, done.stderr
    assert [
        name
        for name in ("curl", "wget", "Python", "Node", "Go", "Java", "Chromium")
        if name not in done.stdout
    ] == []
    assert str(certificate) in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Chromium")]
    for _ in range(2):  # the first time there is no database
        trusted = trust_in_chromium(line.removeprefix("Chromium"), tmp_path)
    assert re.search(r"^robots_guard +C,,", trusted, re.MULTILINE)
    assert bundle.read_bytes().endswith(certificate.read_bytes())
    assert bundle.read_bytes().count(b"BEGIN CERTIFICATE") > 50
    assert (tmp_path / "ca").stat().st_mode & 0o777 == 0o700
    with proxy(tmp_path) as integration:
        assert integration.ca.read_bytes() == certificate.read_bytes()
