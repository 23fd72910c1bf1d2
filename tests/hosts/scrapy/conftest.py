"""What the Scrapy tests share. Nothing here can run without Scrapy; the core's own environment has none."""

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
    """Makes a server's TLS context for an address."""

    def context(address: str) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(address).configure_cert(made)
        return made

    return context
