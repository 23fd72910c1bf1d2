"""The configuration that is written for Squid."""

from __future__ import annotations

import ipaddress
import re
import subprocess
from pathlib import Path

import pytest
from support.programs import program

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.addresses import is_public
from robots_guard.errors import SettingsError
from robots_guard.gateway.listeners import Address
from robots_guard.serve.configurations import render
from robots_guard.serve.plan import Plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "squid" / "squid.conf"
CA = Path("/etc/robots_guard/ca")
ICAP = Address(host="127.0.0.1", port=1344)


def written(*, icap: Address = ICAP, confdir: Path = CA, **settings: object) -> str:
    return render(
        "squid",
        Plan(
            settings=ProxySettings(agent="mybot", **settings),
            listen={"icap": icap},
            data_plane=Address(host="127.0.0.1", port=3128),
            confdir=confdir,
            upstream_ca=Path("/etc/ssl/certs/ca-certificates.crt"),
        ),
    )


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_example_is_what_is_written():
    assert EXAMPLE.read_text() == written()


def test_the_settings():
    found = lines(
        written(
            connect_ports="443, 8000-8999",
            allow_private="10.1.0.0/16, fd00::/64",
            hold_max=4.5,
            fetch_timeout=17.4,
            set_user_agent=True,
            user_agent='my"bot\\',
        )
    )
    assert {"acl connect_ports port 443", "acl connect_ports port 8000-8999"} <= set(found)
    assert "acl allowed_private dst 10.1.0.0/16 fd00::/64" in found
    assert "adapted_http_access deny not_public !allowed_private" in found
    assert "icap_io_timeout 30 seconds" in found
    assert 'request_header_add User-Agent "my\\"bot\\\\"' in found


def test_responses_that_must_be_judged_all_go_to_the_service():
    assert "adaptation_access robots_guard_responses allow all" in lines(written(purposes="search"))
    assert "adaptation_access robots_guard_responses allow pauses" in lines(written())
    assert not any("allow pauses" in line for line in lines(written(respect_retry_after=False)))


def test_it_fails_closed():
    text = written()
    assert text.count("bypass=off on-overload=wait") == 2
    for never in ("splice", "peek", "url_regex", "bypass=on", "DONT_VERIFY"):
        assert not any(never in line for line in lines(text)), never


def test_no_connect_makes_a_connection():
    found = lines(written())
    assert "acl inside_tunnel connections_encrypted" in found
    assert found.index("http_access deny CONNECT inside_tunnel") < found.index(
        "http_access allow clients"
    )
    assert "adaptation_access robots_guard_requests deny CONNECT !inside_tunnel" in found


def networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = [line.split()[3:] for line in lines(written()) if line.startswith("acl not_public")]
    return [ipaddress.ip_network(each) for line in found for each in line]


@pytest.mark.parametrize("network", networks(), ids=str)
def test_a_refused_network_is_not_public(network):
    ends = (network.network_address, network.broadcast_address)
    assert not any(map(is_public, ends))
    if network.version == 6:  # Squid keeps IPv4 addresses there
        assert not network.overlaps(ipaddress.ip_network("::ffff:0:0/96"))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.1",
        "10.9.8.7",
        "100.64.1.1",
        "127.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.31.255.255",
        "192.0.0.8",
        "192.168.1.1",
        "198.19.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::7f00:1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001:0:1::1",
        "2001:db8::1",
    ],
)
def test_what_is_not_public_is_refused(address):
    assert any(ipaddress.ip_address(address) in network for network in networks())


@pytest.mark.parametrize(
    "changes",
    [
        {"icap": Address(path="/run/icap.sock")},
        {"confdir": Path("/a b")},
        {"confdir": Path("/a#b")},
    ],
)
def test_what_squid_cannot_read_is_refused(changes):
    with pytest.raises(SettingsError):
        written(**changes)


def test_squid_can_read_it(tmp_path):
    """Squid also names networks that overlap, and unknown options."""
    (tmp_path / "mybot.conf").write_text(written(purposes="search", allow_private="10.0.0.0/8"))
    done = subprocess.run(
        [program("squid"), "-k", "parse", "-f", str(tmp_path / "mybot.conf")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if re.search("WARN|ERROR|FATAL", line)]
    # The CA is not there, and this machine may limit files.
    allowed = "requires the use of Via|mitmproxy-ca.pem|No valid signing|RLIMIT|Bungled|Terminated"
    assert [line for line in said if not re.search(allowed, line)] == []
