"""A Squid for the tests of a module, and sites."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import trustme
from integrations.mitmproxy.origin import Site, Sites
from integrations.mitmproxy.wire import Answer, exchange, plain, tunnel
from integrations.squid.process import SquidIntegration, squid

from robots_guard.testing import Loopback


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The CA that certifies the origins."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("origins") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def sites(authority) -> Iterator[Sites]:
    with Loopback() as net:
        started = Sites(net, authority)
        yield started
        started.close()


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory) -> Iterator[SquidIntegration]:
    """A Squid that is shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("squid")
    with squid(folder, upstream_ca=ca_file, audit="all") as started:
        yield started


@pytest.fixture(params=["http", "https"])
def site(request, sites) -> Site:
    return sites.start(request.param)


@pytest.fixture
def http_site(sites) -> Site:
    return sites.start("http")


@pytest.fixture
def https_site(sites) -> Site:
    return sites.start("https")


def get(integration: SquidIntegration, site: Site, target: str, **options) -> Answer:
    """A plain GET of a well-behaved client."""
    if site.scheme == "http":
        return plain(integration, site.url + target, **options)
    return inside(integration, site.authority, target, **options)


def inside(
    integration: SquidIntegration,
    authority: str,
    target: str,
    *,
    method: str = "GET",
    fields: str = "",
    body: bytes = b"",
) -> Answer:
    """An HTTPS request through a tunnel of its own."""
    head = f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{fields}Connection: close\r\n\r\n"
    with bumped(integration, authority) as connection:
        return exchange(connection, head.encode("latin-1") + body, body=method != "HEAD")


def bumped(integration: SquidIntegration, authority: str) -> AbstractContextManager[socket.socket]:
    """A TLS connection inside a tunnel. The name is not verified: Squid 5.7 writes no addresses into
    certificates."""
    return tunnel(integration, authority, sni=authority.rpartition(":")[0])
