"""The third and fourth gate and the check of responses by themselves, as if the gates before them had failed."""

from __future__ import annotations

import logging

import pytest
from mitmproxy import connection, ctx, exceptions
from mitmproxy.addons import proxyserver
from mitmproxy.proxy import mode_specs, server_hooks
from mitmproxy.test import taddons, tflow
from support.hooks import finish

from robots_guard.gateway.refusal import not_ready
from robots_guard.mitmproxy import RobotsGuard
from robots_guard.mitmproxy.permits import JudgedRequest, Permits
from robots_guard.mitmproxy.wire import Approved

# These tests replace `_permits` to cause faults, and call the private steps of a request, whose
# order mitmproxy decides.

SITE = ("site.test", 443)


def flow_to(host, port, *, client=None):
    flow = tflow.tflow()
    flow.request.data.host, flow.request.data.port = host, port
    flow.request.headers["host"] = f"{host}:{port}"
    if client is not None:
        flow.client_conn = client
    return flow


def grant(permits, flow):
    seen = JudgedRequest.of(flow)
    permits.grant(flow, Approved(seen.wire.origin(), seen.wire), seen.request)


def connecting(flow, address):
    server = connection.Server(address=address)
    server.tls = flow.request.scheme == "https"
    return server_hooks.ServerConnectionHookData(server, flow.client_conn)


def test_no_permit_no_connection():
    assert (
        Permits().objection(connecting(flow_to(*SITE), SITE))
        == "no permitted HTTP request for this connection"
    )


def test_a_permit_is_for_one_address_of_one_client():
    permits, flow = Permits(), flow_to(*SITE)
    grant(permits, flow)
    assert permits.objection(connecting(flow, SITE)) is None
    assert (
        permits.objection(connecting(flow, ("site.test", 80)))
        == "the destination was not permitted"
    )
    assert (
        permits.objection(connecting(flow, ("other.test", 443)))
        == "the destination was not permitted"
    )
    other = flow_to(*SITE)
    other.client_conn.timestamp_start = 12345.0
    assert permits.objection(connecting(other, SITE)) is not None


def test_a_copy_of_a_client_is_that_client():
    """A replay works on a copy, which has another id."""
    permits, flow = Permits(), flow_to(*SITE)
    grant(permits, flow)
    copy = flow_to(*SITE, client=flow.client_conn.copy())
    assert copy.client_conn.id != flow.client_conn.id
    assert permits.objection(connecting(copy, SITE)) is None


def test_with_a_parent_only_the_parent_is_connected_to():
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
            robots_guard_agent="mybot",
            robots_guard_store="memory:",
            robots_guard_audit_log=str(tmp_path / "audit_log"),
        )
        found = context.master.addons.get("robots_guard_enforcer")
        found.running()
        yield found
        found.done()


def trigger_connect(enforcer, data):
    """Call the hook as mitmproxy does, which also looks into the addons of an addon."""
    ctx.master.addons.invoke_addon_sync(enforcer, server_hooks.ServerConnectHook(data))


async def test_a_refused_connection_is_recorded(enforcer, tmp_path):
    data = connecting(flow_to(*SITE), SITE)
    trigger_connect(enforcer, data)
    assert data.server.error.startswith("robots_guard: ")
    (audit_log,) = (tmp_path / "audit_log").glob("*.jsonl")
    assert '"reason":"not-http"' in audit_log.read_text()


async def test_a_gate_that_fails_refuses_connections(enforcer, monkeypatch, caplog):
    monkeypatch.setattr(enforcer.addons[0], "_permits", None)
    data = connecting(flow_to(*SITE), SITE)
    trigger_connect(enforcer, data)
    assert data.server.error == "robots_guard: internal error AttributeError"


async def test_a_second_gate_that_fails_refuses(enforcer, monkeypatch, caplog):
    flow = flow_to(*SITE)
    monkeypatch.setattr(enforcer._permits, "state_of", lambda _: 1 / 0)
    await enforcer._await_turn(flow)
    assert flow.response.status_code == 503
    assert "the request is refused" in caplog.text


async def test_a_refusal_to_a_departed_client_is_not_logged_as_an_error(enforcer, caplog):
    flow = flow_to(*SITE)
    enforcer._refuse(flow, not_ready("shut", method="GET"))
    enforcer.client_disconnected(flow.client_conn)
    await finish(enforcer.responseheaders(flow))
    assert flow.error is None
    assert "without a verdict" not in caplog.text


async def test_a_response_without_a_verdict_is_killed(enforcer, caplog):
    flow = tflow.tflow(resp=True)
    flow.live = True
    await finish(enforcer.responseheaders(flow))
    assert flow.error.msg == flow.error.KILLED_MESSAGE
    assert any(
        record.levelno == logging.ERROR and "without a verdict" in record.message
        for record in caplog.records
    )


async def test_a_change_of_options_does_not_undo_the_shutdown(enforcer):
    enforcer.drain()

    with pytest.raises(exceptions.OptionsError):
        enforcer.configure({"anything"})

    assert enforcer.fault == "robots_guard is shutting down"
