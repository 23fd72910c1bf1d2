"""Sixteen processes on one store, a real origin, real fetches: each robots.txt is fetched once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from support.preloaded import Preloaded
from support.waiting import eventually

from robots_guard.origin import TDMREP_JSON
from robots_guard.testing import Reply

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from single_flight import Asker, measure

#: A process that has imported what an asker needs.
_FORKS = Preloaded(
    [],
    [
        "aiohttp",
        "redis",
        "robots_guard.guard.fetch.http",
        "robots_guard.guard.guard",
        "robots_guard.configuration.settings",
        "robots_guard.guard.stores.redis",
        "robots_guard.guard.stores.sqlite",
        "robots_guard.testing",
        "robots_guard.testing",
    ],
)
FETCH, MARGIN = 1.0, 0.5  # seconds: a lease of 1.5 s, so that the test need not wait for 35


class Fork(Asker):
    """A process that opens its store and its guard itself, and shares only imported modules."""

    def start(self, command, stream):
        standard = {"stdin": stream, "stdout": stream, "stderr": sys.__stderr__.fileno()}
        return _FORKS.start(command, os.environ, **standard)


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/policies.sqlite"
    patience = "timeout=20"  # a busy machine is not a slow server
    return f"{request.getfixturevalue('redis_server').url}?prefix={tmp_path.name}:&{patience}"


def test_sixteen_processes_twenty_bursts_one_fetch_each(url):
    fetches, _ = measure(url, processes=16, askers=40, bursts=20, kind=Fork)

    assert fetches == [1] * 20


def test_each_tdmrep_json_is_fetched_once_too(url, net):
    """The policy that a process without a purpose has stored is renewed once."""
    tdmrep = Reply(body='[{"location": "/private/", "tdm-reservation": 1}]', delay=0.05)
    site = net.origin(404, {TDMREP_JSON: tdmrep})
    plain, *needy = [
        Fork(url, "--askers", "40", "--purposes", purposes)
        for purposes in ("", "tdm", "tdm", "tdm", "tdm")
    ]
    answers = []
    for asker in (plain, *needy):
        asker.receive()
    for askers in ([plain], needy):
        for asker in askers:
            asker.tell(site.url)
        answers += [asker.receive() for asker in askers]
    for asker in (plain, *needy):
        asker.close()

    assert answers == [{"unrestricted": 40}, *[{"usage-reserved": 40}] * 4]
    assert [request.target for request in site.received] == [
        "/robots.txt",
        "/robots.txt",
        TDMREP_JSON,
    ]


def test_the_holder_is_killed_and_all_are_answered_within_lease_and_fetch(url, net):
    """The first fetch hangs and its process is killed with -9; one waiting process takes over."""

    def robots(_) -> Reply:
        return Reply(
            hang=len(site.robots_fetches) == 1, body="User-agent: *\nDisallow: /private/\n"
        )

    site = net.origin(robots=robots)
    short = ("--fetch-timeout", str(FETCH), "--margin", str(MARGIN))
    holder, *others = [Fork(url, "--askers", "100", *short) for _ in range(4)]
    for asker in (holder, *others):
        asker.receive()
    holder.tell(site.url)
    eventually(lambda: site.robots_fetches)
    for asker in others:
        asker.tell(site.url)
    holder.process.kill()
    began = time.monotonic()
    answers = [asker.receive() for asker in others]
    took = time.monotonic() - began
    for asker in (holder, *others):
        asker.close()

    assert answers == [{"disallowed": 100}] * 3
    assert len(site.robots_fetches) == 2
    assert took < 15, "a lease of this length is 1.5 s, and the usual one is 35"
