"""The end of a proxy, for what has not begun yet: an answer at once, and not a word printed."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from hosts.mitmproxy.process import PATIENCE, proxy, running
from hosts.mitmproxy.test_life import _refuses as refuses
from hosts.mitmproxy.test_life import request_to, until
from hosts.mitmproxy.wire import closed, connected, exchange, plain, read_answer

from robots_guard.testing import Reply

SLOW = "3600"  # seconds to drain: what does not end by itself fails the test


def printed(door) -> str:
    assert door.process.wait(PATIENCE) == 0
    return "".join(door.output)


def test_what_waits_for_a_robots_txt(tmp_path, sites):
    """It gets 503 with Retry-After; the site hears nothing more."""
    site = sites.start("http", robots=Reply(hang=True))
    with proxy(tmp_path, ["--drain", SLOW]) as door, connected(door) as one, connected(door) as other:
        one.sendall(request_to(site, "/one"))
        other.sendall(request_to(site, "/other"))
        assert until(lambda: site.origin.robots_fetches)
        door.process.send_signal(signal.SIGTERM)
        answers = [read_answer(connection) for connection in (one, other)]
        told = printed(door)
    assert [answer.status for answer in answers] == [503, 503]
    assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
    assert (site.origin.targets, "Traceback" in told, "Error" in told) == ([], False, False)


def test_what_waits_for_a_turn(tmp_path, http_site):
    metrics = free_port()
    options, settings = ["--drain", SLOW, "--metrics", str(metrics)], {"min_delay": "30", "hold_max": "60"}
    with proxy(tmp_path, options, **settings) as door, connected(door) as waiting:
        assert plain(door, http_site.url + "/first").status == 200
        waiting.sendall(request_to(http_site, "/second"))
        assert until(lambda: "robots_guard_held 1.0" in metrics_at(metrics))
        door.process.send_signal(signal.SIGTERM)
        answer = read_answer(waiting)
        told = printed(door)
    assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True)
    assert (http_site.origin.targets, "Traceback" in told) == (["/first"], False)


def test_an_upload_that_was_let_pass_is_finished(tmp_path, http_site):
    """Also if the rest of it comes when the proxy is already ending."""
    metrics = free_port()
    with proxy(tmp_path, ["--drain", SLOW, "--metrics", str(metrics)]) as door, connected(door) as upload:
        head = f"POST {http_site.url}/up HTTP/1.1\r\nHost: {http_site.authority}\r\nContent-Length: 6\r\n\r\n"
        upload.sendall(head.encode() + b"abc")
        assert until(lambda: "robots_guard_flows 1.0" in metrics_at(metrics))
        door.process.send_signal(signal.SIGTERM)
        assert until(lambda: refuses(door))
        assert exchange(upload, b"def").status == 200
        told = printed(door)
    assert http_site.origin.received[-1].body == b"abcdef"
    assert "Traceback" not in told


def test_a_long_answer_reaches_a_slow_client_to_its_end(tmp_path, sites):
    """What the client has not read yet is not cut off."""
    page = b"x" * 20_000_000
    site = sites.start("http", pages={"/long": Reply(body=page)})
    with proxy(tmp_path, ["--drain", SLOW]) as door, connected(door) as slow:
        slow.sendall(request_to(site, "/long"))
        assert until(lambda: "/long" in site.origin.targets)
        door.process.send_signal(signal.SIGTERM)
        assert until(lambda: refuses(door))
        assert read_answer(slow).body == page
        printed(door)


@pytest.mark.parametrize("held", [False, True])
def test_a_plain_mitmdump_prints_nothing_either(tmp_path, sites, held):
    robots = "User-agent: *\nCrawl-delay: 30\n" if held else Reply(hang=True)
    site = sites.start("http", robots=robots)
    with running("mitmdump", tmp_path, hold_max="60", audit_passes="all") as door, connected(door) as waiting:
        if held:
            assert plain(door, site.url + "/first").status == 200
        waiting.sendall(request_to(site, "/open"))
        assert until(lambda: len(door.records()) == 2 if held else site.origin.robots_fetches)
        door.process.send_signal(signal.SIGTERM)
        told = printed(door)
    assert "Traceback" not in told, told


# -- the start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_during_the_start(tmp_path, http_site, workers):
    """From the first moment the process can be told apart from one that only starts its interpreter."""
    ignored = []

    def hang_up(pid):
        assert until(lambda: is_proof(pid) or is_loaded(pid, "mitmproxy_rs"))
        ignored.append(not is_loaded(pid, "mitmproxy_rs"))
        os.kill(pid, signal.SIGHUP)

    settings = {"store": f"sqlite:///{tmp_path / 'p.sqlite'}"}
    with running("proxy", tmp_path, ["--workers", workers], anew=True, started=hang_up, **settings) as door:
        assert plain(door, http_site.url + "/open").status == 200
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
def test_a_port_that_has_just_been_left(tmp_path, http_site, workers):
    """Connections that the proxy has closed wait for their end there."""
    settings = {"store": f"sqlite:///{tmp_path / 'p.sqlite'}"}
    with proxy(tmp_path, **settings) as door, connected(door) as connection:
        assert exchange(connection, request_to(http_site, "/open")).status == 200
        door.process.send_signal(signal.SIGTERM)
        assert closed(connection) == b""
        assert door.process.wait(PATIENCE) == 0
    options = ["--workers", workers, "--listen", f"127.0.0.1:{door.port}"]
    with proxy(tmp_path, options, **settings) as again:
        assert again.port == door.port
        assert plain(again, http_site.url + "/open").status == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def metrics_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()
