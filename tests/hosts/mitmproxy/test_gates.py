"""The gates behind the first two and the tripwire by themselves: what they do if the gates before them have failed."""

from __future__ import annotations

import logging

import pytest
from mitmproxy import connection
from mitmproxy.addons import proxyserver
from mitmproxy.proxy import mode_specs, server_hooks
from mitmproxy.test import taddons, tflow

from robots_guard.mitmproxy import RobotsGuard
from robots_guard.mitmproxy.outgoing import Approved
from robots_guard.mitmproxy.permits import Permits, Seen
from robots_guard.mitmproxy.replies import unready

SITE = ("site.test", 443)


def flow_to(host, port, *, client=None):
    flow = tflow.tflow()
    flow.request.data.host, flow.request.data.port = host, port
    flow.request.headers["host"] = f"{host}:{port}"
    if client is not None:
        flow.client_conn = client
    return flow


def grant(permits, flow):
    seen = Seen.of(flow)
    permits.grant(flow, Approved(seen.wire.origin(), seen.wire), seen.request)


def connecting(flow, address):
    server = connection.Server(address=address)
    server.tls = flow.request.scheme == "https"
    return server_hooks.ServerConnectionHookData(server, flow.client_conn)


def test_no_permit_no_connection():
    assert Permits().objection(connecting(flow_to(*SITE), SITE)) == "no permitted HTTP request for this connection"


def test_a_permit_is_for_one_address_of_one_client():
    permits, flow = Permits(), flow_to(*SITE)
    grant(permits, flow)
    assert permits.objection(connecting(flow, SITE)) is None
    assert permits.objection(connecting(flow, ("site.test", 80))) == "the destination was not permitted"
    assert permits.objection(connecting(flow, ("other.test", 443))) == "the destination was not permitted"
    stranger = flow_to(*SITE)
    stranger.client_conn.timestamp_start = 12345.0
    assert permits.objection(connecting(stranger, SITE)) is not None


def test_a_copy_of_a_client_is_that_client():
    """A replay connects for a copy, which has another id."""
    permits, flow = Permits(), flow_to(*SITE)
    grant(permits, flow)
    copy = flow_to(*SITE, client=flow.client_conn.copy())
    assert copy.client_conn.id != flow.client_conn.id
    assert permits.objection(connecting(copy, SITE)) is None


def test_behind_a_parent_only_the_parent_is_connected_to():
    permits, flow = Permits(), flow_to(*SITE)
    flow.client_conn.proxy_mode = mode_specs.ProxyMode.parse("upstream:http://parent.test:3128")
    grant(permits, flow)
    assert permits.objection(connecting(flow, ("parent.test", 3128))) is None
    assert permits.objection(connecting(flow, SITE)) is not None


def test_a_permit_ends():
    permits, flow, other = Permits(), flow_to(*SITE), flow_to(*SITE)
    other.client_conn = flow.client_conn
    grant(permits, flow)
    grant(permits, other)
    permits.release(flow)
    assert permits.objection(connecting(flow, SITE)) is None
    permits.release(other)
    assert permits.objection(connecting(flow, SITE)) is not None
    grant(permits, flow)
    permits.forget(flow.client_conn)
    assert permits.objection(connecting(flow, SITE)) is not None
    assert len(permits) == 0


@pytest.fixture
async def enforcer(tmp_path):
    with taddons.context(proxyserver.Proxyserver()) as context:
        context.master.addons.add(RobotsGuard())
        context.options.update(
            robots_guard_agent="mybot", robots_guard_store="memory:", robots_guard_journal=str(tmp_path / "journal")
        )
        found = context.master.addons.get("robots_guard_enforcer")
        found.running()
        yield found
        found.done()


async def test_a_refused_connection_is_on_record(enforcer, tmp_path):
    data = connecting(flow_to(*SITE), SITE)
    enforcer.server_connect(data)
    assert data.server.error.startswith("robots_guard: ")
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    assert '"reason":"not-http"' in journal.read_text()


async def test_a_gate_that_breaks_is_shut(enforcer, monkeypatch, caplog):
    monkeypatch.setattr(enforcer, "_permits", None)
    data = connecting(flow_to(*SITE), SITE)
    enforcer.server_connect(data)
    assert data.server.error == "robots_guard: internal error AttributeError"


async def test_a_second_gate_that_breaks_refuses(enforcer, monkeypatch, caplog):
    flow = flow_to(*SITE)
    monkeypatch.setattr(enforcer._permits, "of", lambda _: 1 / 0)
    await enforcer._settle(flow)
    assert flow.response.status_code == 503
    assert "the request is refused" in caplog.text


async def test_a_refusal_to_a_client_that_has_left_is_no_alarm(enforcer, caplog):
    flow = flow_to(*SITE)
    enforcer._refuse(flow, unready("shut", method="GET"))
    enforcer.client_disconnected(flow.client_conn)
    await enforcer.responseheaders(flow)
    assert flow.error is None
    assert "without a verdict" not in caplog.text


async def test_the_tripwire(enforcer, caplog):
    flow = tflow.tflow(resp=True)
    flow.live = True
    await enforcer.responseheaders(flow)
    assert flow.error.msg == flow.error.KILLED_MESSAGE
    assert any(record.levelno == logging.ERROR and "without a verdict" in record.message for record in caplog.records)
