"""A service that is dead, hung, slow or restarted: nothing passes that it has not permitted."""

from __future__ import annotations

import signal
import threading

import pytest
from integrations.squid.conftest import get
from integrations.squid.process import squid
from support.waiting import eventually

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory):
    """A Squid that waits only 2 s for its service, and looks every few seconds."""

    def hasty(text: str) -> str:
        assert "icap_io_timeout 43 seconds" in text
        return text.replace("icap_io_timeout 43 seconds", "icap_io_timeout 2 seconds")

    folder = tmp_path_factory.mktemp("faults")
    with squid(folder, upstream_ca=ca_file, change=hasty, audit="all") as started:
        yield started


@pytest.fixture(params=["http", "https"])
def known(request, sites, integration):
    """A site whose rules the service has in memory."""
    site = sites.start(request.param)
    assert get(integration, site, "/known").status == 200
    return site


def test_a_dead_service(integration, known):
    integration.service.end(signal.SIGKILL)
    try:
        for target in ("/open", "/private/x", "/open"):
            assert get(integration, known, target).status == 500
        assert known.origin.targets == ["/known"]
    finally:
        integration.service.start()
    assert get(integration, known, "/open").status == 200
    assert get(integration, known, "/private/x").status == 403


def test_a_hung_service(integration, known):
    integration.service.send_signal(signal.SIGSTOP)
    try:
        for target in ("/open", "/private/x"):
            assert get(integration, known, target).status == 500
        assert known.origin.targets == ["/known"]
    finally:
        integration.service.send_signal(signal.SIGCONT)
    assert get(integration, known, "/after").status == 200
    assert known.origin.targets == ["/known", "/after"]


def test_a_slow_service(integration, sites):
    """Squid gives up a question that takes too long, and later answers count for nothing."""
    slow = Reply(body=RULES, delay=7.0)
    site = sites.start("http", slow)
    assert get(integration, site, "/open").status == 500
    assert site.origin.targets == []
    eventually(lambda: get(integration, site, "/later").status == 200, despite=AssertionError)
    assert set(site.origin.targets) == {"/later"}


def test_restarts_under_load(integration, known):
    """A restart loses requests that are under way, and lets none pass unasked."""
    ended, statuses = threading.Event(), set()

    def crawl() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            statuses.add(("open", get(integration, known, f"/open/{number}").status))
            statuses.add(("private", get(integration, known, f"/private/{number}").status))

    client = threading.Thread(target=crawl)
    client.start()
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            integration.service.end(number)
            integration.service.start()
            seen = len(known.origin.received)
            eventually(lambda seen=seen: len(known.origin.received) > seen + 3)
    finally:
        ended.set()
        client.join()
    assert ("open", 200) in statuses
    assert ("private", 403) in statuses
    assert {status for kind, status in statuses if kind == "private"} <= {403, 500, 503}
    assert known.origin.pages_matching("/private/") == []


def test_squid_without_a_service_from_the_start(ca_file, sites, tmp_path):
    """It refuses everything, and asks again after 30 s."""
    site = sites.start("http")

    def elsewhere(text: str) -> str:
        return text.replace("icap://127.0.0.1:", "icap://127.0.0.2:")

    with squid(tmp_path, upstream_ca=ca_file, change=elsewhere) as started:
        assert get(started, site, "/open").status == 500
    assert site.seen()[0] == 0
