"""Real processes whose Redis server is stopped: they go on without it, and end on a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from cli.command import COMMAND
from integrations.mitmproxy.process import PATIENCE, environment, proxy
from integrations.mitmproxy.wire import plain
from integrations.scrapy import crawl
from support.stores import start_redis
from support.waiting import eventually

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.1\n"
SLOW = Reply(body=RULES, delay=2.0)


class Server:
    """A Redis server that can be stopped; calls to it then wait for up to 60 seconds."""

    def __init__(self, folder) -> None:
        self._server = start_redis(folder)
        self.store = f"{self._server.url}?timeout=60"

    def stop(self) -> None:
        os.kill(self._server.process.pid, signal.SIGSTOP)

    def end(self) -> None:
        self._server.process.kill()  # stopped or not
        self._server.process.wait()


@pytest.fixture
def server(tmp_path):
    redis = Server(tmp_path)
    yield redis
    redis.end()


def has_been_fetched(site):
    return bool(site.robots_fetches)


def test_the_proxy_goes_on_and_ends(tmp_path, net, server):
    known, other = net.origin(RULES), net.origin(RULES)
    with proxy(tmp_path / "proxy", store=server.store, hold_max="30") as integration:
        assert plain(integration, f"{known.url}/before").status == 200
        server.stop()
        assert plain(integration, f"{known.url}/after").status == 200
        assert plain(integration, f"{other.url}/page").status == 200
        assert plain(integration, f"{other.url}/private/").status == 403
        integration.process.send_signal(signal.SIGTERM)
        assert integration.process.wait(PATIENCE) == 0
    output = "".join(integration.output)
    assert "no answer from the policy store" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("mode", crawl.MODES)
def test_a_crawl_finishes(tmp_path, net, server, mode):
    first, other = net.origin(RULES), net.origin(SLOW)
    threading.Thread(
        target=lambda: eventually(lambda: has_been_fetched(other)) and server.stop()
    ).start()
    urls = [f"{site.url}/{number}" for site in (first, other) for number in range(3)]
    plan = {
        **crawl.MODES[mode],
        "settings": {**crawl.MODES[mode]["settings"], "ROBOTS_GUARD_STORE": server.store},
    }
    done = crawl.crawl(urls, **plan, see_through=True, timeout=50)

    assert [done[url]["status"] for url in urls] == [200] * 6
    assert done.code == 0


def test_a_crawl_ends_at_sigterm(tmp_path, net, server):
    site = net.origin(SLOW)
    settings = {"ROBOTS_GUARD_STORE": server.store, "ROBOTS_GUARD_MIN_DELAY": 20.0}
    plan = {
        "requests": [f"{site.url}/{number}" for number in range(100)],
        "settings": crawl.crawl_settings(settings, tmp_path / "audit_log"),
        "deferred_api": False,
    }
    command, env = [sys.executable, crawl.__file__], crawl.crawl_environment()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env)
    process.stdin.write(json.dumps(plan).encode())
    process.stdin.close()
    try:
        eventually(lambda: has_been_fetched(site))
        server.stop()
        eventually(lambda: site.targets)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("number", "status"), [(None, 0), (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_the_command_line_finishes_or_ends_on_a_signal(tmp_path, net, server, number, status):
    site = net.origin(SLOW)
    flags = ["--agent=mybot", f"--store={server.store}", f"--audit-log={tmp_path / 'audit_log'}"]
    command = [COMMAND, "check", *flags, f"{site.url}/page"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        eventually(lambda: has_been_fetched(site))
        server.stop()
        if number is not None:
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == status
    assert out.startswith(b"pass") == (status == 0)
    assert b"Traceback" not in err
