"""Envoy, its service and the sites of these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from integrations.envoy.inspection import NamedSites
from integrations.envoy.process import EnvoyIntegration, envoy

from robots_guard.testing import Loopback

RULES = "User-agent: *\nDisallow: /private/\n"


@pytest.fixture(scope="module")
def net() -> Iterator[Loopback]:
    """The sites' network."""
    with Loopback() as started:
        yield started


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Callable[..., contextlib.AbstractContextManager[EnvoyIntegration]]:
    """Start an Envoy with a service of these settings."""

    def begin(**settings: str) -> contextlib.AbstractContextManager[EnvoyIntegration]:
        return envoy(tmp_path_factory.mktemp("envoy"), **{"audit": "all"} | settings)

    return begin


@pytest.fixture(scope="module")
def integration(start) -> Iterator[EnvoyIntegration]:
    """The Envoy that the tests of a module share."""
    with start() as started:
        yield started


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """The CA that certifies the sites of inspected TLS."""
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory) -> Path:
    """Its certificate, as a file."""
    path: Path = tmp_path_factory.mktemp("origins") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def sites(authority) -> Iterator[NamedSites]:
    """The sites of inspected TLS, which have names."""
    with Loopback() as net:
        started = NamedSites(net, authority)
        yield started
        started.close()
