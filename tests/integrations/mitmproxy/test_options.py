"""Options that bypass the guard, at the start and later; and the enforcer before it is configured."""

from __future__ import annotations

import logging

import pytest
from mitmproxy import exceptions
from mitmproxy.addons import (
    clientplayback,
    mapremote,
    modifyheaders,
    next_layer,
    proxyserver,
    tlsconfig,
)
from mitmproxy.test import taddons, tflow, tutils
from support.hooks import finish

from robots_guard.configuration.settings import NAMES
from robots_guard.mitmproxy import RobotsGuard
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.options import SPELLING, apply_safe_defaults


@pytest.fixture
async def context(tmp_path):
    others = (
        proxyserver.Proxyserver(),
        next_layer.NextLayer(),
        mapremote.MapRemote(),
        modifyheaders.ModifyHeaders(),
    )
    with taddons.context(*others) as context:
        context.guard = RobotsGuard()
        context.master.addons.add(context.guard)
        context.options.update(
            robots_guard_agent="mybot",
            robots_guard_store="memory:",
            robots_guard_audit_log=str(tmp_path / "audit_log"),
        )
        context.enforcer = context.master.addons.get("robots_guard_enforcer")
        yield context
        context.enforcer.done()


async def test_bodies_are_limited_by_default(context):
    assert context.options.body_size_limit == "64m"
    context.options.update(body_size_limit="1g")
    apply_safe_defaults(context.options)
    assert context.options.body_size_limit == "1g"


def a_flow():
    flow = tflow.tflow(
        req=tutils.treq(host="127.0.0.1", port=9, headers=((b"host", b"127.0.0.1:9"),))
    )
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
async def test_unsafe_options_are_undone_while_the_proxy_runs(context, name):
    context.guard.running()
    before = getattr(context.options, name)
    with pytest.raises(exceptions.OptionsError, match=f"{name}=.*: (use|leave)"):
        context.options.update(**{name: LEADING_AROUND[name]})
    assert getattr(context.options, name) == before


@pytest.mark.parametrize("name", LEADING_AROUND)
async def test_unsafe_options_before_the_start_are_reported_at_the_start(context, name, caplog):
    context.options.update(**{name: LEADING_AROUND[name]})
    context.guard.running()
    assert any(
        record.levelno == logging.ERROR and f"{name}=" in record.getMessage()
        for record in caplog.records
    )
    flow = a_flow()
    await finish(context.enforcer.requestheaders(flow))
    assert flow.response.status_code == 503


@pytest.mark.parametrize(
    "mode",
    [
        "regular",
        "upstream:http://127.0.0.1:9",
        "reverse:https://x.test",
        "socks5",
        "local:curl",
        "wireguard",
    ],
)
async def test_modes_in_which_every_request_is_seen(context, mode):
    context.options.update(mode=[mode])
    assert context.enforcer.fault is None


@pytest.mark.parametrize(
    "mode",
    ["dns", "reverse:udp://x.test:9", "reverse:dns://x.test", "reverse:tls://x.test:9", "tun"],
)
async def test_modes_in_which_not_every_request_is_seen(context, mode):
    context.options.update(mode=[mode])
    assert f"mode={mode}" in context.enforcer.fault


async def test_unsafe_defaults_of_mitmproxy_are_replaced(context):
    assert (context.options.rawtcp, context.options.connection_strategy) == (False, "lazy")


async def test_guard_options_cannot_be_changed_while_the_proxy_runs(context):
    context.guard.running()
    with pytest.raises(exceptions.OptionsError, match="restart"):
        context.options.update(robots_guard_dialect="google")
    assert context.options.robots_guard_dialect is None


async def test_every_setting_is_an_option(context):
    assert [name for name in NAMES if SPELLING.format(name) not in context.options] == []


async def test_the_enforcer_is_installed_once(context):
    second = RobotsGuard()
    second.name = "again"
    context.master.addons.add(second)
    assert [type(addon) for addon in context.master.addons.chain].count(Enforcer) == 1


async def test_requests_are_refused_before_the_configuration():
    with taddons.context(proxyserver.Proxyserver()) as context:
        context.master.addons.add(RobotsGuard())
        flow, enforcer = a_flow(), context.master.addons.get("robots_guard_enforcer")
        enforcer.client_connected(flow.client_conn)
        await finish(enforcer.requestheaders(flow))
        assert flow.response.status_code == 503
        assert b"robots_guard_agent is not set" in flow.response.content


async def test_an_unreadable_option_refuses_everything(caplog):
    with taddons.context(proxyserver.Proxyserver()) as context:
        context.options.set(
            "robots_guard_agent=mybot", "robots_guard_respect_retry_after=perhaps", defer=True
        )
        guard = RobotsGuard()
        context.master.addons.add(guard)
        guard.running()
        flow = a_flow()
        await finish(context.master.addons.get("robots_guard_enforcer").requestheaders(flow))
        assert flow.response.status_code == 503
        assert "oolean must be" in caplog.text


async def test_after_the_end_everything_is_refused(context):
    context.guard.running()
    context.enforcer.done()
    flow = a_flow()
    await finish(context.enforcer.requestheaders(flow))
    assert flow.response.status_code == 503


def test_mitmproxy_internals_that_are_used_exist():
    """They are not public interfaces: a mitmproxy that lacks one should fail here, by name."""
    assert clientplayback.ReplayHandler.replay
    assert tlsconfig.TlsConfig.tls_clienthello


@pytest.mark.parametrize(
    ("host", "mode", "said"),
    [
        ("", "regular", "on all addresses without"),
        ("192.0.2.1", "regular", "on 192.0.2.1 without"),
        ("127.0.0.1", "regular@0.0.0.0:0", "on 0.0.0.0 without"),
        ("127.0.0.1", "regular", None),
        ("::1", "regular", None),
        ("localhost", "regular", None),
    ],
)
async def test_a_mitmdump_that_any_machine_can_use_says_so(context, caplog, host, mode, said):
    context.options.update(listen_host=host, mode=[mode])
    context.guard.running()
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    found = [each for each in warnings if "without authentication" in each]
    assert len(found) == (said is not None)
    assert said is None or (said in found[0] and "--listen-host 127.0.0.1" in found[0])
