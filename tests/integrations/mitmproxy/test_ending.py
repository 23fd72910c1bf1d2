"""The shutdown of a proxy: waiting requests get a response at once, and nothing is printed."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from integrations.mitmproxy.process import PATIENCE, proxy, running
from integrations.mitmproxy.test_life import _refuses as refuses
from integrations.mitmproxy.test_life import request_to
from integrations.mitmproxy.wire import closed, connected, exchange, plain, read_answer
from support.waiting import eventually

from robots_guard.testing import Reply

SLOW = "3600"  # seconds to drain: what does not end by itself fails the test


def printed(integration) -> str:
    assert integration.process.wait(PATIENCE) == 0
    return "".join(integration.output)


def test_a_request_that_waits_for_a_robots_txt(tmp_path, sites):
    """It gets 503 with Retry-After; the site gets nothing more."""
    site = sites.start("http", robots=Reply(hang=True))
    with (
        proxy(tmp_path, ["--drain", SLOW]) as integration,
        connected(integration) as one,
        connected(integration) as other,
    ):
        one.sendall(request_to(site, "/one"))
        other.sendall(request_to(site, "/other"))
        eventually(lambda: site.origin.robots_fetches)
        integration.process.send_signal(signal.SIGTERM)
        answers = [read_answer(connection) for connection in (one, other)]
        output = printed(integration)
    assert [answer.status for answer in answers] == [503, 503]
    assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
    assert (site.origin.targets, "Traceback" in output, "Error" in output) == ([], False, False)


def test_a_request_that_waits_for_a_turn(tmp_path, http_site):
    metrics = free_port()
    options, settings = (
        ["--drain", SLOW, "--metrics", str(metrics)],
        {"min_delay": "30", "hold_max": "60"},
    )
    with proxy(tmp_path, options, **settings) as integration, connected(integration) as waiting:
        assert plain(integration, http_site.url + "/first").status == 200
        waiting.sendall(request_to(http_site, "/second"))
        eventually(lambda: "robots_guard_held 1.0" in metrics_at(metrics))
        integration.process.send_signal(signal.SIGTERM)
        answer = read_answer(waiting)
        output = printed(integration)
    assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True)
    assert (http_site.origin.targets, "Traceback" in output) == (["/first"], False)


def test_requests_that_wait_until_a_robots_txt_is_tried_again(tmp_path, sites):
    """They end with their client, and with the proxy."""
    site, metrics = sites.start("http", robots=Reply(status=503)), free_port()
    options, settings = (
        ["--drain", SLOW, "--metrics", str(metrics)],
        {"hold_max": "3600", "fetch_timeout": "3600"},
    )
    with (
        proxy(tmp_path, options, **settings) as integration,
        connected(integration) as leaving,
        connected(integration) as waiting,
    ):
        for connection, target in ((leaving, "/leaves"), (waiting, "/waits")):
            connection.sendall(request_to(site, target))
        eventually(lambda: "robots_guard_held 2.0" in metrics_at(metrics))
        eventually(lambda: len(integration.records()) >= 2)  # deferred, and held
        leaving.close()
        eventually(lambda: "robots_guard_held 1.0" in metrics_at(metrics))
        integration.process.send_signal(signal.SIGTERM)
        answer = read_answer(waiting)
        output = printed(integration)
    assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True)
    assert (site.origin.targets, "Traceback" in output) == ([], False)
    assert {each["action"] for each in integration.records()} == {"defer"}


def test_a_permitted_upload_is_finished(tmp_path, http_site):
    """Also if the rest of it arrives during the shutdown."""
    metrics = free_port()
    with (
        proxy(tmp_path, ["--drain", SLOW, "--metrics", str(metrics)]) as integration,
        connected(integration) as upload,
    ):
        head = f"POST {http_site.url}/up HTTP/1.1\r\nHost: {http_site.authority}\r\nContent-Length: 6\r\n\r\n"
        upload.sendall(head.encode() + b"abc")
        eventually(lambda: "robots_guard_flows 1.0" in metrics_at(metrics))
        integration.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses(integration))
        assert exchange(upload, b"def").status == 200
        output = printed(integration)
    assert http_site.origin.received[-1].body == b"abcdef"
    assert "Traceback" not in output


def test_a_slow_client_gets_all_of_a_long_response(tmp_path, sites):
    """Bytes that the client has not read yet are not cut off."""
    page = b"x" * 20_000_000
    site = sites.start("http", pages={"/long": Reply(body=page)})
    with proxy(tmp_path, ["--drain", SLOW]) as integration, connected(integration) as slow:
        slow.sendall(request_to(site, "/long"))
        eventually(lambda: "/long" in site.origin.targets)
        integration.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses(integration))
        assert read_answer(slow).body == page
        printed(integration)


@pytest.mark.parametrize("waits_for_turn", [False, True])
def test_a_plain_mitmdump_prints_no_traceback(tmp_path, sites, waits_for_turn):
    robots = "User-agent: *\nCrawl-delay: 30\n" if waits_for_turn else Reply(hang=True)
    site = sites.start("http", robots=robots)
    with (
        running("mitmdump", tmp_path, hold_max="60", audit="all") as integration,
        connected(integration) as waiting,
    ):
        if waits_for_turn:
            assert plain(integration, site.url + "/first").status == 200
        waiting.sendall(request_to(site, "/open"))
        eventually(
            lambda: (
                len(integration.records()) == 2 if waits_for_turn else site.origin.robots_fetches
            )
        )
        integration.process.send_signal(signal.SIGTERM)
        output = printed(integration)
    assert "Traceback" not in output, output


# -- the start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_during_the_start(tmp_path, http_site, workers):
    """From the first moment at which the process differs from one that only starts its interpreter."""
    ignored = []

    def hang_up(pid):
        eventually(lambda: is_proof(pid) or is_loaded(pid, "mitmproxy_rs"))
        ignored.append(not is_loaded(pid, "mitmproxy_rs"))
        os.kill(pid, signal.SIGHUP)

    settings = {"store": f"sqlite:///{tmp_path / 'p.sqlite'}"}
    with running(
        "proxy", tmp_path, ["--workers", workers], anew=True, started=hang_up, **settings
    ) as integration:
        assert plain(integration, http_site.url + "/open").status == 200
    assert ignored == [True]


def is_proof(pid: int) -> bool:
    """Whether a process ignores SIGHUP or handles it."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^Sig(?:Ign|Cgt):\s*([0-9a-f]+)", status, re.MULTILINE)
    return any(int(mask, 16) & 1 for mask in masks)


def is_loaded(pid: int, library: str) -> bool:
    """Whether a process has loaded a library."""
    return library in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_with_connections_in_time_wait(tmp_path, http_site, workers):
    """Connections that the proxy has closed wait for their end there."""
    settings = {"store": f"sqlite:///{tmp_path / 'p.sqlite'}"}
    with proxy(tmp_path, **settings) as integration, connected(integration) as connection:
        assert exchange(connection, request_to(http_site, "/open")).status == 200
        integration.process.send_signal(signal.SIGTERM)
        assert closed(connection) == b""
        assert integration.process.wait(PATIENCE) == 0
    options = ["--workers", workers, "--listen", f"127.0.0.1:{integration.port}"]
    with proxy(tmp_path, options, **settings) as again:
        assert again.port == integration.port
        assert plain(again, http_site.url + "/open").status == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def metrics_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()
