"""Clients that do not try again share one proxy, and lose no page of a site that asks for a delay."""

from __future__ import annotations

from itertools import pairwise

import pytest
from integrations.envoy.process import envoy
from integrations.mitmproxy.process import running
from integrations.squid.process import squid
from support.crowd import at_once, go_client_in

from robots_guard.configuration.settings import ProxySettings
from robots_guard.testing import Loopback, Reply

pytestmark = pytest.mark.timing

DELAY = 1.0
RULES = f"User-agent: *\nCrawl-delay: {DELAY}\nDisallow: /private/\n"
BUSY = Reply(status=429, headers=(("Retry-After", "2"),))
PLANES = {"proxy": lambda folder, **given: running("proxy", folder, **given)}
PLANES |= {"Envoy": envoy, "Squid": squid}
HOLD_MAX = str(ProxySettings(agent="mybot").hold_max)  # the default
#: How many pages each client gets. wget and requests get theirs one after the other.
CLIENTS = {"wget": 1, "requests": 1, "aiohttp": 2, "pycurl": 2, "Go": 2}


@pytest.fixture(scope="module")
def go(tmp_path_factory):
    return go_client_in(
        tmp_path_factory.mktemp("go"), tmp_path_factory.getbasetemp().parent / "go-cache"
    )


@pytest.mark.parametrize("plane", PLANES)
def test_no_client_loses_a_page(plane, go, tmp_path):
    with (
        Loopback() as net,
        PLANES[plane](tmp_path, hold_max=HOLD_MAX, agent="mybot") as integration,
    ):
        site = net.origin(RULES, {"/busy": BUSY})
        pages = {
            name: [f"{site.url}/{name}/{number}" for number in range(count)]
            for name, count in CLIENTS.items()
        }
        statuses = at_once(
            integration.url, pages | {"requests": [f"{site.url}/busy", *pages["requests"]]}, go
        )

        assert statuses == {
            name: [429] * (name == "requests") + [200] * count for name, count in CLIENTS.items()
        }
        arrived = [each for each in site.received if each.target != "/robots.txt"]
        assert len(arrived) == 1 + sum(CLIENTS.values())
        assert min(later.at - earlier.at for earlier, later in pairwise(arrived)) >= 0.99 * DELAY
