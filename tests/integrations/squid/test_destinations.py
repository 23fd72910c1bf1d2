"""Private addresses: the service refuses them, and Squid refuses what the service has permitted."""

from __future__ import annotations

from integrations.mitmproxy.wire import plain
from integrations.squid.process import squid


def test_the_service_refuses_a_private_address(tmp_path, sites):
    site = sites.start()
    with squid(tmp_path, allow_private="") as integration:
        for host in (site.host, "localhost", "2130706433"):
            answer = plain(integration, f"http://{host}:{site.port}/open")
            assert (answer.status, "destination-refused" in answer.guard) == (403, True)
        assert {record["reason"] for record in integration.records()} == {"destination-refused"}
    assert site.seen()[0] == 0


def test_squid_refuses_a_private_address_that_the_service_has_permitted(tmp_path, sites):
    """As a name that leads elsewhere when Squid resolves it."""
    site = sites.start()
    with squid(tmp_path, change=_without_exceptions, audit="all") as integration:
        assert plain(integration, f"{site.url}/open").status == 403
        (record,) = integration.records()
    assert record["action"] == "pass"
    assert [request.target for request in site.origin.received] == ["/robots.txt"]


def _without_exceptions(configuration: str) -> str:
    assert " !allowed_private" in configuration
    return configuration.replace(" !allowed_private", "")
