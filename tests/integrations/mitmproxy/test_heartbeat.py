"""A proxy whose event loop is blocked, as by the disk of its audit log, says in its metrics that it is not ready."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from support.waiting import eventually

from robots_guard.gateway import metrics as metrics_module
from robots_guard.mitmproxy.launcher import _serve_metrics

# A test starts the metrics by the private `_serve_metrics`: it cannot stop the event loop of the whole
# command.


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode().splitlines()


def wait_for(port, line):
    """Read the metrics until they have this line."""
    return eventually(lambda: line in metrics(port))


async def test_a_proxy_with_a_blocked_loop_is_not_ready(monkeypatch):
    monkeypatch.setattr(metrics_module, "EVERY", 0.05)
    monkeypatch.setattr(metrics_module, "STALE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    enforcer = SimpleNamespace(
        counts=Counter(), under_way=lambda: 0, waiting=lambda: 0, exemptions=tuple, fault=None
    )
    _serve_metrics(enforcer, port)

    assert await asyncio.to_thread(wait_for, port, "robots_guard_ready 1.0")
    with ThreadPoolExecutor(1) as pool:
        # The loop waits for it, and turns not.
        assert pool.submit(wait_for, port, "robots_guard_ready 0.0").result(60)
    assert await asyncio.to_thread(wait_for, port, "robots_guard_ready 1.0")
    enforcer.fault = "the agent is not set"
    assert await asyncio.to_thread(wait_for, port, "robots_guard_ready 0.0")
