"""Faults of the decision service behind Envoy: nothing passes meanwhile, and all is well after."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from integrations.envoy.conftest import RULES
from integrations.mitmproxy.wire import plain
from support.waiting import eventually

from robots_guard.testing import Reply

#: Short times, so that a test of a service that hangs does not last long.
BRIEF = {"hold_max": "0.1", "fetch_timeout": "0.4"}


@pytest.fixture
def site(net):
    return net.origin(RULES)


def _ask_many(integration, site, beginning: str) -> list[int]:
    with ThreadPoolExecutor(8) as clients:
        urls = [f"{site.url}/{beginning}{number}" for number in range(16)]
        return list(clients.map(lambda url: plain(integration, url).status, urls))


def test_a_service_that_was_killed(integration, site):
    assert plain(integration, site.url + "/before").status == 200
    integration.end_service(signal.SIGKILL)

    assert set(_ask_many(integration, site, "killed")) == {503}
    assert site.pages_matching("killed") == []

    integration.start_service()
    begun = time.monotonic()
    eventually(lambda: plain(integration, site.url + "/after").status == 200)
    assert time.monotonic() - begun < 10
    assert plain(integration, site.url + "/private/x").status == 403


def test_a_service_that_is_restarted(integration, site):
    integration.end_service()

    assert plain(integration, site.url + "/stopped").status == 503
    assert site.pages_matching("stopped") == []

    integration.start_service()
    eventually(lambda: plain(integration, site.url + "/after").status == 200)


def test_a_service_that_hangs(start, net):
    """Envoy answers when the service should have. Nothing of that time passes later."""
    site = net.origin(RULES)
    with start(**BRIEF) as integration:
        assert plain(integration, site.url + "/before").status == 200
        os.kill(integration.service.pid, signal.SIGSTOP)

        begun = time.monotonic()
        statuses = _ask_many(integration, site, "hung")
        took = time.monotonic() - begun
        os.kill(integration.service.pid, signal.SIGCONT)

        assert set(statuses) == {503}
        assert took < 3 * (0.6 + 5)
        eventually(lambda: plain(integration, site.url + "/after").status == 200)
    assert site.pages_matching("hung") == []


def test_a_robots_txt_that_is_slow_holds_its_own_site_only(start, net):
    slow = net.origin(lambda _: Reply(body=RULES, delay=4.0))
    quick = net.origin(RULES)
    with start(**BRIEF | {"fetch_timeout": "8"}) as integration:
        assert plain(integration, quick.url + "/1").status == 200
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(plain, integration, slow.url + "/a")
            eventually(lambda: slow.robots_fetches)
            begun = time.monotonic()
            assert plain(integration, quick.url + "/2").status == 200
            assert time.monotonic() - begun < 4.0
            assert held.result().status == 200


def test_an_audit_log_that_cannot_be_written(start, net, tmp_path):
    """A directory in the place of the log's file: nothing can be recorded, so nothing passes."""
    site = net.origin(RULES)
    with start(audit="all") as integration:
        assert plain(integration, site.url + "/before").status == 200
        integration.end_service(signal.SIGKILL)
        log = integration.folder / "audit_log"
        log.rename(tmp_path / "away")
        log.write_text("not a directory")
        with contextlib.suppress(AssertionError):  # it ends as soon as it sees this
            integration.start_service()
        assert plain(integration, site.url + "/unrecorded").status == 503
    assert site.pages_matching("unrecorded") == []
