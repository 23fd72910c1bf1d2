"""The addresses and ports that clients may reach. The sites of these tests are on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from pathlib import Path

import pytest
from integrations.mitmproxy.conftest import KINDS, get
from integrations.mitmproxy.wire import connected, exchange, inside, plain
from mitmproxy import connection
from mitmproxy.proxy import mode_specs, server_hooks
from mitmproxy.test import tflow

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.reasons import Reason
from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.destinations import ClientDestinations
from robots_guard.origin import Origin
from robots_guard.testing import Reply


@pytest.fixture(scope="module")
def strict_integrations(start):
    with contextlib.ExitStack() as stack:
        yield {
            kind: stack.enter_context(
                start(kind, allow_private="192.0.2.0/24", connect_ports="443")
            )
            for kind in KINDS
        }


@pytest.fixture(params=KINDS)
def strict_integration(request, strict_integrations):
    return strict_integrations[request.param]


@pytest.mark.parametrize(
    "spelling", ["{host}", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"]
)
def test_a_private_address_is_refused_in_every_spelling(strict_integration, http_site, spelling):
    before = http_site.seen()
    host = spelling.format(host=http_site.host)
    answer = plain(strict_integration, f"http://{host}:{http_site.port}/open")

    assert (answer.status, "destination-refused" in answer.guard) == (403, True), answer
    assert b"allow_private" in answer.body
    assert http_site.seen() == before


@pytest.mark.parametrize("host", ["0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "localhost."])
def test_the_proxy_sends_no_request_to_itself(start, host):
    """It would permit its own /robots.txt and request it endlessly."""
    with start("proxy", allow_private="0.0.0.0/7,127.0.0.0/8") as integration:
        answer = plain(integration, f"http://{host}:{integration.port}/x")
        assert answer.status in (400, 403, 502, 503)
        assert len(integration.records()) < 5
        assert len(list(Path(f"/proc/{integration.process.pid}/fd").iterdir())) < 60


def test_a_refused_destination_is_recorded(strict_integration, http_site):
    plain(strict_integration, http_site.url + "/on-record")
    record = strict_integration.records()[-1]
    assert (record["action"], record["reason"]) == ("drop", "destination-refused")
    assert record["url"] == http_site.url + "/on-record"


def test_an_allowed_network(start, sites):
    near, far = sites.start(), sites.start()
    with start("proxy", allow_private=f"{near.host}/32") as integration:
        assert plain(integration, near.url + "/open").status == 200
        assert plain(integration, near.url + "/private/x").status == 403
        assert plain(integration, far.url + "/open").status == 403
    assert (near.origin.targets, far.seen()[0]) == (["/open"], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reverse_proxy_reaches_its_private_target(kind, start, http_site):
    with (
        start(kind, "--mode", f"reverse:{http_site.url}", allow_private="") as integration,
        connected(integration) as connection,
    ):
        head = "GET /open HTTP/1.1\r\nHost: anything.test\r\nConnection: close\r\n\r\n"
        assert exchange(connection, head.encode()).status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_other_clients_cannot_reach_the_target_of_a_reverse_mode(kind, start, http_site):
    """A regular client of the same process may not reach the target of a reverse mode."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    modes = ["--mode", "regular", "--mode", f"reverse:{http_site.url}@127.0.0.1:{port}"]
    with start(kind, *modes, allow_private="") as integration:
        assert "destination-refused" in plain(integration, http_site.url + "/open").guard
        assert http_site.seen()[0] == 0
        in_front = dataclasses.replace(integration, port=port)
        assert plain(in_front, http_site.url + "/open").status == 200
        assert "destination-refused" in plain(integration, http_site.url + "/open").guard
    assert http_site.origin.targets == ["/open"]


def test_a_tunnel_to_another_port_explains_its_refusal(start, https_site):
    with start("proxy", connect_ports="80, 443") as integration:
        answer = inside(integration, https_site.authority, "/open")
        assert (answer.status, "destination-refused" in answer.guard) == (403, True)
        assert b"connect_ports" in answer.body
        assert https_site.seen()[0] == 0


def test_http_pages_may_use_any_web_port(start, http_site):
    with start("proxy", connect_ports="80, 443") as integration:
        assert plain(integration, http_site.url + "/open").status == 200
        answer = plain(integration, f"http://{http_site.host}:25/open")
        assert (answer.status, "destination-refused" in answer.guard) == (403, True)


@pytest.mark.parametrize("fetch", ["engine", "direct"])
def test_robots_txt_redirects_only_to_permitted_ports(start, sites, https_site, fetch):
    site = sites.start(
        "http", Reply(status=301, headers=(("Location", f"{https_site.url}/robots.txt"),))
    )
    with start("proxy", connect_ports="80, 443", fetch=fetch) as integration:
        assert plain(integration, site.url + "/open").status == 503
        record = next(record for record in integration.records() if record["origin"] == site.url)
    assert (record["failure"], "connect_ports" in record["detail"]) == ("refused", True), record
    assert https_site.seen()[0] == 0


def test_robots_txt_redirects_to_open_ports(start, sites, http_site):
    """Any web port without TLS, those of `connect_ports` with it."""
    for target in (http_site, sites.start("https")):
        site = sites.start(
            "http", Reply(status=301, headers=(("Location", f"{target.url}/robots.txt"),))
        )
        ports = "443" if target is http_site else f"443, {target.port}"
        with start("proxy", connect_ports=ports) as integration:
            assert plain(integration, site.url + "/open").status == 200


@pytest.mark.parametrize("ports", ["", "x", "0", "65536", "90-80", "80;443"])
def test_invalid_connect_ports(ports):
    if not ports:
        assert ProxySettings(agent="mybot", connect_ports=ports).connectable_ports() == ()
        return
    with pytest.raises(SettingsError, match="connect_ports"):
        ProxySettings(agent="mybot", connect_ports=ports)


# -- a name that changes --------------------------------------------------------------------------------------


def client_destinations():
    return ClientDestinations(ProxySettings(agent="mybot").destinations())


def connecting(host, port, spec="regular"):
    client = tflow.tflow().client_conn
    client.proxy_mode = mode_specs.ProxyMode.parse(spec)
    return server_hooks.ServerConnectionHookData(connection.Server(address=(host, port)), client)


async def test_a_name_that_changes_between_the_verdict_and_the_connection(http_site, monkeypatch):
    """DNS rebinding: public when it is judged, loopback when the connection is made."""
    ways = client_destinations()
    answers = iter(["8.8.8.8", http_site.host])

    def rebinding(host, port, *_, **__):
        return [(2, 1, 6, "", (next(answers), port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    data = connecting("rebinds.test", http_site.port)

    assert await ways.verdict(data.client, Origin("http", "rebinds.test", http_site.port)) is None
    assert ways.objection_to_connecting(data) is None
    before = http_site.seen()
    with pytest.raises(OSError, match="is not public: allow_private"):
        await asyncio.open_connection(*data.server.address)
    assert http_site.seen() == before


async def test_unguarded_connections_are_not_checked(http_site):
    ways = client_destinations()

    async def guarded():
        ways.objection_to_connecting(connecting("localhost", 9))

    await asyncio.gather(guarded())
    infos = await asyncio.get_running_loop().getaddrinfo("localhost", http_site.port)
    assert infos


async def test_an_objection_is_cached_by_name():
    ways = client_destinations()
    client = connecting("x.test", 80).client
    for _ in range(2):
        verdict = await ways.verdict(client, Origin("http", "127.0.0.1", 80))
        assert (verdict.reason, "127.0.0.1 is not public" in verdict.detail) == (
            Reason.DESTINATION_REFUSED,
            True,
        )


async def test_the_cache_distinguishes_modes():
    """A parent proxy resolves names itself; direct requests are resolved here."""
    ways = client_destinations()
    behind = connecting("x.test", 80, "upstream:http://127.0.0.1:9").client
    directly, private = connecting("x.test", 80).client, Origin("http", "localhost", 80)
    assert await ways.verdict(behind, private) is None
    assert (await ways.verdict(directly, private)).reason is Reason.DESTINATION_REFUSED
    assert await ways.verdict(behind, private) is None


async def test_with_a_parent_only_literal_addresses_are_checked():
    ways = client_destinations()
    client = connecting("x.test", 80, "upstream:http://127.0.0.1:9").client
    assert await ways.verdict(client, Origin("http", "localhost", 80)) is None
    assert await ways.verdict(client, Origin("http", "10.0.0.1", 80)) is not None
    assert (
        ways.objection_to_connecting(connecting("127.0.0.1", 9, "upstream:http://127.0.0.1:9"))
        is None
    )


# -- QUIC -----------------------------------------------------------------------------------------------------


def test_alt_svc_is_removed(integration, sites):
    pages = {"/open": Reply(headers=(("Alt-Svc", 'h3=":443"'),))}
    site = sites.start("https", pages=pages)
    answer = get(integration, site, "/open")
    assert (answer.status, "alt-svc" in answer.headers) == (200, False)
