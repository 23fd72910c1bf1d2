"""Inspected TLS behind Envoy: a verdict for each request inside, and no way around it."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
import trustme
from integrations.envoy.inspection import NamedSites, inspecting
from integrations.mitmproxy.wire import (
    TIMEOUT,
)
from support.programs import program

from robots_guard.testing import Loopback

FORBIDDEN = "/private/x"


@pytest.fixture(scope="module")
def authority():
    """The CA that certifies the sites."""
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("origins") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def sites(authority):
    with Loopback() as net:
        started = NamedSites(net, authority)
        yield started
        started.close()


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory):
    with inspecting(tmp_path_factory.mktemp("envoy"), ca_file, audit_passes="all") as running:
        yield running


@pytest.fixture
def site(sites):
    return sites.start("https")


@contextlib.contextmanager
def untouched(*sites):
    """Nothing done in the block reaches the sites."""
    before = [site.seen() for site in sites]
    yield
    assert [site.seen() for site in sites] == before


def curl(integration, url, *options):
    """Status, HTTP version and body of a request by curl."""
    command = [program("curl"), "-sS", "-m", "40", "-x", integration.url, "--path-as-is", "-w"]
    command += ["\n%{http_code} %{http_version}", "--cacert", str(integration.ca), *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    body, _, (status, version) = (*done.stdout.rpartition("\n")[:2], done.stdout.rsplit()[-2:])
    return int(status), version, body, done.stderr


# -- verdicts inside TLS -----------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "version"), [("--http1.1", "1.1"), ("--http2", "2")])
def test_a_verdict_inside_tls(integration, site, option, version):
    assert curl(integration, site.url + "/open", option)[:2] == (200, version)
    status, spoken, body, _ = curl(integration, site.url + FORBIDDEN, option)
    assert (status, spoken) == (403, version)
    assert '"rule": "Disallow: /private/"' in body
    assert site.origin.targets == ["/open"]
