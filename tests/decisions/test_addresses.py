"""Which addresses are public, the same on every Python version."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from robots_guard.decisions.addresses import BAD_PORTS, covers, is_public, literal, networks
from robots_guard.errors import SettingsError

NOT_PUBLIC = {
    "unspecified": "0.0.0.0",
    "this network": "0.1.2.3",
    "private 10": "10.0.0.1",
    "private 172": "172.31.255.255",
    "private 192": "192.168.1.1",
    "shared": "100.64.0.1",
    "shared, a cloud's metadata": "100.100.100.200",
    "loopback": "127.0.0.1",
    "loopback, another": "127.255.255.254",
    "link-local": "169.254.0.1",
    "metadata": "169.254.169.254",
    "wire server": "168.63.129.16",
    "protocol assignments": "192.0.0.8",
    "port control anycast": "192.0.0.9",
    "turn anycast": "192.0.0.10",
    "nat64 discovery": "192.0.0.170",
    "documentation": "192.0.2.1",
    "6to4 relay": "192.88.99.1",
    "benchmarking": "198.18.0.1",
    "documentation 2": "198.51.100.1",
    "documentation 3": "203.0.113.1",
    "multicast": "224.0.0.1",
    "multicast, global scope": "233.252.0.1",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "v6 unspecified": "::",
    "v6 loopback": "::1",
    "mapped loopback": "::ffff:127.0.0.1",
    "mapped private": "::ffff:10.0.0.1",
    "mapped metadata": "::ffff:a9fe:a9fe",
    "translated loopback": "::ffff:0:127.0.0.1",
    "compatible loopback": "::127.0.0.1",
    "compatible private": "::10.0.0.1",
    "nat64 loopback": "64:ff9b::127.0.0.1",
    "nat64 private": "64:ff9b::10.0.0.1",
    "nat64 metadata": "64:ff9b::a9fe:a9fe",
    "nat64 of one's own": "64:ff9b:1::1",
    "6to4 loopback": "2002:7f00:1::1",
    "6to4 private": "2002:a00:1::1",
    "6to4 metadata": "2002:a9fe:a9fe::1",
    "teredo to a private client": "2001:0:808:808:0:0:f5ff:fffe",
    "teredo by a private server": "2001:0:a00:1:0:0:f7f7:f7f7",
    "discard": "100::1",
    "dummy prefix": "100:0:0:1::1",
    "benchmarking v6": "2001:2::1",
    "orchid": "2001:10::1",
    "orchid 2": "2001:20::1",
    "protocol anycast v6": "2001:1::1",
    "documentation v6": "2001:db8::1",
    "documentation v6 2": "3fff::1",
    "segment routing": "5f00::1",
    "unique local": "fd00::1",
    "unique local, metadata": "fd00:ec2::254",
    "link-local v6": "fe80::1",
    "site-local": "fec0::1",
    "multicast v6": "ff02::1",
    "multicast v6, global scope": "ff0e::1",
    "never given out": "4000::1",
    "never given out 2": "e000::1",
}
PUBLIC = {
    "v4": "8.8.8.8",
    "beside 10": "11.0.0.1",
    "beside shared": "100.128.0.1",
    "beside 172.16": "172.32.0.1",
    "beside 169.254": "169.253.255.255",
    "v6": "2001:4860:4860::8888",
    "v6 2": "2606:4700::1111",
    "mapped": "::ffff:8.8.8.8",
    "nat64, all there is behind DNS64": "64:ff9b::8.8.8.8",
    "6to4": "2002:808:808::1",
    "teredo": "2001:0:808:808:0:0:f7f7:f7f7",
}


def test_the_table_covers_all_probes():
    assert len(NOT_PUBLIC) >= 33


@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC)
def test_not_public(address):
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.values(), ids=PUBLIC)
def test_public(address):
    assert is_public(ip_address(address))


def test_networks_are_parsed_and_cover_addresses():
    allowed = networks(" 10.0.0.0/8, ::1 ,,127.0.0.1/32")

    assert covers(allowed, ip_address("10.1.2.3"))
    assert covers(allowed, ip_address("::1"))
    assert not covers(allowed, ip_address("127.0.0.2"))
    assert not covers(allowed, ip_address("::ffff:10.0.0.1"))
    assert networks("") == ()


@pytest.mark.parametrize("text", ["10.0.0.1/8", "localhost", "10.0.0.0/33", "10.0.0.0/8 ::1"])
def test_an_invalid_network_is_named_in_the_error(text):
    with pytest.raises(
        SettingsError, match=r"allow_private: .* is not a network .*: use CIDRs such as"
    ) as caught:
        networks(text)

    assert "\n" not in str(caught.value)


def test_hosts_that_are_ip_literals():
    assert literal("127.0.0.1") == ip_address("127.0.0.1")
    assert literal("::1") == ip_address("::1")
    assert literal("a.test") is None


def test_web_ports_are_not_bad():
    assert not BAD_PORTS & {80, 443, 8000, 8080, 8443, 3000, 5000}
    assert {22, 25, 6379, 11211} <= BAD_PORTS
