"""Clients that accept only the site's certificate: refused and recorded, or passed through by host name."""

from __future__ import annotations

import contextlib
import ssl
from types import SimpleNamespace

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.wire import connected, credentials, exchange, htpasswd
from support.waiting import eventually

from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.destinations import Passthrough


def hello_to(host):
    """What mitmproxy says of a TLS handshake with this host, whose SNI agrees if it is a name."""
    server = SimpleNamespace(address=(host, 443))
    sni = None if ":" in host else host
    return SimpleNamespace(
        context=SimpleNamespace(server=server), client_hello=SimpleNamespace(sni=sni)
    )


def pinned(integration, site, ca_file, target="/open", fields=""):
    """A client that trusts the site's own authority only; the status, or None if it gave up."""
    context = ssl.create_default_context(cafile=str(ca_file))
    with connected(integration) as connection:
        connect = f"CONNECT {site.authority} HTTP/1.1\r\nHost: {site.authority}\r\n{fields}\r\n"
        assert exchange(connection, connect.encode(), body=False).status == 200
        with (
            contextlib.suppress(ssl.SSLError),
            context.wrap_socket(connection, server_hostname=site.host) as secure,
        ):
            head = f"GET {target} HTTP/1.1\r\nHost: {site.authority}\r\nConnection: close\r\n\r\n"
            return exchange(secure, head.encode()).status
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_an_unlisted_host_is_refused_and_recorded(kind, start, https_site, ca_file):
    with start(kind) as integration:
        assert pinned(integration, https_site, ca_file) is None
    (record,) = integration.records()  # once the proxy has read the client's farewell
    assert (record["action"], record["reason"]) == ("drop", "not-intercepted")
    assert record["url"] == f"{https_site.url}/"
    assert "trust" in record["detail"]
    assert https_site.seen()[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_listed_host_passes_through(kind, start, https_site, ca_file):
    with start(kind, passthrough=https_site.host) as integration:
        assert pinned(integration, https_site, ca_file) == 200
        (record,) = integration.records()
    assert (record["action"], record["reason"]) == ("pass", "bypassed")
    assert record["relaxed"] == f"passthrough={https_site.host}"
    assert https_site.origin.targets == ["/open"]


def test_a_listed_host_with_a_closing_robots_txt_is_refused(start, sites, ca_file):
    site = sites.start("https", "User-agent: *\nDisallow: /\n")
    with start("proxy", passthrough=site.host) as integration:
        assert pinned(integration, site, ca_file) is None
        # The client leaves before the proxy knows why.
        eventually(
            lambda: (
                [record["reason"] for record in integration.records()]
                == ["disallowed", "not-intercepted"]
            )
        )
    assert site.origin.targets == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_is_judged_and_recorded_as_its_users_agent(
    kind, start, sites, ca_file, tmp_path
):
    agents, users = tmp_path / "agents.toml", tmp_path / "users"
    agents.write_text('[users]\nalice = "other"\n')
    users.write_text(htpasswd("alice", "bob"))
    closed = sites.start("https", "User-agent: other\nDisallow: /\n")
    unlisted = sites.start("https")
    with start(
        kind, "--proxyauth", f"@{users}", agents=str(agents), passthrough=closed.host
    ) as integration:
        assert pinned(integration, unlisted, ca_file, fields=credentials("alice")) is None
        assert pinned(integration, unlisted, ca_file, fields=credentials("bob")) is None
        assert pinned(integration, closed, ca_file, fields=credentials("alice")) is None
        assert pinned(integration, closed, ca_file, fields=credentials("bob")) == 200
        eventually(
            lambda: (
                sorted((each["agent"], each["reason"]) for each in integration.records())
                == [
                    ("mybot", "bypassed"),
                    ("mybot", "not-intercepted"),
                    ("other", "disallowed"),
                    ("other", "not-intercepted"),
                    ("other", "not-intercepted"),
                ]
            )
        )
    assert closed.origin.targets == ["/open"]


def test_another_sni_does_not_pass_through(start, sites, ca_file):
    """The host is the tunnel's and the handshake's; a tunnel to another host is intercepted."""
    named, other = sites.start("https"), sites.start("https")
    with start("proxy", passthrough=named.host) as integration:
        assert pinned(integration, other, ca_file) is None
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
    assert (Passthrough(hosts).origin(hello_to(host)) is not None) is passes


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("site.test.", "site.test"),
        ("*.b\u00fccher.test", "a.xn--bcher-kva.test"),
        ("[::1]", "::1"),
    ],
)
def test_a_host_may_be_spelt_in_another_way(host, name):
    assert Passthrough((host,)).origin(hello_to(name)).host == name


@pytest.mark.parametrize("host", ["https://a.test/", "a*b", "*.*.test", "a.test:8443", "*.", "a b"])
def test_invalid_host_names(host):
    with pytest.raises(SettingsError, match="is not a host: write a name alone"):
        Passthrough((host,))
