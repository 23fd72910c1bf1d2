"""The configuration of Envoy: it fails closed, for any settings, and no name leads elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from integrations.envoy.process import envoy_binary, envoy_configuration
from integrations.mitmproxy.process import PROGRAMS, ROOT, environment
from integrations.mitmproxy.wire import plain

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.freshness import PAUSE_STATUSES
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.protocol.signals.headers import FIELDS
from robots_guard.serve.ext_authz import CARRIERS, carried


def _configuration(workers: int = 1, service: str = "unix:/run/rg.sock", **settings) -> str:
    given = ProxySettings(agent="mybot", store="memory:", audit_log="", **settings)
    return envoy_configuration(given, listen="127.0.0.1:10000", service=service, workers=workers)


@pytest.mark.parametrize(
    ("workers", "service", "settings"),
    [
        (1, "unix:/run/rg.sock", {}),
        (3, "unix:/run/rg.sock", {"purposes": "ai-train"}),
        (2, "127.0.0.1:9001", {"signals": "off"}),
        (1, "unix:/run/a 'b' \"c\"", {"set_user_agent": True, "user_agent": 'x"y\\z'}),
    ],
)
def test_envoy_accepts_it(tmp_path, workers, service, settings):
    path = tmp_path / "envoy.yaml"
    path.write_text(_configuration(workers, service, **settings))

    done = subprocess.run(
        [envoy_binary(), "--mode", "validate", "-c", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]


def test_it_is_that_of_the_command(tmp_path):
    command = [str(PROGRAMS / "robots-guard"), "serve", "--print-config=envoy", "--agent=mybot"]
    options = ["--envoy=unix:/run/rg.sock", "--data-plane=127.0.0.1:10000"]

    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=environment(), check=True
    )

    assert done.stdout == _configuration()


def test_the_example_is_what_is_printed():
    folder = ROOT / "examples" / "envoy"
    settings = {
        "ROBOTS_GUARD_CONFIG": str(folder / "robots_guard.toml"),
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",  # Debian's
    }
    command = [str(PROGRAMS / "robots-guard"), "serve", "--print-config=envoy"]

    done = subprocess.run(
        command, capture_output=True, text=True, env=environment() | settings, check=True
    )

    assert done.stdout == (folder / "envoy.yaml").read_text()


def test_it_fails_closed():
    text = _configuration()

    assert "failure_mode_allow: false" in text
    assert "failure_mode_allow: true" not in text
    assert "normalize_path: false" in text
    assert "merge_slashes: false" in text
    assert "path_with_escaped_slashes_action: KEEP_UNCHANGED" in text
    assert "retry_policy" not in text  # a permitted request is sent once


def test_envoy_is_more_patient_than_the_service():
    text = _configuration(fetch_timeout=6.0, hold_max=2.0)

    (timeout,) = re.findall(r"cluster: robots_guard, timeout: ([0-9.]+)s", text)
    assert float(timeout) > 9


def test_each_process_is_told_of_its_own_responses():
    text = _configuration(workers=2)

    assert text.count('"/run/rg.sock.1"') == 2  # in the cluster of all, and in its own
    assert "name: robots_guard_1\n" in text


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_of_a_signal_is_reported(name):
    text = _configuration()

    assert f'"{name}"' in text
    # The script sees a response only if a matcher lets it.
    assert f'header_name: "{name}"' in text
    assert f'"{name}"' not in _configuration(signals="off")


@pytest.mark.parametrize("status", sorted(PAUSE_STATUSES))
def test_every_status_with_which_a_site_asks_to_wait_is_reported(status):
    text = _configuration()

    assert f'["{status}"] = true' in text
    assert f'value_match: {{ exact: "{status}" }}' in text


@pytest.mark.parametrize("status", [200, 204, 301, 403, 429, 500, 502, 503])
def test_no_refusal_is_a_permission(status):
    reply = carried(ProxyReply(status, (), b""))

    assert 400 <= reply.status < 500
    if status in CARRIERS:
        assert f"default_value: {CARRIERS[status]}," in _configuration()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "2130706433", "0x7f.1"])
def test_a_private_address_is_refused(start, net, host):
    site = net.origin("", address="127.0.0.1")
    with start(allow_private="") as integration:
        answer = plain(integration, f"http://{host}:{site.port}/a")

    assert answer.status in (400, 403, 503)
    assert site.received == []


def test_envoy_resolves_no_names(start, net):
    """The address comes from the service. A name that its resolver does not know leads nowhere,
    whatever Envoy's would say."""
    text = _configuration()

    assert "dynamic_forward_proxy" not in text
    assert "STRICT_DNS" not in text
    assert "LOGICAL_DNS" not in text
    with start(report_only="true") as integration:
        answer = plain(integration, "http://nothing.invalid/a")
    assert answer.status == 503


def test_the_user_agent_may_be_the_operators(start, net):
    site = net.origin("")
    with start(set_user_agent="true", user_agent="mybot/2 (+https://bot.example)") as integration:
        assert plain(integration, site.url + "/a", fields="User-Agent: x\r\n").status == 200

    (received,) = [each for each in site.received if each.target == "/a"]
    assert received.headers["user-agent"] == "mybot/2 (+https://bot.example)"


def test_the_socket_is_not_for_others(integration):
    path = Path(integration.address.removeprefix("unix:"))

    assert path.stat().st_mode & 0o007 == 0
