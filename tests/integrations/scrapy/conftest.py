"""Fixtures of the Scrapy tests, which are skipped in the core's own environment without Scrapy."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import trustme

collect_ignore_glob = [] if find_spec("scrapy") else ["test_*.py"]


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority(ca) -> Callable[[str], ssl.SSLContext]:
    """A factory of server-side TLS contexts, by address."""

    def make_context(address: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(address).configure_cert(context)
        return context

    return make_context
