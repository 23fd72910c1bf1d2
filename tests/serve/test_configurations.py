"""`robots-guard serve --print-config`: what the templates get, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from robots_guard.app.cli.main import COMMANDS, _load
from robots_guard.configuration.settings import ProxySettings
from robots_guard.errors import SettingsError
from robots_guard.gateway.listeners import Address, address_of
from robots_guard.serve.configurations import render, values_of
from robots_guard.serve.plan import Plan, addresses

# The command is loaded as the command line loads it, by the private `_load`.


def plan(places=None, **given):
    settings = ProxySettings(agent="mybot", store="memory:", audit_log="", **given)
    listen = addresses(places or {"envoy": "127.0.0.1:9001"}, allow_remote=False)
    data_plane = Address(host="127.0.0.1", port=8080)
    return Plan(settings=settings, listen=listen, data_plane=data_plane, confdir=Path("/ca"))


@pytest.mark.parametrize(
    ("program", "places", "option"),
    [("envoy", {"icap": "127.0.0.1:1344"}, "--envoy"), ("squid", None, "--icap")],
)
def test_a_program_must_know_where_to_ask(program, places, option):
    with pytest.raises(SettingsError, match=f"{option} is not set: {program} must know") as error:
        render(program, plan(places))

    *_, proposed = str(error.value).split()
    assert render(program, plan({option.removeprefix("--"): proposed}))


def test_an_example_of_an_address_is_one_that_the_program_can_use():
    with pytest.raises(SettingsError, match=r"such as --icap 127\.0\.0\.1:1344$"):
        render("squid", plan())


def test_squid_cannot_ask_at_a_unix_socket():
    with pytest.raises(
        SettingsError, match=r"squid cannot ask at .*: .* --icap 127\.0\.0\.1:1344$"
    ):
        render("squid", plan({"icap": "unix:/run/icap.sock"}))


def test_the_program_waits_longer_than_the_service_may_take():
    values = values_of(plan(fetch_timeout=18, hold_max=7))

    assert values["timeout"] > 28


def test_envoy_gets_a_time_that_it_can_read():
    """A duration of protobuf has nine decimals at most."""
    text = render("envoy", plan(fetch_timeout=0.4, hold_max=0.1))

    (timeout,) = re.findall(r"cluster: robots_guard, timeout: [0-9]+\.?([0-9]*)s", text)
    assert len(timeout) <= 9


def test_the_templates_get_the_ports_and_networks_of_the_settings():
    values = values_of(plan(connect_ports="443, 8000-8999", allow_private="10.0.0.0/8, fd00::/8"))

    assert values["connect_ports"] == [(443, 443), (8000, 8999)]
    assert values["allow_private"] == ["10.0.0.0/8", "fd00::/8"]
    assert values["ca_pair"] == "/ca/mitmproxy-ca.pem"


@pytest.mark.parametrize(
    ("given", "is_judged"),
    [
        ({}, False),
        ({"purposes": "search"}, True),
        ({"signals": "record"}, True),
        ({"signals": "off", "purposes": "search"}, False),
        ({"overrides": "/o.toml", "signals": "off"}, True),
    ],
)
def test_a_response_waits_for_the_service_if_it_must_be_judged(given, is_judged):
    assert values_of(plan(**given))["judges_responses"] is is_judged


def test_the_user_agent_is_for_the_program_to_set():
    assert values_of(plan())["user_agent"] is None
    assert values_of(plan(set_user_agent=True))["user_agent"] == "mybot (robots_guard)"


def test_each_worker_has_an_address_of_its_own_for_envoy():
    served = address_of("unix:/run/e.sock", "--envoy"), address_of("[::1]:9001", "--envoy")

    assert [str(each.of_worker(0)) for each in served] == ["unix:/run/e.sock", "[::1]:9001"]
    assert [str(each.of_worker(2)) for each in served] == ["unix:/run/e.sock.2", "[::1]:9003"]


def test_the_command_prints_a_configuration_and_starts_nothing(tmp_path):
    place = tmp_path / "envoy.sock"
    arguments = ["--agent", "mybot", "--store", "memory:", "--audit-log", str(tmp_path / "log")]
    arguments += ["--confdir", str(tmp_path / "ca"), "--envoy", f"unix:{place}"]
    command = _load("serve", COMMANDS["serve"])

    done = CliRunner().invoke(command, [*arguments, "--print-config", "envoy"])

    assert done.exit_code == 0
    assert str(place) in done.output
    assert not list(tmp_path.iterdir())
