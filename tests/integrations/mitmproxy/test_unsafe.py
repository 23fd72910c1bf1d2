"""Options that bypass the guard, at real starts: refused by name, or allowed by name and recorded."""

from __future__ import annotations

import socket

import pytest
import trustme
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.process import refused_start
from integrations.mitmproxy.wire import closed, inside, plain, tunnel
from support.waiting import eventually

UNSAFE = {
    "rawtcp=true": "rawtcp=false",
    "connection_strategy=eager": "connection_strategy=lazy",
    "validate_inbound_headers=false": "validate_inbound_headers=true",
    "ssl_insecure=true": "ssl_insecure=false",
    "http3=true": "http3=false",
    "ignore_hosts=x": "leave it unset",
    "allow_hosts=x": "leave it unset",
    "tcp_hosts=x": "leave it unset",
    "udp_hosts=x": "leave it unset",
    "stream_large_bodies=1k": "leave it unset",
    "mode=reverse:tcp://127.0.0.1:9": "use one of regular",
    "mode=dns": "use one of regular",
}
ONLY_IN_MITMDUMP = {
    "map_remote=|/open|/private": "leave it unset",
    "map_local=|/open|/etc": "leave it unset",
    "modify_headers=/~q/Host/x": "leave it unset",
    "modify_body=/~q/a/b": "leave it unset",
}


def option_named(setting):
    return f"mitmproxy's option {setting.partition('=')[0]}="


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", UNSAFE)
def test_the_start_is_stopped(kind, setting, tmp_path):
    spelt = (
        ["--mode", setting.removeprefix("mode=")]
        if setting.startswith("mode=")
        else ["--set", setting]
    )
    status, printed = refused_start(kind, tmp_path, spelt)

    assert status == (2 if kind == "proxy" else 1), printed
    assert option_named(setting) in printed
    assert UNSAFE[setting] in printed
    assert "Traceback" not in printed
    assert "guarding" not in printed


@pytest.mark.parametrize("setting", ONLY_IN_MITMDUMP)
def test_the_start_of_a_mitmdump_is_stopped(setting, tmp_path):
    status, printed = refused_start("mitmdump", tmp_path, ["--set", setting])

    assert (status, option_named(setting) in printed, ONLY_IN_MITMDUMP[setting] in printed) == (
        1,
        True,
        True,
    ), printed


@pytest.mark.parametrize("setting", ONLY_IN_MITMDUMP)
def test_options_of_omitted_addons_are_unknown(setting, tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--set", setting])

    expected = f"--set {setting.partition('=')[0]}: there is no such option here"
    assert (status, expected in printed, "run a mitmdump of your own" in printed) == (
        2,
        True,
        True,
    ), printed


@pytest.mark.parametrize("kind", KINDS)
def test_ldap(kind, tmp_path):
    status, printed = refused_start(kind, tmp_path, ["--proxyauth", "ldap:127.0.0.1:1:cn=a:b:dc=c"])

    assert (status != 0, "ldap" in printed.lower()) == (True, True), printed
    assert "guarding" not in printed
    if kind == "proxy":  # a mitmdump contacts the LDAP server before the guard can refuse
        assert "proxyauth=@FILE" in printed


@pytest.mark.parametrize("setting", ["mode=dns", "listen_port=1", "confdir=/tmp", "proxyauth=any"])
def test_options_with_a_flag_cannot_be_set_twice(setting, tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--set", setting])

    assert (status, "use --" in printed) == (2, True), printed


def test_an_unknown_name_in_allow_unsafe(tmp_path):
    status, printed = refused_start("proxy", tmp_path, ["--allow-unsafe", "rawtpc"])

    assert (status, "'rawtpc'" in printed, "rawtcp" in printed) == (2, True, True), printed


@pytest.mark.parametrize("kind", KINDS)
def test_an_allowed_unsafe_option_is_recorded(kind, start, http_site):
    """Each connection that needs the option is recorded, too."""
    data = b"\x00\x01\x02 no request"
    with start(kind, "--set", "tcp_hosts=127", allow_unsafe="tcp_hosts") as integration:
        with tunnel(integration, http_site.authority, tls=False) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            closed(connection)
        configured, connected = integration.records()
    assert (configured["reason"], configured["relaxed"]) == ("bypassed", "allow_unsafe=tcp_hosts")
    assert configured["url"] == "http://robots.guard/options/tcp_hosts"
    assert "forwards tunnels without judging them" in configured["detail"]
    assert (connected["action"], connected["reason"], connected["method"]) == (
        "pass",
        "bypassed",
        "CONNECT",
    )
    assert connected["relaxed"] == "allow_unsafe=tcp_hosts"
    eventually(lambda: http_site.tap.byte_count == len(data))


def test_an_allowed_option_allows_only_itself(start, http_site):
    with start(
        "mitmdump", "--set", "map_remote=|/nowhere|/private", allow_unsafe="map_remote"
    ) as integration:
        assert plain(integration, http_site.url + "/private/x").status == 403
        with tunnel(integration, http_site.authority, tls=False) as connection:
            connection.sendall(b"\x00\x01\x02 no request")
            connection.shutdown(socket.SHUT_WR)
            closed(connection)
    assert http_site.tap.accepts == 1  # robots.txt


def test_sites_with_untrusted_certificates_if_allowed(start, sites):
    """Their robots.txt is read as they send it, and each verdict's record says that it came unverified."""
    site = sites.start("https", authority=trustme.CA())
    with start(
        "mitmdump", "--set", "ssl_insecure=true", allow_unsafe="ssl_insecure", audit="all"
    ) as integration:
        assert inside(integration, site.authority, "/open").status == 200
        assert inside(integration, site.authority, "/private/x").status == 403
        assert [record["tls_verified"] for record in integration.records()[1:]] == [False, False]
    assert len(site.origin.robots_fetches) == 1
