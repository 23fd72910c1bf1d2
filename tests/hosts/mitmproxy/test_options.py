"""Options that lead around us, at the start and while it runs; and the enforcer before it is configured."""

from __future__ import annotations

import logging

import pytest
from mitmproxy import exceptions
from mitmproxy.addons import clientplayback, mapremote, modifyheaders, next_layer, proxyserver, tlsconfig
from mitmproxy.test import taddons, tflow, tutils

from robots_guard.mitmproxy import RobotsGuard
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.options import SPELLING, force
from robots_guard.settings import NAMES


@pytest.fixture
async def context(tmp_path):
    others = (proxyserver.Proxyserver(), next_layer.NextLayer(), mapremote.MapRemote(), modifyheaders.ModifyHeaders())
    with taddons.context(*others) as context:
        context.guard = RobotsGuard()
        context.master.addons.add(context.guard)
        context.options.update(
            robots_guard_agent="mybot", robots_guard_store="memory:", robots_guard_journal=str(tmp_path / "journal")
        )
        context.enforcer = context.master.addons.get("robots_guard_enforcer")
        yield context
        context.enforcer.done()


async def test_bodies_are_limited_unless_the_operator_has_chosen(context):
    assert context.options.body_size_limit == "64m"
    context.options.update(body_size_limit="1g")
    force(context.options)
    assert context.options.body_size_limit == "1g"


def a_flow():
    flow = tflow.tflow(req=tutils.treq(host="127.0.0.1", port=9, headers=((b"host", b"127.0.0.1:9"),)))
    flow.request.http_version = "HTTP/1.1"
    return flow


LEADING_AROUND = {
    "rawtcp": True,
    "connection_strategy": "eager",
    "validate_inbound_headers": False,
    "ssl_insecure": True,
    "ignore_hosts": ["x"],
    "allow_hosts": ["x"],
    "tcp_hosts": ["x"],
    "udp_hosts": ["x"],
    "stream_large_bodies": "1k",
    "map_remote": ["|/a|/b"],
    "modify_headers": ["/~q/Host/x"],
    "mode": ["regular", "reverse:tcp://127.0.0.1:9@9999"],
}


@pytest.mark.parametrize("name", LEADING_AROUND)
async def test_while_it_runs_they_are_refused_and_undone(context, name):
    context.guard.running()
    before = getattr(context.options, name)
    with pytest.raises(exceptions.OptionsError, match=f"{name}=.*: (use|leave)"):
        context.options.update(**{name: LEADING_AROUND[name]})
    assert getattr(context.options, name) == before


@pytest.mark.parametrize("name", LEADING_AROUND)
async def test_before_it_runs_they_shut_it_and_are_told_when_it_does(context, name, caplog):
    context.options.update(**{name: LEADING_AROUND[name]})
    context.guard.running()
    assert any(record.levelno == logging.ERROR and f"{name}=" in record.getMessage() for record in caplog.records)
    flow = a_flow()
    await context.enforcer.requestheaders(flow)
    assert flow.response.status_code == 503


@pytest.mark.parametrize(
    "mode", ["regular", "upstream:http://127.0.0.1:9", "reverse:https://x.test", "socks5", "local:curl", "wireguard"]
)
async def test_modes_that_show_every_request(context, mode):
    context.options.update(mode=[mode])
    assert context.enforcer._fault is None


@pytest.mark.parametrize(
    "mode", ["dns", "reverse:udp://x.test:9", "reverse:dns://x.test", "reverse:tls://x.test:9", "tun"]
)
async def test_modes_that_do_not(context, mode):
    context.options.update(mode=[mode])
    assert f"mode={mode}" in context.enforcer._fault


async def test_mitmproxy_s_unsafe_defaults_are_put_right(context):
    assert (context.options.rawtcp, context.options.connection_strategy) == (False, "lazy")


async def test_ours_cannot_be_changed_while_it_runs(context):
    context.guard.running()
    with pytest.raises(exceptions.OptionsError, match="restart"):
        context.options.update(robots_guard_dialect="google")
    assert context.options.robots_guard_dialect is None


async def test_every_setting_is_an_option(context):
    assert [name for name in NAMES if SPELLING.format(name) not in context.options] == []


async def test_planted_once(context):
    second = RobotsGuard()
    second.name = "again"
    context.master.addons.add(second)
    assert [type(addon) for addon in context.master.addons.chain].count(Enforcer) == 1


async def test_shut_before_it_is_configured():
    with taddons.context(proxyserver.Proxyserver()) as context:
        context.master.addons.add(RobotsGuard())
        flow, enforcer = a_flow(), context.master.addons.get("robots_guard_enforcer")
        enforcer.client_connected(flow.client_conn)
        await enforcer.requestheaders(flow)
        assert flow.response.status_code == 503
        assert b"robots_guard_agent is not set" in flow.response.content


async def test_an_option_that_cannot_be_read_shuts_it(caplog):
    with taddons.context(proxyserver.Proxyserver()) as context:
        context.options.set("robots_guard_agent=mybot", "robots_guard_respect_retry_after=perhaps", defer=True)
        guard = RobotsGuard()
        context.master.addons.add(guard)
        guard.running()
        flow = a_flow()
        await context.master.addons.get("robots_guard_enforcer").requestheaders(flow)
        assert flow.response.status_code == 503
        assert "oolean must be" in caplog.text


async def test_after_the_end_everything_is_refused(context):
    context.guard.running()
    context.enforcer.done()
    flow = a_flow()
    await context.enforcer.requestheaders(flow)
    assert flow.response.status_code == 503


def test_what_we_borrow_from_mitmproxy_is_there():
    """No public interfaces: a new mitmproxy that lacks one should fail here, by name."""
    assert clientplayback.ReplayHandler.replay
    assert tlsconfig.TlsConfig.tls_clienthello
