"""Envoy, its service and the sites of these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
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
        return envoy(tmp_path_factory.mktemp("envoy"), **{"audit_passes": "all"} | settings)

    return begin


@pytest.fixture(scope="module")
def integration(start) -> Iterator[EnvoyIntegration]:
    """The Envoy that the tests of a module share."""
    with start() as started:
        yield started
