"""Clients that accept no certificate but the site's: refused and on record, or let through by the host's name."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hosts.mitmproxy.conftest import KINDS
from hosts.mitmproxy.wire import connected, exchange

from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.passthrough import Passthrough


def pinned(door, site, ca_file, target="/open"):
    """A client that trusts the site's own authority only; the status, or None if it would not go on."""
    context = ssl.create_default_context(cafile=str(ca_file))
    with connected(door) as connection:
        connect = f"CONNECT {site.authority} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        assert exchange(connection, connect.encode(), body=False).status == 200
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_hostname=site.host) as secure:
            head = f"GET {target} HTTP/1.1\r\nHost: {site.authority}\r\nConnection: close\r\n\r\n"
            return exchange(secure, head.encode()).status
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_and_the_record_says_why(kind, start, https_site, ca_file):
    with start(kind) as door:
        assert pinned(door, https_site, ca_file) is None
    (record,) = door.records()  # once the proxy has read the client's farewell
    assert (record["action"], record["reason"]) == ("drop", "not-intercepted")
    assert record["url"] == f"{https_site.url}/"
    assert "trust" in record["detail"]
    assert https_site.seen()[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_is_named_goes_through(kind, start, https_site, ca_file):
    with start(kind, passthrough=https_site.host) as door:
        assert pinned(door, https_site, ca_file) == 200
        (record,) = door.records()
    assert (record["action"], record["reason"]) == ("pass", "bypassed")
    assert record["relaxed"] == f"passthrough={https_site.host}"
    assert https_site.origin.targets == ["/open"]


def test_but_not_if_its_robots_txt_closes_it(start, sites, ca_file):
    site = sites.start("https", "User-agent: *\nDisallow: /\n")
    with start("proxy", passthrough=site.host) as door:
        assert pinned(door, site, ca_file) is None
    assert [record["reason"] for record in door.records()] == ["disallowed", "not-intercepted"]
    assert site.origin.targets == []


def test_nor_under_another_s_name(start, sites, ca_file):
    """The host is the tunnel's and the handshake's; a tunnel to somewhere else is looked into."""
    named, other = sites.start("https"), sites.start("https")
    with start("proxy", passthrough=named.host) as door:
        assert pinned(door, other, ca_file) is None
    assert other.seen()[0] == 0


@pytest.mark.parametrize(
    ("hosts", "host", "passes"),
    [
        (("example.com",), "example.com", True),
        (("example.com",), "www.example.com", False),
        (("*.example.com",), "a.b.example.com", True),
        (("*.example.com",), "example.com", False),
        (("*.example.com",), "badexample.com", False),
        (("EXAMPLE.com",), "example.com", True),
    ],
)
def test_names(hosts, host, passes):
    assert Passthrough(hosts)._names(host) is passes


@pytest.mark.parametrize(
    ("host", "name"),
    [("site.test.", "site.test"), ("*.b\u00fccher.test", "*.xn--bcher-kva.test"), ("[::1]", "::1")],
)
def test_names_are_held_as_they_are_compared(host, name):
    assert Passthrough((host,))._hosts == {name}


@pytest.mark.parametrize("host", ["https://a.test/", "a*b", "*.*.test", "a.test:8443", "*.", "a b"])
def test_what_no_handshake_could_name(host):
    with pytest.raises(SettingsError, match="is no host: write a name alone"):
        Passthrough((host,))
